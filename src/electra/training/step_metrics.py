"""What came of the steps, added up. The device is asked about many steps at once, since only that waits for it."""

import itertools
import time
from dataclasses import dataclass
from typing import Any

import torch

from electra.training.progress import Progress
from electra.training.update import Figures

STEPS_WITH = "steps with "
"""Before the name of a figure: the number of steps that are in its sum."""


@dataclass(frozen=True)
class SkippedStep:
    """A step that was not applied, because its loss or its gradient was not finite.

    Attributes:
        in_a_row: how many such steps this one ends.
    """

    step: int
    loss: float
    gradient_norm: float
    in_a_row: int


class MetricAccumulator:
    """Adds steps up in a run's progress."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._unsettled: list[tuple[float, float, Figures]] = []
        self._began: float | None = None  # when the first of them did

    def begin(self) -> None:
        """A step begins."""
        self._began = self._began or time.perf_counter()

    def fits(self, figures: Figures) -> bool:
        """Whether those before have the same figures: else another stage has begun, and they are settled first."""
        return not self._unsettled or self._unsettled[-1][-1].keys() == figures.keys()

    def note(self, rate: float, flops: float, figures: Figures) -> None:
        """A step was made, of so many FLOPs a position; what came of it is not known yet."""
        self._unsettled.append((rate, flops, figures))
        self.progress.step += 1

    def sync(self) -> list[SkippedStep]:
        """Take the steps since the last time into the account. Only this waits for the device."""
        if not self._unsettled:
            return []
        names = list(self._unsettled[0][-1])
        rows = [torch.stack([x.detach().double() for x in figures.values()]) for *_, figures in self._unsettled]
        known = torch.stack(rows).tolist()
        assert self._began is not None
        seconds = (time.perf_counter() - self._began) / len(known)
        settled, self._unsettled, self._began = self._unsettled, [], None
        first, refused = self.progress.step - len(known) + 1, []
        for step, (rate, flops, _), row in zip(itertools.count(first), settled, known, strict=False):
            figures = dict(zip(names, row, strict=True))
            figures |= {"flops": flops * figures.pop("positions"), "seconds": seconds}
            if not self._add_step(figures, rate):
                in_a_row = self.progress.skipped_in_a_row
                refused.append(SkippedStep(step, figures["loss"], figures["gradient_norm"], in_a_row))
        return refused

    def report(self) -> dict[str, Any] | None:
        """Means since the last report, and totals; None where every step since was refused."""
        progress, sums = self.progress, self.progress.sums
        progress.sums = {}
        counts = {name: sums.pop(name) for name in list(sums) if name.startswith(STEPS_WITH)}
        sums.pop("applied", None)
        tokens, seconds, flops = (sums.pop(name, 0.0) for name in ("tokens", "seconds", "flops"))
        rate = sums.pop("learning_rate", 0.0)
        if "loss" not in sums:
            return None
        return {
            "step": progress.step,
            "tokens": progress.tokens,
            "flops": progress.flops,
            "seconds": round(progress.seconds, 3),
            **{name: value / counts[STEPS_WITH + name] for name, value in sums.items()},
            "learning_rate": rate,
            "tokens_per_second": tokens / seconds,
            "flops_per_second": flops / seconds,
            "skipped_steps": progress.skipped,
        }

    def _add_step(self, figures: dict[str, float], rate: float) -> bool:
        """Whether the step was applied; one that was not counts as skipped."""
        progress = self.progress
        work = {name: figures.pop(name) for name in ("tokens", "flops", "seconds")}
        self._add(work)
        progress.tokens += int(work["tokens"])
        progress.flops += work["flops"]
        progress.seconds += work["seconds"]
        if progress.steps is None:
            progress.measured.append(work["seconds"])
        if figures["applied"]:
            progress.skipped_in_a_row = 0
            self._add(figures)
            self._add({STEPS_WITH + name: 1.0 for name in figures})  # the stages of a run have different parts
            progress.sums["learning_rate"] = rate  # the last one, not a mean
            return True
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        return False

    def _add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.progress.sums[name] = self.progress.sums.get(name, 0.0) + value
