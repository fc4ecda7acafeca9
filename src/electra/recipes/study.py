"""`electra study`: a table or figure of the paper, run again at a budget that you set."""

import json
import logging
import math
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError, ConfigError, DataError
from electra.recipes.pretrain import dry_run
from electra.recipes.pretrain_config import PretrainConfig, build_objective
from electra.recipes.pretrain_parts import assembled, fitted
from electra.recipes.pretrain_start import Start
from electra.recipes.study_config import Study, load_study
from electra.recipes.study_runs import Common, Job, arm_config, jobs, run_job, taken, task_folder
from electra.reports.study import StudyReport, read_study
from electra.training.optim import build_optimizer
from electra.training.plan import count_parameters, flops_a_sequence
from electra.training.run_folder import RunFolder
from electra.training.tracking import clock
from electra.training.update import Update

logger = logging.getLogger(__name__)

MINUTES = 1e6
"""A budget below this is in minutes, above it in FLOPs."""
MEASURED, WARM_UP = 15, 5
"""Steps of the control that are timed to turn minutes into FLOPs, and those before them."""
LEAST_STEPS = 20
"""A run of fewer steps cannot be evaluated ten times, nor warm up."""


@dataclass(frozen=True)
class StudyCommand:
    """The command line of `electra study`."""

    study: tyro.conf.Positional[str]
    """objectives, generator-size, sharing, training-algorithm, budget, model-size, masking, loss-weight,
    temperature, start-up; or a TOML file of your own."""
    data: Path
    """The folder that `electra prepare` made."""
    out: Path
    """The study's folder, which several machines may share: each takes runs that nobody is at."""
    tasks: Path | None = None
    """The folder of the tasks that runs are scored by: `glue`, `chunking-conll2000`. Left out: no fine-tuning."""
    budget: float = 15.0
    """Of one run: minutes of the control arm on this machine, or (above a million) FLOPs. All arms get as many
    FLOPs."""
    seeds: int = 3
    """Pre-trainings of each arm."""
    task_seeds: int = 3
    """Fine-tunings of each pre-trained model on each task."""
    suite: tuple[str, ...] = ()
    """The tasks; left out: those of the study."""
    arms: tuple[str, ...] = ()
    """Only these arms; left out: all."""
    base: str | None = None
    """The preset or file that the arms change; left out: the study's."""
    dry_run: bool = False
    """Show all arms with parameters, FLOPs, steps and time, and stop."""


def run(command: StudyCommand) -> "StudyReport | StudyPlan | Stopped":
    """Train every arm of a study with as many FLOPs, score all by the same tasks, and compare them.

    What is done is kept: the same command goes on where it was stopped, and more seeds cost only theirs. The
    table, study.csv and the pictures are made anew at the end.

    Examples:
        electra study objectives --data DATA --tasks TASKS --out OUT --budget 15
        electra study budget --data DATA --tasks TASKS --out OUT --budget 1e15 --seeds 2 --dry-run
    """
    study = _chosen(load_study(command.study, base=command.base), command)
    data = TokenData.open(command.data, verify=False)
    suite = (command.suite or study.tasks) if command.tasks else ()
    common = Common(
        command.out, study, command.data, command.budget, math.nan, command.tasks, suite, command.task_seeds
    )
    configs = {arm.name: _config(common, arm.name, data) for arm in study.arms}
    _check(common, configs, data)
    common = replace(common, flops=_budget(command, common, configs[study.control], data))
    control = dry_run(configs[study.control]).plan
    arms = tuple(_arm_plan(common, name, config) for name, config in configs.items())
    plan = StudyPlan(common, arms, command.seeds, control.seconds * common.flops / control.flops)
    plan.check()
    if command.dry_run:
        return plan
    _write_common(common, data)
    steps = {one.name: one for one in plan.arms}
    todo = jobs(study, command.seeds)
    for number, job in enumerate(todo):
        if job.done(command.out):
            continue
        with taken(job.folder(command.out)) as mine:
            if not mine or job.done(command.out):
                continue
            logger.info("run %s of %s: %s", number + 1, len(todo), job)
            if code := run_job(common, job, steps[job.arm.name].steps(job.share)):
                return Stopped(command.out, job, code)
    return read_study(command.out).written()


