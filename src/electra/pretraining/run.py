"""Pre-train: from token shards to a trained, exported network."""

import contextlib
import logging
import os
import shutil
import signal
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import to_toml
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError
from electra.json_files import read_json, write_json
from electra.objectives.metric_labels import metric_label
from electra.pretraining.build import RunParts, build, evaluation, open_data
from electra.pretraining.config import PretrainConfig
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
from electra.training.run_context import RunContext, TrainerOptions
from electra.training.run_folder import RunFolder, environment, open_run
from electra.training.run_lock import acquire, owner, wait_for_heartbeat
from electra.training.tracking import log_file
from electra.training.trainer import Outcome, Trainer

logger = logging.getLogger(__name__)


def pretrain(config: PretrainConfig, *, fresh: bool = False) -> "PretrainResult":
    """Run a config to its end, or resume it; `fresh` starts a new run next to the one that is there.

    Raises:
        ElectraError: the config, the data or the run's folder cannot be used.
    """
    if fresh and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise ConfigError("--fresh: each restart by torchrun would start a new run; give another --out instead")
    with (
        init_distributed(minutes=config.train.timeout_minutes),
        deterministic_algorithms(config.train.deterministic),
    ):
        data, out = open_data(config)
        resumed = broadcast_object(not fresh and any((out / "checkpoints").glob("step-*")))
        resolved = resolve(config, data, resumed=resumed)
        with _open_session(resolved, out, fresh=fresh) as session:
            parts = session.build()
            trainer = _build_trainer(session, parts)
            outcome = trainer.run()
            return _finish(session, outcome)


@dataclass(frozen=True)
class _Session:
    """A run's folder, held by this process group: locked, with its log and its event hook open."""

    resolved: Resolved
    run_folder: RunFolder
    on_event: EventHook

    def build(self) -> RunParts:
        """The parts of the run; a run that is resumed takes its weights from the checkpoint."""
        resolved = self.resolved
        assert resolved.data is not None
        return build(resolved.config, resolved.data, None if resolved.resumed else resolved.warm_start)


@contextlib.contextmanager
def _open_session(resolved: Resolved, out: Path, *, fresh: bool) -> Iterator[_Session]:
    """Lock the run's folder and resolve the config with what the run has settled already.

    Raises:
        CheckpointError: another process runs there, or the run there has other settings.
    """
    path = broadcast_object(str(open_run(out, fresh=fresh).path if is_main_process() else out))
    run_folder, config = RunFolder(Path(path)), resolved.config
    with contextlib.ExitStack() as stack:
        stack.enter_context(_lock(run_folder.path))
        resolved = resolve_for_run(resolved, run_folder)
        # Only now: a command that is refused leaves a run as it was.
        stack.enter_context(log_file(run_folder.log_of_rank(rank())))
        on_event = stack.enter_context(open_event_hook(run_folder, config.tracking.on_event))
        stack.enter_context(name_lost_peers(minutes=config.train.timeout_minutes))
        if is_local_main_process():
            assert resolved.data is not None
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
        mine = False
        if is_main_process():
            wait_for_heartbeat(folder)
            mine = stack.enter_context(acquire(folder))
        if not broadcast_object(mine):
            who = owner(folder) or {}
            name = (
                f"process {who['process']} on {who['host']}" if who.keys() >= {"process", "host"} else "a process"
            )
            raise CheckpointError(
                f"{folder}: {name} is training this run; wait for its end, or give another --out"
            )
        yield


def _build_trainer(session: _Session, parts: RunParts) -> Trainer:
    """The trainer of a run; the settings that are still open are settled here and written to the run's folder."""
    data, run_folder, precision = session.resolved.data, session.run_folder, parts.precision
    assert data is not None
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
    )
    sections = TrainerConfig(config.train, config.optimizer, config.evaluation, config.checkpoint, config.tracking)
    trainer = Trainer(parts.objective, sections, context)
    session.on_event.current_step = lambda: trainer.progress.step
    return trainer


def _trainer_options(config: PretrainConfig) -> TrainerOptions:
    """Each stage of an objective has a warm-up and a decay of its own."""

    def stage_of(step: int, steps: int | None) -> tuple[int, int | None]:
        if steps is None:  # still measured; objectives in stages refuse a length in minutes
            return step, steps
        starts = config.objective.stage_starts(steps)
        number = bisect_right(starts, step) - 1
        end = starts[number + 1] if number + 1 < len(starts) else steps
        return step - starts[number], end - starts[number]

    return TrainerOptions(stage_of=stage_of)


def _finish(session: _Session, outcome: Outcome) -> "PretrainResult":
    """Export a run that reached its end, and report how it ended."""
    run_folder, on_event = session.run_folder, session.on_event
    finished = outcome.stopped_by is None and is_main_process()
    exported = export_run(run_folder.path) if finished else None
    if finished:  # the index is not needed any more
        shutil.rmtree(run_folder.index, ignore_errors=True)
    picture = plot_curves(run_folder.path, run_folder.curves) if finished else None
    if outcome.stopped_by is None:
        on_event("finished", f"after {outcome.step:,} steps", outcome.step)
    else:
        on_event("stopped", f"by {signal.Signals(outcome.stopped_by).name}", outcome.step)
    return PretrainResult(run_folder.path, outcome, exported, picture)


def _write_environment(run_folder: RunFolder, data: TokenData, precision: Precision) -> None:
    """Record where the run goes on; the data's own account is kept for the model card."""
    now, reason = environment(), precision.reason
    if before := read_json(run_folder.environment, optional=True):
        reason = before.get("precision", reason)  # why it was chosen; now it is as it was
        for name in ("threads", "processor", "accelerator", "torch"):
            if before.get(name) != now.get(name):
                logger.warning(
                    "%s is %s here and was %s: the result will not be the same bit for bit",
                    name, now.get(name), before.get(name),
                )  # fmt: skip
    account = {name: data.manifest[name] for name in ("fingerprint", "tokenizer", "statistics", "made")}
    facts = {**now, "precision": reason, "data": account}
    write_json(run_folder.environment, facts)


@dataclass(frozen=True)
class PretrainResult:
    """How a run ended, and what came out of it (no exports and no picture where it was stopped)."""

    run: Path
    outcome: Outcome
    exported: ExportResult | None
    picture: Path | None

    @property
    def exit_code(self) -> int:
        """0, or 128 + the signal's number, as shells have it."""
        return 128 + self.outcome.stopped_by if self.outcome.stopped_by else 0

    def __rich__(self) -> RenderableType:
        seen, step = self.outcome.evaluation["step"], self.outcome.step
        title = f"step {seen:,}" if seen == step else f"evaluated at step {seen:,}; stopped at step {step:,}"
        table = Table("held-out metric", "value", title=title, title_justify="left")
        for name, value in self.outcome.evaluation.items():
            if name.startswith("eval/"):
                table.add_row(metric_label(name), f"{value:.4f}")
        lines = [f"run: {self.run}", *([str(self.exported)] if self.exported else [])]
        return Group(table, *lines, *([f"curves: {self.picture}"] if self.picture else []))
