"""The metrics of steps, summed until the next report.

They stay on the device until they are needed: only `MetricAccumulator.sync` waits for it, for many steps at once.
"""

import dataclasses
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from electra.modeling.device import widest_float
from electra.training.update import Metrics

COUNT_OF = "steps with "
"""Before the name of a metric: the number of steps that are in its sum."""

_KEYS = {"excluded_steps": "passed_over", "rolled_back_from": "went_back_from", "step_seconds": "measured"}
"""Keys of a checkpoint's state.json that differ from the names of the fields."""


@dataclass
class Progress:
    """The progress of a run: counters and sums that every checkpoint stores."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    skipped: int = 0
    """Steps that were not applied, because the loss or the gradient was not finite."""
    skipped_in_a_row: int = 0
    excluded_steps: list[int] = field(default_factory=list)
    """Steps (from 0) whose batches are left out, because they caused a rollback."""
    rolled_back_from: int | None = None
    """The step at which the run was last rolled back to a checkpoint. None once there is a newer checkpoint."""
    step_seconds: list[float] = field(default_factory=list)
    """Duration of each step, until the number of steps in `train.minutes` is known."""
    evaluation_seconds: float = 0.0
    """Duration of the last evaluation."""
    steps: int | None = None
    """Length of the run. None while it is still being computed from `train.minutes`."""
    sums: dict[str, float] = field(default_factory=dict)
    """Sums since the last report, by the name of the metric."""

    def to_state(self) -> dict[str, Any]:
        """The content for state.json."""
        return {_KEYS.get(name, name): value for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Progress":
        """Read back what `to_state` returned."""
        names = {key: name for name, key in _KEYS.items()}
        return cls(**{names.get(key, key): value for key, value in state.items()})


@dataclass(frozen=True)
class SkippedStep:
    """A step that was not applied, because its loss or its gradient was not finite.

    Attributes:
        step: counted from 1.
        in_a_row: the number of skipped steps in a row, this one included.
    """

    step: int
    loss: float
    gradient_norm: float
    in_a_row: int


class MetricAccumulator:
    """Sums the metrics of steps in a run's progress."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._pending: list[tuple[float, float, float, Metrics]] = []
        self._started: float | None = None  # the time at which the first pending step started

    def start_step(self) -> None:
        """Start the clock, if it does not run already."""
        self._started = self._started or time.perf_counter()

    def accepts(self, metrics: Metrics) -> bool:
        """Whether the pending steps have the same metrics. If not (in a new stage), call `sync` first."""
        return not self._pending or self._pending[-1][-1].keys() == metrics.keys()

    def add(self, learning_rate: float, flops: float, metrics: Metrics, *, update_flops: float = 0.0) -> None:
        """Add a step whose metrics the device may still be computing.

        Args:
            flops: FLOPs per position (token or padding).
            update_flops: FLOPs of the step besides.
        """
        self._pending.append((learning_rate, flops, update_flops, metrics))
        self.progress.step += 1

    def sync(self) -> list[SkippedStep]:
        """Wait for the device, and add all pending steps to the progress.

        Returns:
            Those that were skipped.
        """
        if not self._pending:
            return []
        names = list(self._pending[0][-1])
        dtype = widest_float(next(iter(self._pending[0][-1].values())).device)
        rows = [torch.stack([x.detach().to(dtype) for x in metrics.values()]) for *_, metrics in self._pending]
        values = torch.stack(rows).tolist()
        assert self._started is not None
        seconds = (time.perf_counter() - self._started) / len(values)
        pending, self._pending, self._started = self._pending, [], None
        first, skipped = self.progress.step - len(values) + 1, []
        for step, (learning_rate, flops, update_flops, _), row in zip(
            itertools.count(first), pending, values, strict=False
        ):
            metrics = dict(zip(names, row, strict=True))
            metrics |= {"flops": flops * metrics.pop("positions") + update_flops, "seconds": seconds}
            if not self._add_step(metrics, learning_rate):
                in_a_row = self.progress.skipped_in_a_row
                skipped.append(SkippedStep(step, metrics["loss"], metrics["gradient_norm"], in_a_row))
        return skipped

    def report(self) -> dict[str, Any] | None:
        """Means since the last report, and totals of the run. None if every step since then was skipped."""
        progress, sums = self.progress, self.progress.sums
        progress.sums = {}
        counts = {name: sums.pop(name) for name in list(sums) if name.startswith(COUNT_OF)}
        sums.pop("applied", None)
        tokens, seconds, flops = (sums.pop(name, 0.0) for name in ("tokens", "seconds", "flops"))
        learning_rate = sums.pop("learning_rate", 0.0)
        if "loss" not in sums:
            return None
        return {
            "step": progress.step,
            "tokens": progress.tokens,
            "flops": progress.flops,
            "seconds": round(progress.seconds, 3),
            **{name: value / counts[COUNT_OF + name] for name, value in sums.items()},
            "learning_rate": learning_rate,
            "tokens_per_second": tokens / seconds,
            "flops_per_second": flops / seconds,
            "skipped_steps": progress.skipped,
        }

    def _add_step(self, metrics: dict[str, float], learning_rate: float) -> bool:
        """Add one step; return whether it was applied."""
        progress = self.progress
        work = {name: metrics.pop(name) for name in ("tokens", "flops", "seconds")}
        self._add_to_sums(work)
        progress.tokens += int(work["tokens"])
        progress.flops += work["flops"]
        progress.seconds += work["seconds"]
        if progress.steps is None:
            progress.step_seconds.append(work["seconds"])
        if metrics["applied"]:
            progress.skipped_in_a_row = 0
            self._add_to_sums(metrics)
            self._add_to_sums({COUNT_OF + name: 1.0 for name in metrics})  # not all stages have the same metrics
            progress.sums["learning_rate"] = learning_rate  # the last one, not a mean
            return True
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        return False

    def _add_to_sums(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.progress.sums[name] = self.progress.sums.get(name, 0.0) + value
