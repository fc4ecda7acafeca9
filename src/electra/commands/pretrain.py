"""`electra pretrain`: from token shards to a trained, exported discriminator."""

import contextlib
import json
import logging
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra import durable
from electra.commands.export import ExportResult, export_run
from electra.config import OBJECTIVES, load_config, overrides_of, to_toml
from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError, ConfigError
from electra.json_files import read_json
from electra.objectives.two_stage import change_of
from electra.pretraining.build import assembled, check_data, evaluation, fitted, identity, opened
from electra.pretraining.config import (
    SETTLED,
    PretrainConfig,
    build_objective,
    with_vocabulary,
)
from electra.pretraining.profile import Profile, profiled
from electra.pretraining.warm_start import (
    Start,
    check_vocabulary,
    load_start,
    refuse_fixed,
    refuse_idle,
    with_shapes,
    with_shapes_of,
)
from electra.reports.curves import plot_curves
from electra.training.checkpoint import Checkpoints
from electra.training.checkpoint_io import check_newest
from electra.training.cost_estimate import CostEstimate, estimate_cost
from electra.training.deterministic import deterministic_algorithms
from electra.training.distributed import (
    broadcast_object,
    init_distributed,
    is_local_main_process,
    is_main_process,
    name_lost_peers,
    rank,
)
from electra.training.events import events
from electra.training.precision import Precision
from electra.training.run_folder import RunFolder, agree, check_free, environment, open_run, stored_config
from electra.training.run_lock import acquire, heartbeat, owner
from electra.training.tracking import log_file
from electra.training.trainer import Outcome, Trainer, TrainerOptions

logger = logging.getLogger(__name__)

IGNORED = ("data", "out", "train.compile", "train.timeout_minutes", "train.sharding", "tracking.on_event")
"""Settings that may differ when a run is resumed: they do not change its result."""


@dataclass(frozen=True)
class PretrainCommand:
    """The command line of `electra pretrain`."""

    preset: tyro.conf.Positional[str]
    """A preset (quickstart, electra-tiny, -small, -base, -large, ...-plus-plus, and bert-, roberta-, albert-, txl-
    and xlnet- in their sizes) or a TOML file."""
    data: Path | None = None
    """The folder that `electra prepare` made."""
    out: Path | None = None
    """The run's folder. What is there is resumed."""
    fresh: bool = False
    """Start another run beside OUT (OUT-2, OUT-3, …) instead of resuming the one that is there."""
    dry_run: bool = False
    """Print the resolved config, parameters, FLOPs, memory and time, and stop."""
    profile: int | None = None
    """Profile so many steps from the start: name the dearest operations, write a trace to OUT/profile, and stop.
    Nothing else is kept."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Any setting of the config, as `--section.name VALUE`."""


def run(command: PretrainCommand) -> "PretrainResult | DryRun | Profile":
    """Pre-train a generator and a discriminator, or go on with a run that was stopped.

    Every setting of the preset can be changed on the command line: --section.name VALUE (all of them are in
    docs/configuration.md; --dry-run prints those of a run). The same command resumes a run that was stopped or
    killed, and its weights end the same, bit for bit.

    Examples:
        electra pretrain electra-tiny --data DATA --out RUN --train.minutes 5
        electra pretrain electra-small --data DATA --out RUN --train.steps 100000 --optimizer.learning_rate 3e-4
        electra pretrain electra-small --data DATA --out RUN --init.discriminator FOLDER --train.steps 20000
        electra pretrain mine.toml --data DATA --out RUN, with another objective laid over a size in mine.toml:
            extends = ["electra-small", "objectives/electra-15"]
    """
    overrides = list(command.overrides)
    paths = {"data": command.data, "out": command.out}
    overrides += overrides_of({name: path for name, path in paths.items() if path is not None})
    given = {override.partition("=")[0] for override in overrides}
    if command.profile is not None and (command.profile < 1 or command.dry_run or command.fresh):
        raise ConfigError("--profile: give a number of steps, at least 1, without --dry-run and --fresh")
    if {"train.steps", "train.minutes"} <= given:
        raise ConfigError("train.steps and train.minutes both say how long; give one of them")
    if command.preset.startswith(OBJECTIVES):
        raise ConfigError(
            f"{command.preset} says what is learnt, not by a network of which size\n"
            f'  lay it over a preset that does, in a file with extends = ["electra-base", "{command.preset}"],\n'
            "  or give its settings one by one, as --objective.NAME VALUE"
        )
    config = load_config(PretrainConfig, command.preset, overrides)
    refuse_fixed(config.init, given)
    refuse_idle(config.objective.kind, given)
    if command.dry_run:
        return dry_run(config, fresh=command.fresh)
    if command.profile is not None:
        return profiled(config, command.profile)
    return pretrain(config, fresh=command.fresh)


