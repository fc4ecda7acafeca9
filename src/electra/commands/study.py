"""`electra study`: a table or figure of the paper, run again at a budget that you set."""

import logging
import math
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError
from electra.pretraining.resolve import resolve
from electra.reports.study import StudyReport, read_study
from electra.studies.config import Study, check_tasks, load_study
from electra.studies.cost_estimate import flops_a_second, tuning_seconds
from electra.studies.folder import begun, check_same, stored
from electra.studies.plan import Configs, StudyPlan, check, planned
from electra.studies.runs import Common, Job, arm_config, jobs, run_job
from electra.studies.tuning import tuning
from electra.training.run_lock import acquire, is_locked

logger = logging.getLogger(__name__)

MINUTES = 1e6
"""A budget below this is in minutes, above it in FLOPs."""


@dataclass(frozen=True)
class StudyCommand:
    """The command line of `electra study`."""

    study: tyro.conf.Positional[str]
    """A study's name (objectives, generator-size, sharing, training-algorithm, budget, model-size, masking,
    loss-weight, temperature, start-up, encoders, roberta, albert, recurrence: docs/guides/studies.md says what
    they ask), or a TOML file of your own."""
    data: Path
    """The folder that `electra prepare` made."""
    out: Path
    """The study's folder, which several machines may share: each takes runs that nobody is at."""
    tasks: Path | None = None
    """The folder of the tasks that runs are scored by: `glue`, `chunking-conll2000`. Left out: no fine-tuning."""
    budget: float = 15.0
    """Of a run: minutes of the control on this machine, or (above a million) FLOPs; all arms have as many."""
    seeds: int = 3
    """Pre-trainings of each arm."""
    task_seeds: int = 3
    """Fine-tunings of each pre-trained model on each task."""
    suite: tuple[str, ...] = ()
    """The tasks, of some a part of the training data (sts-b:0.25); left out: those of before, at first those of
    the study, mostly cola, sst-2:0.15, mrpc, sts-b and chunking."""
    tune: tuple[str, ...] = ()
    """Settings of all fine-tunings, such as optimizer.learning_rate=1e-3, or the word defaults; with others than
    before all runs are fine-tuned again, and none is trained again. Left out: those of before, at first the
    defaults."""
    arms: tuple[str, ...] = ()
    """Only these arms, and the control; left out: all."""
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
    data, before = TokenData.open(command.data, verify=False), stored(command.out)
    if not before:
        _refuse_others(command.out)
    suite = command.suite or tuple(before.get("suite", ())) or study.tasks
    common = Common(
        command.out, study, command.data, command.budget, math.nan, command.tasks,
        suite if command.tasks else (), command.task_seeds, tuning(command.tune, before.get("tune", ())),
    )  # fmt: skip
    configs = _configs(common, data)
    if before:
        check_same(common, configs, data, before)
    check(common, configs, data)
    if before:
        flops = before["flops"]
    elif command.budget >= MINUTES:
        flops = command.budget
    else:
        flops = 60 * command.budget * flops_a_second(configs[study.control], data)
        logger.info("%g minutes of the control are %.3e FLOPs", command.budget, flops)
    plan = planned(replace(common, flops=flops), configs, seeds=command.seeds)
    plan.check()
    if command.dry_run:
        control = configs[study.control]
        seconds = flops / flops_a_second(control, data)
        return replace(plan, seconds=seconds, tuning=tuning_seconds(common, control, data))
    if before.get("suite") and command.tasks is None:
        scored = " ".join(before["suite"])
        logger.warning("runs of %s are scored by %s; new ones are not without --tasks", command.out, scored)
    common = begun(plan.common, configs, data)
    if common.flops != flops:  # another machine was first
        plan = planned(common, configs, seeds=command.seeds)
    every = jobs(study, command.seeds)
    if stopped := _work(common, plan, every):
        return stopped
    for job in every:
        if not job.done(common) and is_locked(job.folder(common.out)):
            logger.info("%s: another process is at it", job)
    return read_study(common.out).written()


