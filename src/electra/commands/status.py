"""`electra status`: how runs are doing, seen from outside."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Group, RenderableType
from rich.table import Column, Table

from electra.config import load_config
from electra.errors import CheckpointError, ElectraError
from electra.json_files import read_json, understood
from electra.pretraining.config import PretrainConfig
from electra.reports.metrics import read_metrics
from electra.training.events import ENDS
from electra.training.run_folder import RunFolder
from electra.training.run_lock import owner
from electra.training.tracking import clock, evaluation_line

SILENT = 10.0
"""Times the usual pause between two reports: longer, and a process that lives is said to be silent."""
SHOWN = {
    "eval/unigram_auc": "AUC on unigram fakes",
    "eval/discriminator_loss": "discriminator loss",
    "eval/masked_lm_accuracy": "masked-LM accuracy",
    "eval/perplexity": "perplexity a token",
    "eval/permutation_lm_accuracy": "accuracy at the targets",
}
"""Held-out figures in the table."""
UNFINISHED = "trained, but the export is not written; the same command does that"


@dataclass(frozen=True)
class StatusConfig:
    """Which runs to look at."""

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)")
    ]
    """Folders of runs, or folders in which runs lie, however deep."""
    json: bool = False
    """Write one JSON object a line in place of a table."""


def run(config: StatusConfig) -> "Statuses":
    """Tell of each run whether it is alive, how far it is, how long it will take, and how well it learns.

    Nothing is asked of the run itself: all of it is read from its folder, from any machine that sees that.

    Examples:
        electra status RUN
        electra status experiments/ --json | jq 'select(.state == "dead") | .run'
    """
    if not config.runs:
        raise CheckpointError("electra status: no folder was named; give that of a run, or one with runs in it")
    folders = [found for folder in config.runs for found in _runs_in(folder)]
    return Statuses(tuple(status_of(folder) for folder in folders), config.json)


@dataclass(frozen=True)
class Status:
    """One run.

    Attributes:
        state: beginning (it has neither reported nor saved anything yet); running; silent (its process lives, and
            has reported nothing for long); finished; stopped (by a signal, after it had saved); failed (by an
            error); dead (none of these, and nobody is at it).
        step: the last one reported, or that of the newest checkpoint where that is further.
        message: why it failed, or what is left to do; None: nothing to say.
        seconds_left: None where it is not known.
        since: seconds since the last report.
        health: what the watch has found, and where and what to do.
        checkpoint: the newest one's name.
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

    def said(self) -> str:
        """Why it is in its state, where that is known."""
        return f"{self.state}: {self.message}" if self.message else ""

    def shown(self) -> list[tuple[str, str]]:
        """The held-out figures of the table that the run has."""
        return [(key, words) for key, words in SHOWN.items() if key in self.evaluation]


@dataclass(frozen=True)
class Statuses:
    """All of them, as a table or as JSON lines."""

    found: tuple[Status, ...]
    json: bool

    def __rich__(self) -> RenderableType:
        if self.json:
            return "\n".join(json.dumps(vars(one)) for one in self.found)
        table = Table(Column("run", overflow="fold"), "state", "step", "left", "loss", "held out", "health")
        several = len(self.found) > 1
        for one in self.found:
            health = [name for name, _ in one.health] + (one.said().splitlines()[:1] if several else [])
            table.add_row(
                one.run, one.state, f"{one.step:,}" + (f"/{one.steps:,}" if one.steps else ""),
                "" if one.seconds_left is None else clock(one.seconds_left),
                "" if one.loss is None else f"{one.loss:.4f}",
                "\n".join(f"{words} {one.evaluation[key]:.3f}" for key, words in one.shown()),
                "\n".join(health),
            )  # fmt: skip
        if several:
            return table
        (one,) = self.found
        speed = "" if one.tokens_per_second is None else f"{one.tokens_per_second:,.0f} tokens/s; "
        lines = [f"{speed}last report {clock(one.since)} ago; newest checkpoint {one.checkpoint or 'none'}"]
        lines += [evaluation_line(one.evaluation)] if one.evaluation else []
        lines += [f"{name}: {remedy}" for name, remedy in one.health]
        return Group(table, *lines, *([one.said()] if one.message else []))


def status_of(folder: Path) -> Status:
    """How a run is doing.

    Raises:
        CheckpointError: the folder has no metrics.jsonl.
    """
    with understood(folder):
        return _status_of(folder)


def _status_of(folder: Path) -> Status:
    run_folder, metrics = RunFolder(folder), read_metrics(folder)
    last = metrics.reports[-1] if metrics.reports else {}
    checkpoints = sorted(path.name for path in run_folder.checkpoints.glob("step-*"))
    step, steps, process = int(last.get("step", 0)), _steps(run_folder), owner(folder)
    if checkpoints and (process is None or not last):  # while it reports, one beyond is damaged
        number = checkpoints[-1].removeprefix("step-")
        step = max(step, int(number) if number.isdecimal() else 0)
    since = max(0.0, time.time() - run_folder.metrics.stat().st_mtime)
    usual = last["seconds"] / len(metrics.reports) if last else float("inf")
    if process is not None:
        state, message = "silent" if since > SILENT * usual + 60 else "running", None
        state = state if last or checkpoints else "beginning"
    elif end := _end(run_folder):
        state, message = end
    else:  # it was killed, or what it wrote last is lost
        trained = steps is not None and step >= steps
        state = "finished" if trained and run_folder.curves.is_file() else "dead"
        message = UNFINISHED if trained and state == "dead" else None
    speed = last.get("tokens_per_second")
    return Status(
        run=str(folder),
        state=state,
        message=message,
        step=step,
        steps=steps,
        seconds_left=(steps - step) * last["seconds"] / step
        if steps and last and step and state == "running"
        else None,
        since=since,
        loss=last.get("loss"),
        tokens_per_second=speed,
        evaluation=metrics.evaluations[-1] if metrics.evaluations else {},
        health=tuple(
            (str(one["health"]), f"at step {one['step']:,}; {one.get('remedy', '')}") for one in metrics.findings
        ),
        checkpoint=checkpoints[-1] if checkpoints else None,
        process=process,
    )


def _runs_in(folder: Path) -> list[Path]:
    """The folder, if it is that of a run; else those of runs in it.

    Raises:
        CheckpointError: there are none.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder; give that of a run, or one with runs in it")
    if (folder / "metrics.jsonl").is_file():
        return [folder]
    found = sorted(path.parent for path in folder.rglob("metrics.jsonl") if _steps(RunFolder(path.parent)))
    if not found:
        raise CheckpointError(f"{folder}: no run in it; `electra pretrain ... --out` names the folder of one")
    return found


def _end(run_folder: RunFolder) -> tuple[str, str | None] | None:
    """How it ended, and why it failed if it did; None where it had no time to say so."""
    try:
        said = read_json(run_folder.end)
    except CheckpointError:
        return None
    if said.get("how") not in ENDS:
        return None
    return said["how"], str(said.get("message", "")) or None if said["how"] == "failed" else None


def _steps(run_folder: RunFolder) -> int | None:
    try:
        return load_config(PretrainConfig, run_folder.config).train.steps
    except ElectraError:
        return None
