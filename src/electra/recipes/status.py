"""`electra status`: how runs are doing, seen from outside."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Group, RenderableType
from rich.table import Column, Table

from electra.config import load_config
from electra.errors import CheckpointError, ElectraError
from electra.json_files import understood
from electra.recipes.pretrain_config import PretrainConfig
from electra.reports.metrics import read_metrics
from electra.training.claim import claimant
from electra.training.run_folder import RunFolder
from electra.training.tracking import clock, evaluation_line

SILENT = 10.0
"""Times the usual pause between two reports: longer, and a process that lives is said to be silent."""
SHOWN = {"eval/unigram_auc": "AUC", "eval/discriminator_loss": "loss", "eval/masked_lm_accuracy": "accuracy"}
"""Held-out figures in the table; AUC is that on unigram fakes, accuracy that of the generator."""


@dataclass(frozen=True)
class StatusConfig:
    """Which runs to look at."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
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
        state: beginning (it has reported nothing yet); running; silent (its process lives, and has reported
            nothing for long); finished; stopped (by a signal, after it had saved); failed (by an error); dead
            (none of these, and nobody is at it).
        seconds_left: None where it is not known.
        since: seconds since the last report.
        health: what the watch has found, and where and what to do.
        checkpoint: the newest one's name.
    """

    run: str
    state: str
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
        for one in self.found:
            table.add_row(
                one.run, one.state, f"{one.step:,}" + (f"/{one.steps:,}" if one.steps else ""),
                "" if one.seconds_left is None else clock(one.seconds_left),
                "" if one.loss is None else f"{one.loss:.4f}",
                "\n".join(f"{words} {one.evaluation[key]:.3f}" for key, words in one.shown()),
                "\n".join(name for name, _ in one.health),
            )  # fmt: skip
        if len(self.found) > 1:
            return table
        (one,) = self.found
        speed = "" if one.tokens_per_second is None else f"{one.tokens_per_second:,.0f} tokens/s; "
        lines = [f"{speed}last report {clock(one.since)} ago; newest checkpoint {one.checkpoint or 'none'}"]
        lines += [evaluation_line(one.evaluation)] if one.evaluation else []
        return Group(table, *lines, *(f"{name}: {remedy}" for name, remedy in one.health))


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
    step, steps = int(last.get("step", 0)), _steps(run_folder)
    process = claimant(folder)
    since = max(0.0, time.time() - run_folder.metrics.stat().st_mtime)
    usual = last["seconds"] / len(metrics.reports) if last else float("inf")
    if process is not None:
        state = "beginning" if not last else "silent" if since > SILENT * usual + 60 else "running"
    else:
        reached = steps is not None and step >= steps and run_folder.export.is_dir()
        state = _end(run_folder) or ("finished" if reached else "dead")
    speed = last.get("tokens_per_second")
    checkpoints = sorted(path.name for path in run_folder.checkpoints.glob("step-*"))
    return Status(
        run=str(folder),
        state=state,
        step=step,
        steps=steps,
        seconds_left=(steps - step) * last["seconds"] / step if steps and step and state == "running" else None,
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


def _end(run_folder: RunFolder) -> str:
    """How it ended, where it had time to say so."""
    try:
        return str(json.loads(run_folder.end.read_text(encoding="utf-8"))["how"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _steps(run_folder: RunFolder) -> int | None:
    try:
        return load_config(PretrainConfig, run_folder.config).train.steps
    except ElectraError:
        return None