def _work(common: Common, plan: StudyPlan, every: Sequence[Job]) -> "Stopped | None":
    """Do what nobody else is at, and then what those have left who died meanwhile."""
    left = [job for job in every if not job.done(common)]
    logger.info("%s of %s runs are done", len(every) - len(left), len(every))
    while left:
        others = []
        for job in left:
            if job.done(common):
                continue
            with acquire(job.folder(common.out)) as mine:
                if not mine:
                    others.append(job)
                elif not job.done(common):
                    logger.info("run %s of %s: %s", every.index(job) + 1, len(every), job)
                    try:
                        code = run_job(common, job, plan.steps(job.arm.name, job.share))
                    except KeyboardInterrupt:  # between trainings, which end in order by themselves
                        code = 128 + signal.SIGINT
                    if code:
                        return Stopped(common.out, job, code)
        if len(others) == len(left):
            break
        left = others
    return None


@dataclass(frozen=True)
class Stopped:
    """A study that a signal ended."""

    out: Path
    job: Job
    exit_code: int

    def __rich__(self) -> str:
        return f"{self.out}: stopped in {self.job}; the same command goes on"


def _chosen(study: Study, command: StudyCommand) -> Study:
    """The study with the arms that are wanted, the control among them.

    Raises:
        ConfigError: the command asks for what there is not.
    """
    for name, count in (("seeds", command.seeds), ("task-seeds", command.task_seeds)):
        if count < 1:
            raise ConfigError(f"--{name}: must be at least 1, got {count}")
    if not 0 < command.budget < math.inf:
        raise ConfigError(f"--budget: must be a number above 0, got {command.budget}")
    if command.suite and command.tasks is None:
        raise ConfigError("--suite: needs --tasks, the folder of the tasks")
    if command.tune and command.tasks is None:
        raise ConfigError("--tune: needs --tasks; without them nothing is fine-tuned")
    if command.tasks is not None and not command.tasks.is_dir():
        raise ConfigError(f"--tasks: there is no folder {command.tasks}")
    try:
        check_tasks(command.suite)
    except ConfigError as error:
        raise ConfigError(f"--suite: {error}") from error
    known = [arm.name for arm in study.arms]
    if unknown := [name for name in command.arms if name not in known]:
        raise ConfigError(f"--arms: {study.name} has no arm {', '.join(unknown)}; it has {', '.join(known)}")
    wanted = {study.control, *(command.arms or known)}
    wanted |= {arm.control for arm in study.arms if arm.name in wanted}
    return replace(study, arms=tuple(arm for arm in study.arms if arm.name in wanted))


def _refuse_others(out: Path) -> None:
    """Refuse a folder that holds something else.

    Raises:
        CheckpointError: naming some of it.
    """
    if out.is_file():
        raise CheckpointError(f"{out} is a file; give another --out")
    if out.is_dir() and (names := sorted(one.name for one in out.iterdir() if not _of_a_start(one.name))):
        raise CheckpointError(
            f"{out} is not empty and holds no study (found {', '.join(names[:3])}); give another --out"
        )


def _of_a_start(name: str) -> bool:
    return name.startswith((".", "taken."))


def _configs(common: Common, data: TokenData) -> Configs:
    """The config of each arm, with a length to count by; nothing is left behind.

    Raises:
        ConfigError: an arm's settings are wrong.
        CheckpointError, DataError: what an arm starts from is none, or has another vocabulary.
    """
    found, problems = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for arm in common.study.arms:
            try:
                config = arm_config(common, arm, {"train.steps": 1_000}, folder=Path(folder))
            except ConfigError as error:
                where, written = f"arm {arm.name} of {common.study.name}", str(Path(folder, f"{arm.name}.toml"))
                message = str(error)
                problems.append(message.replace(written, where) if written in message else f"{where}: {message}")
                continue
            found[arm.name] = resolve(config, data).config
    if problems:
        raise ConfigError("\n".join(problems))
    return found
