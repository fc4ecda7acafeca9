"""What a run writes about itself while it goes: metrics.jsonl, TensorBoard, one console line a report."""

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from electra.durable import flush
from electra.objectives.metric_labels import metric_label
from electra.training.config import TrackingConfig
from electra.training.distributed import is_main_process

logger = logging.getLogger(__name__)

Figures = Mapping[str, Any]

_HELD_OUT = (
    "eval/discriminator_auc", "eval/unigram_auc", "eval/masked_lm_accuracy", "eval/masked_lm_loss",
    "eval/perplexity", "eval/language_model_accuracy", "eval/permutation_lm_accuracy",
    "eval/permutation_lm_loss", "eval/discriminator_loss", "eval/majority_loss",
)  # fmt: skip
"""Held-out metrics in the console line of an evaluation."""


class MetricsFile:
    """metrics.jsonl: one JSON object a line; what lies behind a checkpoint is cut off when it is resumed."""

    def __init__(self, path: Path, *, resume_at: int = 0) -> None:
        self.path = path
        path.touch()
        if (found := path.stat().st_size) < resume_at:
            logger.warning("%s: %s bytes expected, %s found; figures from before are lost", path, resume_at, found)
        with path.open("r+b") as stream:
            stream.truncate(min(resume_at, found))
        self._stream = path.open("a", encoding="utf-8")

    def write(self, figures: Figures) -> None:
        """Append one object. What is not a finite number becomes null, since JSON has no word for it."""
        self._stream.write(json.dumps({key: _json(value) for key, value in figures.items()}) + "\n")
        self._stream.flush()

    def synced(self) -> int:
        """Put everything on the disk; the bytes written so far, which a checkpoint remembers."""
        flush(self.path)
        return self.path.stat().st_size

    def close(self) -> None:
        self._stream.close()


class Unwritten:
    """Takes the place of metrics.jsonl in processes that do not lead."""

    def synced(self) -> int:
        return 0

    def write(self, figures: Figures) -> None:
        pass

    def close(self) -> None:
        pass


class TensorBoard:
    """The same figures as TensorBoard scalars, by step."""

    def __init__(self, folder: Path, *, resume_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a second to import

        self._writer = SummaryWriter(str(folder), purge_step=resume_step + 1 if resume_step else None)

    def write(self, figures: Figures) -> None:
        for key, value in figures.items():
            if key != "step" and isinstance(value, int | float):
                name = key if "/" in key else f"train/{key}"
                self._writer.add_scalar(name, value, figures["step"])

    def close(self) -> None:
        self._writer.close()


class Tracking:
    """Every place that figures go to; of several processes the leader alone writes them."""

    def __init__(self, run: Path, config: TrackingConfig, *, resume_at: int, resume_step: int) -> None:
        self.metrics = (
            MetricsFile(run / "metrics.jsonl", resume_at=resume_at) if is_main_process() else Unwritten()
        )
        boards = config.tensorboard and is_main_process()
        self._board = TensorBoard(run / "tensorboard", resume_step=resume_step) if boards else None

    def report(self, figures: Figures, *, line: str, done: int, total: int | None) -> None:
        """One report of training: everywhere, and as a line that the console may show as a bar."""
        self.figures(figures)
        logger.info(line, extra={"progress": (done, total)})

    def figures(self, figures: Figures) -> None:
        """Figures that the console hears of in other words."""
        self.metrics.write(figures)
        if self._board:
            self._board.write(figures)

    def close(self) -> None:
        self.metrics.close()
        if self._board:
            self._board.close()


def report_line(figures: Figures, *, steps: int | None, utilisation: float, seconds_left: float | None) -> str:
    """Step, loss parts, learning rate, gradient norm, speed, utilisation and time left, in one line."""
    parts = [f"step {figures['step']:,}" + (f"/{steps:,}" if steps else "")]
    parts += [
        f"{name.removesuffix('_loss').replace('_', ' ')} {figures[name]:.4f}"
        for name in figures
        if name == "loss" or name.endswith("_loss")
    ]
    parts += [
        f"lr {figures['learning_rate']:.2e}",
        f"gradient {figures['gradient_norm']:.2f}",
        f"{figures['tokens_per_second']:,.0f} tokens/s",
    ]
    if utilisation <= 1:  # else the machine was busy when its speed was measured
        parts.append(f"utilisation {utilisation:.0%}")
    if seconds_left is not None:
        parts.append(f"{clock(seconds_left)} left")
    return " · ".join(parts)


def evaluation_line(figures: Figures) -> str:
    """The figures that say whether the networks learn, in one line: those of `_HELD_OUT`, or of a task all."""
    known = [f"{metric_label(key)} {figures[key]:.3f}" for key in _HELD_OUT if key in figures]
    if not known:
        named = {key.removeprefix("eval/"): value for key, value in figures.items() if key.startswith("eval/")}
        known = [f"{name} {value:.3f}" for name, value in named.items() if "/" not in name]
    return " · ".join([f"held-out at step {figures['step']:,}", *known])


def clock(seconds: float) -> str:
    """Seconds as a person says them: 42s, 3m 20s, 5h 07m, 2d 04h."""
    whole = max(0, round(seconds))
    for unit, name, below, below_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            return f"{whole // unit}{name} {whole % unit // below:02d}{below_name}"
    return f"{whole}s"


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what the library logs to a file, with the time, until the block ends."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger("electra")
    level = root.level
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