@dataclass(frozen=True)
class Stopped:
    """A study that a signal ended."""

    out: Path
    job: Job
    exit_code: int

    def __rich__(self) -> RenderableType:
        return f"{self.out}: stopped in {self.job}; the same command goes on"


@dataclass(frozen=True)
class ArmPlan:
    """What one run of an arm takes, at all of the budget."""

    name: str
    says: str
    parameters: int
    flops_a_step: float
    flops: float
    left_out: float = 0.0
    """Steps' worth of sequences that a growing batch leaves out at the start."""

    def steps(self, share: float) -> int:
        return round(share * self.flops / self.flops_a_step + self.left_out)


@dataclass(frozen=True)
class StudyPlan:
    """What a study takes."""

    common: Common
    arms: tuple[ArmPlan, ...]
    seeds: int
    seconds: float
    """Of one run at all of the budget, as far as FLOPs decide it."""

    def check(self) -> None:
        """Refuse a budget of which some run could not make anything.

        Raises:
            ConfigError: naming them.
        """
        least = min(self.common.study.shares)
        if few := [f"{arm.name}: {arm.steps(least)} steps" for arm in self.arms if arm.steps(least) < LEAST_STEPS]:
            share = "" if least == 1 else f" at {least:g} of it"
            raise ConfigError(
                f"--budget: too small{share}; an arm needs {LEAST_STEPS} steps for one evaluation:\n  "
                + "\n  ".join(few)
            )

    def __rich__(self) -> RenderableType:
        study = self.common.study
        columns = ("arm", "", "parameters", "FLOPs a step", "steps")
        table = Table(*columns, title=study.title, title_justify="left")
        for arm in self.arms:
            table.add_row(
                arm.name, arm.says, f"{arm.parameters:,}", f"{arm.flops_a_step:.3e}", f"{arm.steps(1):,}"
            )  # fmt: skip
        shares = "" if study.shares == (1.0,) else f" at {', '.join(f'{share:g}' for share in study.shares)} of it"
        runs = len(self.arms) * len(study.shares) * self.seeds
        whole = self.seconds * len(self.arms) * sum(study.shares) * self.seeds
        suite = f"{self.common.task_seeds} times on each of {', '.join(self.common.suite)}"
        return Group(
            table,
            f"{self.common.flops:.3e} FLOPs a run{shares} (modern convention: products, backward = 2 × forward)",
            f"{runs} pre-trainings of about {clock(self.seconds)} at most, {clock(whole)} in all; each is then "
            f"fine-tuned {suite if self.common.suite else '0 times'}",
        )


def _chosen(study: Study, command: StudyCommand) -> Study:
    """The study with the arms that are wanted, the control among them."""
    if command.seeds < 1 or command.task_seeds < 1:
        raise ConfigError("--seeds and --task-seeds must be at least 1")
    if not command.budget > 0:
        raise ConfigError(f"--budget: must be above 0, got {command.budget}")
    if not command.arms:
        return study
    known = [arm.name for arm in study.arms]
    if unknown := [name for name in command.arms if name not in known]:
        raise ConfigError(f"--arms: {study.name} has no arm {', '.join(unknown)}; it has {', '.join(known)}")
    wanted = {study.control, *command.arms}
    return replace(study, arms=tuple(arm for arm in study.arms if arm.name in wanted))


def _config(common: Common, name: str, data: TokenData) -> PretrainConfig:
    arm = next(arm for arm in common.study.arms if arm.name == name)
    config = arm_config(common, arm, {"train.steps": 1_000})
    return replace(config, model=fitted(config, data))


