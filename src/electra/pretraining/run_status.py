"""The status of a run, read from its folder. The run itself is not contacted, and may be on another machine."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.config import read_toml
from electra.errors import CheckpointError, ElectraError
from electra.folder_lock import owner
from electra.json_files import raise_if_damaged, read_json
from electra.objectives.health import WARMING_UP
from electra.reports.metrics import Metrics, read_metrics
from electra.training.events import END_EVENTS
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

SILENT_REPORTS = 10.0
"""A live process without a report for this many times the usual interval is called silent."""
KILLED = "the same command resumes it"
NOT_EXPORTED = "trained, but the export is not written; the same command writes it"


@dataclass(frozen=True)
class RunStatus:
    """One run.

    Attributes:
        state: beginning (neither a report nor a checkpoint yet); running; silent (the process lives, but has not
            reported for long); finished; stopped (by a signal, after it saved a checkpoint); failed (by an
            error); dead (none of these, and no process works on it).
        step: the last reported step, or that of the newest checkpoint if it is later.
        message: why the run failed, or what is left to do; None: no message.
        seconds_left: None if unknown.
        since: seconds since the last report.
        health: findings of the health checks, each with its step and remedy.
        checkpoint: the name of the newest checkpoint.
    """

    run: str
    state: str
    message: str | None
    step: int
    steps: int | None
    seconds_left: float | None
    since: float
    loss: float | None
    tokens_per_second: float | None
    evaluation: dict[str, Any]
    health: tuple[tuple[str, str], ...]
    checkpoint: str | None
    process: dict[str, Any] | None


def find_runs(folder: Path) -> list[Path]:
    """The folder itself if it is a run; else all runs below it.

    Raises:
        CheckpointError: there is no run.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; give the folder of a run, or one that contains runs")
    if (folder / "metrics.jsonl").is_file():
        return [folder]
    runs = sorted(path.parent for path in folder.rglob("metrics.jsonl") if _steps(RunFolder(path.parent)))
    if not runs and (folder / "results.json").is_file():
        raise CheckpointError(
            f"{folder} is a fine-tuning, and electra status is for runs of electra pretrain; its results are in "
            f"{folder / 'results.json'}"
        )
    if not runs:
        raise CheckpointError(f"{folder} contains no run; `electra pretrain ... --out` names the folder of one")
    return runs


def read_run_status(folder: Path) -> RunStatus:
    """The status of the run in a folder.

    Raises:
        CheckpointError: the folder has no metrics.jsonl.
    """
    with raise_if_damaged(folder):
        return _read_run_status(folder)


def _read_run_status(folder: Path) -> RunStatus:
    run_folder, metrics = RunFolder(folder), read_metrics(folder)
    last = metrics.reports[-1] if metrics.reports else {}
    checkpoints = sorted(path.name for path in run_folder.checkpoints.glob("step-*"))
    step, steps, process = int(last.get("step", 0)), _steps(run_folder), owner(folder)
    if checkpoints and (process is None or not last):  # a live run that reports may be replacing a damaged one
        number = checkpoints[-1].removeprefix("step-")
        step = max(step, int(number) if number.isdecimal() else 0)
    since = max(0.0, time.time() - run_folder.metrics.stat().st_mtime)
    if process is None and run_folder.metrics.stat().st_size and metrics == Metrics([], [], []):
        logger.warning("%s: no line of it has metrics; the file is damaged", run_folder.metrics)
    usual = last["seconds"] / len(metrics.reports) if last else float("inf")
    if process is not None:
        state, message = "silent" if since > SILENT_REPORTS * usual + 60 else "running", None
        state = state if last or checkpoints else "beginning"
    elif end := _end(run_folder):
        state, message = end
    else:  # the process was killed, or its last writes are lost
        trained = steps is not None and step >= steps
        state = "finished" if trained and run_folder.curves.is_file() else "dead"
        message = (NOT_EXPORTED if trained else KILLED) if state == "dead" else None
    seconds_left = None
    if steps and last and step and state == "running":
        seconds_left = (steps - step) * last["seconds"] / step
    return RunStatus(
        run=str(folder),
        state=state,
        message=message,
        step=step,
        steps=steps,
        seconds_left=seconds_left,
        since=since,
        loss=last.get("loss"),
        tokens_per_second=last.get("tokens_per_second"),
        evaluation=metrics.evaluations[-1] if metrics.evaluations else {},
        health=tuple(
            (str(one["health"]), f"at step {one['step']:,}; {one.get('remedy', '')}")
            for one in metrics.findings
            if one["health"] != WARMING_UP or process is not None  # a forecast, of no use when the run has ended
        ),
        checkpoint=checkpoints[-1] if checkpoints else None,
        process=process,
    )


def _end(run_folder: RunFolder) -> tuple[str, str | None] | None:
    """How the run ended, and why if it failed; None if it was killed before it could write that."""
    try:
        end = read_json(run_folder.end)
    except CheckpointError:
        return None
    if end.get("how") not in END_EVENTS:
        return None
    return end["how"], str(end.get("message", "")) or None if end["how"] == "failed" else None


def _steps(run_folder: RunFolder) -> int | None:
    """The length of a pre-training run; None if it is not known yet, or the folder is not such a run.

    The table is read, not the config, because the plugins of the run may not be loaded.
    """
    try:
        train = read_toml(run_folder.config).get("train", {})
    except ElectraError:
        return None
    steps = train.get("steps") if isinstance(train, dict) else None
    return steps if isinstance(steps, int) else None