def pretrain(config: PretrainConfig, *, fresh: bool = False) -> "PretrainResult":
    """Run a config to its end, or resume it; `fresh` starts another run beside what is there.

    Raises:
        ElectraError: the config, the data or the run's folder cannot be used as they are.
    """
    if fresh and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise ConfigError("--fresh: each restart by torchrun would begin anew; give another --out instead")
    with (
        init_distributed(minutes=config.train.timeout_minutes),
        deterministic_algorithms(config.train.deterministic),
    ):
        return _pretrained(config, fresh=fresh)


def _pretrained(config: PretrainConfig, *, fresh: bool) -> "PretrainResult":
    (data, out), config = opened(config), _open_ended(config)
    begun = broadcast_object(not fresh and any((out / "checkpoints").glob("step-*")))
    start = Start() if begun else load_start(config.init)
    config = with_shapes(config, start)
    check_vocabulary(start, data, config.init)
    config = replace(config, model=fitted(config, data))
    run_folder = RunFolder(
        Path(broadcast_object(str(open_run(out, fresh=fresh).path if is_main_process() else out)))
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone_at(run_folder.path))
        config = _of_the_run(replace(config, out=run_folder.path), run_folder, data, begun=begun)
        # Only now: a command that is refused leaves a run as it was.
        stack.enter_context(log_file(run_folder.log_of(rank())))
        happened = stack.enter_context(events(run_folder, config.tracking.on_event))
        stack.enter_context(name_lost_peers(minutes=config.train.timeout_minutes))
        if is_local_main_process():
            run_folder.verified.parent.mkdir(exist_ok=True)
            durable.write_text(run_folder.verified, json.dumps(data.stamps) + "\n")
        objective, batches, precision, device = assembled(config, data, None if begun else start)
        del start  # whole networks
        config = replace(config, train=replace(config.train, precision=precision.name))
        if is_main_process():
            _write_environment(run_folder, data, precision)
        trainer = Trainer(
            objective,
            config.train,
            optimizer=config.optimizer,
            feed=batches,
            evaluation=config.evaluation,
            evaluate=evaluation(config, data, objective, precision, device),
            checkpoint=config.checkpoint,
            tracking=config.tracking,
            run=run_folder,
            config_text=lambda steps: to_toml(replace(config, train=replace(config.train, steps=steps))),
            texts={"tokenizer.json": data.tokenizer_path.read_text(encoding="utf-8")},
            precision=precision,
            device=device,
            rules=_rules(config),
            on_event=happened,
        )
        happened.reached = lambda: trainer.progress.step
        outcome = trainer.run()
        finished = outcome.stopped_by is None and is_main_process()
        exported = export_run(run_folder.path) if finished else None
        if finished:  # nobody will pack or verify for this run again
            shutil.rmtree(run_folder.index, ignore_errors=True)
        picture = plot_curves(run_folder.path, run_folder.curves) if finished else None
        if outcome.stopped_by is None:
            happened("finished", f"after {outcome.step:,} steps", outcome.step)
        else:
            happened("stopped", f"by {signal.Signals(outcome.stopped_by).name}", outcome.step)
    return PretrainResult(run_folder.path, outcome, exported, picture)


