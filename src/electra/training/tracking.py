"""What a run writes during training: metrics.jsonl, TensorBoard, a tracker, log.txt, and a console line per
report."""

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from electra.durable import flush
from electra.durations import format_duration
from electra.objectives.metric_labels import loss_label, metric_label
from electra.training.config import TrackingConfig
from electra.training.distributed import is_main_process
from electra.training.trackers import BackgroundTracker

logger = logging.getLogger(__name__)

Metrics = Mapping[str, Any]

_HELD_OUT = (
    "eval/discriminator_auc", "eval/unigram_auc", "eval/masked_lm_accuracy", "eval/masked_lm_loss",
    "eval/filled_accuracy",
    "eval/perplexity", "eval/language_model_accuracy", "eval/permutation_lm_accuracy",
    "eval/permutation_lm_loss", "eval/discriminator_loss", "eval/majority_loss",
)  # fmt: skip
"""Held-out metrics in the console line of an evaluation."""


class MetricsFile:
    """metrics.jsonl, one JSON object per line. Lines after the checkpoint are cut off when a run is resumed."""

    def __init__(self, path: Path, *, resume_at: int = 0) -> None:
        self.path = path
        path.touch()
        if (size := path.stat().st_size) < resume_at:
            logger.warning("%s: expected %s bytes, found %s; earlier metrics are lost", path, resume_at, size)
        with path.open("r+b") as stream:
            stream.truncate(min(resume_at, size))
        self._stream = path.open("a", encoding="utf-8")

    def write(self, metrics: Metrics) -> None:
        """Append one object. Numbers that are not finite become null, because JSON cannot represent them."""
        self._stream.write(json.dumps({key: _json(value) for key, value in metrics.items()}) + "\n")
        self._stream.flush()

    def sync(self) -> int:
        """Flush everything to the disk; return the size of the file, which checkpoints store."""
        flush(self.path)
        return self.path.stat().st_size

    def close(self) -> None:
        self._stream.close()


class NullMetricsFile:
    """Replaces metrics.jsonl in processes that are not the main process."""

    def sync(self) -> int:
        return 0

    def write(self, metrics: Metrics) -> None:
        pass

    def close(self) -> None:
        pass


class TensorBoard:
    """The same metrics as TensorBoard scalars, by step."""

    def __init__(self, folder: Path, *, resume_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a second to import

        self._writer = SummaryWriter(str(folder), purge_step=resume_step + 1 if resume_step else None)

    def write(self, metrics: Metrics) -> None:
        for name, value in scalars(metrics).items():
            self._writer.add_scalar(name, value, metrics["step"])

    def close(self) -> None:
        self._writer.close()


def scalars(metrics: Metrics) -> dict[str, float]:
    """The numbers of a report or an evaluation by their names in TensorBoard and trackers, without the step."""
    return {
        key if "/" in key else f"train/{key}": value
        for key, value in metrics.items()
        if key != "step" and isinstance(value, int | float)
    }


class Tracking:
    """Writes metrics to metrics.jsonl, TensorBoard and a tracker; only the main process writes.

    Args:
        has_generator: whether the objective has a generator.
    """

    def __init__(
        self, run: Path, config: TrackingConfig, *, resume_at: int, resume_step: int, has_generator: bool = True
    ) -> None:
        self.metrics = (
            MetricsFile(run / "metrics.jsonl", resume_at=resume_at) if is_main_process() else NullMetricsFile()
        )
        boards = config.tensorboard and is_main_process()
        self._board = TensorBoard(run / "tensorboard", resume_step=resume_step) if boards else None
        tracked = config.tracker != "none" and is_main_process()
        self._tracker = BackgroundTracker(config.tracker, run) if tracked else None
        self._has_generator = has_generator

    def report(
        self, metrics: Metrics, *, steps: int | None, utilization: float, seconds_left: float | None
    ) -> None:
        """Write a training report to all places, and to the console as a line or progress bar.

        Args:
            steps: the length of the run; None while it is being measured.
        """
        self.write_metrics(metrics)
        line = report_line(
            metrics, steps=steps, utilization=utilization, seconds_left=seconds_left,
            has_generator=self._has_generator,
        )  # fmt: skip
        logger.info(line, extra={"progress": (metrics["step"], steps)})

    def write_metrics(self, metrics: Metrics) -> None:
        """Write metrics to all places except the console."""
        self.metrics.write(metrics)
        if self._board:
            self._board.write(metrics)
        if self._tracker:
            self._tracker.log(scalars(metrics), metrics["step"])

    def close(self) -> None:
        self.metrics.close()
        if self._board:
            self._board.close()
        if self._tracker:
            self._tracker.close()


def report_line(
    metrics: Metrics,
    *,
    steps: int | None,
    utilization: float,
    seconds_left: float | None,
    has_generator: bool,
) -> str:
    """The console line of a report: step, losses, learning rate, gradient norm, speed, utilization, time left.

    Args:
        has_generator: whether the objective has a generator.
    """
    parts = [f"step {metrics['step']:,}" + (f"/{steps:,}" if steps else ""), f"loss {metrics['loss']:.4f}"]
    parts += [
        f"{loss_label(name, has_generator=has_generator).removesuffix(' loss')} {metrics[name]:.4f}"
        for name in metrics
        if name.endswith("_loss")
    ]
    parts += [
        f"lr {metrics['learning_rate']:.2e}",
        f"gradient {metrics['gradient_norm']:.2f}",
        f"{metrics['tokens_per_second']:,.0f} tokens/s",
    ]
    if utilization <= 1:  # a larger value is wrong: the machine was busy when its speed was measured
        parts.append(f"utilization {utilization:.0%}")
    if seconds_left is not None:
        parts.append(f"{format_duration(seconds_left)} left")
    return " · ".join(parts)


def evaluation_line(metrics: Metrics) -> str:
    """The console line of an evaluation: the metrics in `_HELD_OUT`, or all metrics of a fine-tuning task."""
    keys = [key for key in _HELD_OUT if key in metrics]
    keys = keys or [key for key in metrics if key.startswith("eval/") and key.count("/") == 1]
    values = [f"{metric_label(key)} {metrics[key]:.3f}" for key in keys]
    return " · ".join([f"held-out at step {metrics['step']:,}", *values])


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append the library's log messages to a file, with the time, until the block ends.

    What is shown elsewhere stays as it is, by the caller's level and handlers; without handlers, warnings on
    stderr.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("electra")
    handlers, level, propagate = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [handler, _ForwardHandler(logger)], False
    logger.setLevel(min(level, logging.INFO) if level else logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
        handler.close()


class _ForwardHandler(logging.Handler):
    """Gives records to the handlers that a logger gives them to, by its present level and handlers."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger.getEffectiveLevel())
        self._before = logging.Logger(logger.name)
        self._before.handlers, self._before.parent = logger.handlers, logger.parent
        self._before.propagate = logger.propagate

    def emit(self, record: logging.LogRecord) -> None:
        self._before.callHandlers(record)