def _check(common: Common, configs: dict[str, PretrainConfig], data: TokenData) -> None:
    """Whatever would stop a run is said before any is begun.

    Raises:
        ConfigError: an arm has no discriminator where the study looks at one.
        DataError: data of a task are missing, or those of the study are others than before.
    """
    for name, config in configs.items():
        lacking = config.objective.kind in ("masked-lm", "replace-mlm", "all-tokens-mlm")
        if lacking and any("auc" in figure for figure in common.study.reached):
            raise ConfigError(
                f"arm {name}: {config.objective.kind} has no discriminator, whose start the study measures"
            )
    if common.tasks is not None:
        folders = {task: task_folder(common.tasks, task) for task in common.suite}
        if missing := [f"{task}: {folder}" for task, folder in folders.items() if not folder.is_dir()]:
            raise DataError("--tasks: there is no\n  " + "\n  ".join(missing))
    known = common.out / "study.json"
    if known.is_file():
        before = json.loads(known.read_text(encoding="utf-8"))
        if before["data"] != data.fingerprint:
            raise CheckpointError(f"{common.out} was begun with other data; give them, or another --out")
        if before["study"] != common.study.name:
            raise CheckpointError(f"{common.out} holds the study {before['study']}; give another --out")


def _budget(command: StudyCommand, common: Common, control: PretrainConfig, data: TokenData) -> float:
    """The FLOPs of a run: those that the study was begun with, or what the command says."""
    known = common.out / "study.json"
    if known.is_file():
        before: dict[str, Any] = json.loads(known.read_text(encoding="utf-8"))
        if command.budget not in (before["budget"], before["flops"]):
            raise CheckpointError(
                f"{common.out} was begun with a budget of {before['budget']:g} ({before['flops']:.4g} FLOPs); "
                "give that, or another --out"
            )
        return float(before["flops"])
    if command.budget >= MINUTES:
        return command.budget
    speed = _flops_a_second(control, data)
    logger.info("%s minutes of the control are %.3e FLOPs (%.3e a second)", command.budget,
                60 * command.budget * speed, speed)  # fmt: skip
    return 60 * command.budget * speed


def _flops_a_second(config: PretrainConfig, data: TokenData) -> float:
    """The speed of the control's steps on this machine."""
    config = replace(config, train=replace(config.train, batch_ramp_steps=0))
    objective, batches, precision, device = assembled(config, data, Start())
    update = Update(
        objective, build_optimizer(objective, config.optimizer), gradient_clip=config.optimizer.gradient_clip,
        precision=precision, device=device,
    )  # fmt: skip
    objective.train()
    seconds = []
    for step in range(WARM_UP + MEASURED):
        started = time.perf_counter()
        update(batches.micro_batches(step), rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return _flops_a_step(objective, config) / statistics.median(seconds[WARM_UP:])


def _flops_a_step(objective: torch.nn.Module, config: PretrainConfig) -> float:
    length = config.packing.sequence_length
    return config.train.batch_size * flops_a_sequence(objective, length, steps=config.train.steps)


def _arm_plan(common: Common, name: str, config: PretrainConfig) -> ArmPlan:
    with torch.device("meta"):
        objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
    arm = next(arm for arm in common.study.arms if arm.name == name)
    train, ramp = config.train, config.train.batch_ramp_steps
    return ArmPlan(
        name, arm.says, count_parameters(objective), _flops_a_step(objective, config), common.flops,
        left_out=ramp - train.sequences(ramp) / train.batch_size,
    )  # fmt: skip


def _write_common(common: Common, data: TokenData) -> None:
    """What the runs have in common, for those who join and for the report."""
    study, path = common.study, common.out / "study.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    arms = {arm.name: {"says": arm.says, "paper": arm.paper, "line": arm.line, "x": arm.x} for arm in study.arms}
    facts = {
        "study": study.name, "title": study.title, "base": study.base, "control": study.control,
        "paper": study.paper, "axis": study.axis, "shares": study.shares, "suite": common.suite,
        "reached": study.reached,
        "flops": common.flops, "budget": before.get("budget", common.budget), "data": data.fingerprint,
        "arms": {**before.get("arms", {}), **arms},
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    RunFolder.write_text(path, json.dumps(facts, indent=1) + "\n")