def _of_the_run(config: PretrainConfig, run_folder: RunFolder, data: TokenData, *, begun: bool) -> PretrainConfig:
    """The config of what is in a run's folder, once it is sure that the command and its data go on with that.

    Raises:
        CheckpointError: they do not.
    """
    if begun:
        config = with_shapes_of(config, stored_config(run_folder, PretrainConfig))
    if broadcast_object(run_folder.config.exists()):
        config = agree(run_folder, config, settled=SETTLED, ignore=IGNORED)
    check_newest(Checkpoints(run_folder.checkpoints, config.checkpoint), identity(config, data))
    return config


@contextlib.contextmanager
def _alone_at(folder: Path) -> Iterator[None]:
    """Be the only ones at a run.

    Raises:
        CheckpointError: someone else is at it.
    """
    with contextlib.ExitStack() as stack:
        mine = False
        if is_main_process():
            heartbeat(folder)
            mine = stack.enter_context(acquire(folder))
        if not broadcast_object(mine):
            who = owner(folder) or {}
            name = f"process {who['process']} on {who['host']}" if who.keys() >= {"process", "host"} else "someone"
            raise CheckpointError(f"{folder}: {name} is at this run; wait for its end, or give another --out")
        yield


def _rules(config: PretrainConfig) -> TrainerOptions:
    """Each of two stages has a warm-up and a decay of its own."""
    if config.objective.kind != "two-stage":
        return TrainerOptions()

    def schedule_of(step: int, steps: int | None) -> tuple[int, int | None]:
        assert steps is not None, "the length of a run of two stages is given in steps"
        change = change_of(config.objective.first_share, steps)
        return (step, change) if step < change else (step - change, steps - change)

    return TrainerOptions(schedule_of=schedule_of)


def dry_run(config: PretrainConfig, *, fresh: bool = False) -> "DryRun":
    """What a run would take, and whether it would go on with one that is there.

    Raises:
        ElectraError: the config, the data or what is in the run's folder cannot be used as they are.
    """
    config = _open_ended(config)
    there = None if config.out is None or fresh else RunFolder(config.out)
    if there:
        check_free(there)
    names = Checkpoints(there.checkpoints, config.checkpoint).names() if there else []
    start = Start() if names else load_start(config.init)
    config = with_shapes(config, start)
    if config.data is not None:
        data = TokenData.open(config.data, verify=False)
        check_data(config, data)
        check_vocabulary(start, data, config.init)
        config = replace(config, model=fitted(config, data))
        if there:
            config = _of_the_run(config, there, data, begun=bool(names))
    else:
        config = with_vocabulary(config)
    with torch.device("meta"):
        objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
    planned = estimate_cost(objective, config.train, length=config.packing.sequence_length)
    return DryRun(config, planned, int(names[-1].removeprefix("step-")) if names else None)


def _open_ended(config: PretrainConfig) -> PretrainConfig:
    """Where the length is given in minutes, the number of steps is left open: it is measured."""
    if config.train.minutes is None:
        return config
    return replace(config, train=replace(config.train, steps=None))


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
    durable.write_text(run_folder.environment, json.dumps(facts, indent=1) + "\n")


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
        table = Table("held-out figure", "value", title=title, title_justify="left")
        for name, value in self.outcome.evaluation.items():
            if name.startswith("eval/"):
                table.add_row(name.removeprefix("eval/").replace("_", " "), f"{value:.4f}")
        lines = [f"run: {self.run}", *([str(self.exported)] if self.exported else [])]
        return Group(table, *lines, *([f"curves: {self.picture}"] if self.picture else []))


@dataclass(frozen=True)
class DryRun:
    """A run's resolved config and what it would take.

    Attributes:
        begun: the step of the newest checkpoint in its folder.
    """

    config: PretrainConfig
    plan: CostEstimate
    begun: int | None = None

    def __rich__(self) -> RenderableType:
        table = Table("", "", show_header=False)
        for name, value in self.plan.rows():
            table.add_row(name, value)
        if self.begun is not None:
            steps = self.config.train.steps
            of = "" if steps is None else f" of {steps:,}"
            then = "finished" if self.begun == steps else "with which it would go on"
            table.add_row("already there", f"{self.begun:,}{of} steps, {then}")
        return Group(to_toml(self.config), table)
