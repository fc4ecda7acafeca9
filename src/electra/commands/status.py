"""`electra status`: the progress and health of runs."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Group, RenderableType
from rich.table import Column, Table

from electra.errors import CheckpointError
from electra.objectives.metric_labels import metric_label

if TYPE_CHECKING:
    from electra.pretraining.run_status import RunStatus

logger = logging.getLogger(__name__)

SHOWN = (
    "eval/unigram_auc", "eval/discriminator_loss", "eval/masked_lm_accuracy", "eval/perplexity",
    "eval/filled_accuracy", "eval/permutation_lm_accuracy",
)  # fmt: skip
"""Held-out metrics in the table."""


@dataclass(frozen=True)
class StatusConfig:
    """The command line of `electra status`."""

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)")
    ]
    """Folders of runs, or folders that contain runs at any depth."""
    json: bool = False
    """Print one JSON object per line instead of a table."""


def run(config: StatusConfig) -> Statuses:
    """Show whether runs are alive, their progress, time left, health and latest evaluation.

    Everything is read from the folder of a run, so this works from any machine that can read the folder.

    Examples:
        electra status RUN
        electra status experiments/ --json | jq 'select(.state == "dead") | .run'
    """
    if not config.runs:
        raise CheckpointError("electra status needs the folder of a run, or a folder that contains runs")
    from electra.pretraining.run_status import find_runs, read_run_status

    statuses: list[RunStatus] = []
    errors: list[str] = []
    for folder in config.runs:
        try:
            statuses += [read_run_status(run) for run in find_runs(folder)]
        except CheckpointError as error:  # the other runs are shown all the same
            errors.append(str(error))
    if errors and not statuses:
        raise CheckpointError("\n".join(errors))
    for message in errors:
        logger.error(message)
    return Statuses(tuple(statuses), config.json, exit_code=2 if errors else 0)


@dataclass(frozen=True)
class Statuses:
    """The runs as a table, with details if there is only one; or as JSON lines."""

    runs: tuple[RunStatus, ...]
    json: bool
    exit_code: int = 0

    def __rich__(self) -> RenderableType:
        if self.json:
            return "\n".join(json.dumps(vars(run)) for run in self.runs)
        from electra.durations import format_duration
        from electra.training.tracking import evaluation_line

        table = Table(Column("run", overflow="fold"), "state", "step", "left", "loss", "held out", "health")
        several = len(self.runs) > 1
        for run in self.runs:
            evaluation = [(metric_label(key), run.evaluation[key]) for key in SHOWN if key in run.evaluation]
            health = [name for name, _ in run.health] + (_reason(run).splitlines()[:1] if several else [])
            table.add_row(
                run.run, run.state, f"{run.step:,}" + (f"/{run.steps:,}" if run.steps else ""),
                "" if run.seconds_left is None else format_duration(run.seconds_left),
                "" if run.loss is None else f"{run.loss:.4f}",
                "\n".join(f"{label} {value:.3f}" for label, value in evaluation),
                "\n".join(health),
            )  # fmt: skip
        if several:
            return table
        (run,) = self.runs
        speed = "" if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f} tokens/s; "
        lines = [
            f"{speed}last report {format_duration(run.since)} ago; newest checkpoint {run.checkpoint or 'none'}"
        ]
        lines += [evaluation_line(run.evaluation)] if run.evaluation else []
        lines += [f"{name}: {remedy}" for name, remedy in run.health]
        return Group(table, *lines, *([_reason(run)] if run.message else []))


def _reason(run: RunStatus) -> str:
    """Why a run is in its state, if that is known."""
    return f"{run.state}: {run.message}" if run.message else ""
