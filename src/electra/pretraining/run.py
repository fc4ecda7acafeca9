"""Pre-training, from token shards to exported networks."""

import contextlib
import logging
import os
import shutil
import signal
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import to_toml
from electra.data.shards import TokenData
from electra.errors import ConfigError
from electra.folder_lock import acquire, locked_error, wait_for_heartbeat
from electra.json_files import read_json, write_json
from electra.objectives.metric_labels import metric_label
from electra.pretraining.build import RunParts, build, evaluation, open_data
from electra.pretraining.config import PretrainConfig
from electra.pretraining.encoder_change_check import check_encoder_changes
from electra.pretraining.export import ExportResult, export_run
from electra.pretraining.resolve import Resolved, resolve, resolve_for_run
from electra.reports.curves import plot_curves
from electra.training.config import TrainerConfig
from electra.training.deterministic import deterministic_algorithms
from electra.training.distributed import (
    broadcast_object,
    init_distributed,
    is_local_main_process,
    is_main_process,
    name_lost_peers,
    rank,
)
from electra.training.events import EventHook, open_event_hook
from electra.training.precision import Precision
from electra.training.progress_bar import OnReport, progress_bar, shows_bar
from electra.training.run_context import RunContext, TrainerOptions
from electra.training.run_folder import RunFolder, environment, open_run
from electra.training.time_budget import Deadline
from electra.training.tracking import log_file
from electra.training.trainer import Outcome, Trainer

logger = logging.getLogger(__name__)


def pretrain(
    config: PretrainConfig,
    *,
    fresh: bool = False,
    progress: bool | None = None,
    on_report: OnReport | None = None,
    started: float | None = None,
) -> "PretrainResult":
    """Start or resume a run.

    Args:
        fresh: start a new run next to an existing one.
        progress: show a progress bar on stderr, the one thing that is printed. None: in a terminal or a notebook,
            unless `on_report` is given or the log shows the progress (level INFO, as on the command line).
        on_report: called with the metrics of each report and each evaluation, as metrics.jsonl has them, and with
            the length of the run in steps (None while it is being measured), for a plot and the like. Of several
            processes only the main one calls it.
        started: `time.monotonic()` at the start of the command, from which `train.deadline` counts; None: now.

    Raises:
        ElectraError: the config, the data or the run's folder cannot be used.
    """
    if not isinstance(config, PretrainConfig):
        raise ConfigError(
            f"pretrain needs a config, got {config!r}; make one: electra.load_config(PRESET, SETTINGS)"
        )
    deadline = Deadline(config.train.deadline, started=started)
    if fresh and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise ConfigError("--fresh: each restart by torchrun would start a new run; give another --out instead")
    shown = shows_bar(progress) if on_report is None else bool(progress)
    with (
        init_distributed(minutes=config.train.timeout_minutes),
        deterministic_algorithms(config.train.deterministic),
        progress_bar("pretrain", shown=shown, on_report=on_report or (lambda *_: None)) as report,
    ):
        data, out = open_data(config)
        resumed = broadcast_object(not fresh and any((out / "checkpoints").glob("step-*")))
        resolved = resolve(config, data, resumed=resumed)
        with _open_session(resolved, out, fresh=fresh) as session:
            parts = session.build()
            trainer = _build_trainer(session, parts, deadline, report)
            outcome = trainer.run()
            return _finish(session, outcome, parts.device)


@dataclass(frozen=True)
class _Session:
    """The locked folder of a run, with open log and event hook."""

    resolved: Resolved
    run_folder: RunFolder
    on_event: EventHook

    def build(self) -> RunParts:
        """Build the parts of the run; a resumed run gets its weights from the checkpoint later."""
        resolved = self.resolved
        return build(resolved.config, resolved.data, None if resolved.resumed else resolved.warm_start)


@contextlib.contextmanager
def _open_session(resolved: Resolved, out: Path, *, fresh: bool) -> Iterator[_Session]:
    """Lock the run's folder, and resolve the config with the settings of an existing run.

    Raises:
        CheckpointError: another process works on the run, or the run has other settings.
    """
    path = broadcast_object(str(open_run(out, fresh=fresh).path if is_main_process() else out))
    run_folder, config = RunFolder(Path(path)), resolved.config
    with contextlib.ExitStack() as stack:
        stack.enter_context(_lock(run_folder.path))
        resolved = resolve_for_run(resolved, run_folder)
        # Only after the checks, so that a refused command does not change the folder.
        stack.enter_context(log_file(run_folder.log_of_rank(rank())))
        on_event = stack.enter_context(open_event_hook(run_folder, config.tracking.on_event))
        stack.enter_context(name_lost_peers(minutes=config.train.timeout_minutes))
        if is_local_main_process():
            run_folder.verified.parent.mkdir(exist_ok=True)
            write_json(run_folder.verified, resolved.data.stamps, indent=None)
        yield _Session(resolved, run_folder, on_event)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder.

    Raises:
        CheckpointError: another process holds it.
    """
    with contextlib.ExitStack() as stack:
        acquired = False
        if is_main_process():
            wait_for_heartbeat(folder)
            acquired = stack.enter_context(acquire(folder))
        if not broadcast_object(acquired):
            raise locked_error(folder, work="training this run")
        yield


def _build_trainer(session: _Session, parts: RunParts, deadline: Deadline, on_report: OnReport) -> Trainer:
    """Build the trainer of a run."""
    data, run_folder, precision = session.resolved.data, session.run_folder, parts.precision
    config = session.resolved.config
    config = replace(config, train=replace(config.train, precision=precision.name))
    if is_main_process():
        _write_environment(run_folder, data, precision)
    context = RunContext(
        batches=parts.batches,
        evaluate=evaluation(config, data, parts.objective, precision, parts.device),
        run_folder=run_folder,
        config_text=lambda steps: to_toml(replace(config, train=replace(config.train, steps=steps))),
        precision=precision,
        device=parts.device,
        checkpoint_texts={"tokenizer.json": data.tokenizer_path.read_text(encoding="utf-8")},
        options=_trainer_options(config),
        on_event=session.on_event,
        on_report=on_report if is_main_process() else lambda *_: None,
        deadline=deadline,
    )
    sections = TrainerConfig(config.train, config.optimizer, config.evaluation, config.checkpoint, config.tracking)
    trainer = Trainer(parts.objective, sections, context)
    session.on_event.current_step = lambda: trainer.progress.step
    return trainer


def _trainer_options(config: PretrainConfig) -> TrainerOptions:
    """The trainer's options: each stage of an objective has its own warm-up and decay of the learning rate."""

    def stage_of(step: int, steps: int | None) -> tuple[int, int | None]:
        if steps is None:  # not known yet; objectives with stages do not accept a length in minutes
            return step, steps
        starts = config.objective.stage_starts(steps)
        number = bisect_right(starts, step) - 1
        end = starts[number + 1] if number + 1 < len(starts) else steps
        return step - starts[number], end - starts[number]

    return TrainerOptions(stage_of=stage_of, has_generator=config.objective.has_generator)


def _finish(session: _Session, outcome: Outcome, device: torch.device) -> "PretrainResult":
    """Export a finished run, and report how the run ended."""
    run_folder, on_event = session.run_folder, session.on_event
    finished = outcome.stopped_by is None and is_main_process()
    exported = export_run(run_folder.path, wait=True) if finished else None
    if exported is not None:
        check_encoder_changes(session.resolved.config, session.resolved.data, exported, device)
    if finished:  # the index is no longer needed
        shutil.rmtree(run_folder.index, ignore_errors=True)
    picture = plot_curves(run_folder.path, run_folder.curves) if finished else None
    if outcome.stopped_by is None:
        on_event("finished", f"after {outcome.step:,} steps", outcome.step)
    else:
        on_event("stopped", f"by {signal.Signals(outcome.stopped_by).name}", outcome.step)
    return PretrainResult(run_folder.path, outcome, exported, picture)


def _write_environment(run_folder: RunFolder, data: TokenData, precision: Precision) -> None:
    """Write environment.json: versions, hardware, and a summary of the data for the model card."""
    now, reason = environment(), precision.reason
    if before := read_json(run_folder.environment, optional=True):
        reason = before.get("precision", reason)  # a resumed run keeps its precision, and the reason for it
        for name in ("threads", "processor", "accelerator", "torch"):
            if before.get(name) != now.get(name):
                logger.warning(
                    "%s is now %s and was %s: the result will not be bit-identical to an uninterrupted run",
                    name, now.get(name), before.get(name),
                )  # fmt: skip
    data_summary = {name: data.manifest[name] for name in ("fingerprint", "tokenizer", "statistics", "made")}
    write_json(run_folder.environment, {**now, "precision": reason, "data": data_summary})


@dataclass(frozen=True)
class PretrainResult:
    """The result of a run; exports and picture are None if the run was stopped."""

    run: Path
    outcome: Outcome
    exported: ExportResult | None
    picture: Path | None

    @property
    def exit_code(self) -> int:
        """0, or 128 + the number of the signal, as in shells."""
        return 128 + self.outcome.stopped_by if self.outcome.stopped_by else 0

    def __rich__(self) -> RenderableType:
        evaluated, step = self.outcome.evaluation["step"], self.outcome.step
        title = f"evaluated at step {evaluated:,}; stopped at step {step:,}"
        title = f"step {step:,}" if evaluated == step else title
        table = Table("held-out metric", "value", title=title, title_justify="left")
        for name, value in self.outcome.evaluation.items():
            if name.startswith("eval/"):
                table.add_row(metric_label(name), f"{value:.4f}")
        stopped = f" (stopped; to resume it, give the same command with --out {self.run}, without --fresh)"
        lines = [
            f"run: {self.run}{stopped if self.outcome.stopped_by else ''}",
            *([str(self.exported)] if self.exported else []),
        ]
        return Group(table, *lines, *([f"curves: {self.picture}"] if self.picture else []))
