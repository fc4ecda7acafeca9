"""`electra study`: a table or figure of the paper, run again at a budget that you set."""

import hashlib
import json
import logging
import math
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from electra.config import to_toml
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError
from electra.recipes.pretrain_config import PretrainConfig
from electra.recipes.pretrain_parts import fitted
from electra.recipes.pretrain_start import check_vocabulary, load_start, with_shapes
from electra.recipes.study_config import Study, check_tasks, load_study
from electra.recipes.study_plan import Configs, StudyPlan, check, flops_a_second, planned, precision_here
from electra.recipes.study_runs import Common, Job, arm_config, jobs, run_job
from electra.recipes.study_taking import is_taken, taken
from electra.reports.study import StudyReport, read_facts, read_study
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

COMMON = "study.json"
MINUTES = 1e6
"""A budget below this is in minutes, above it in FLOPs."""


@dataclass(frozen=True)
class StudyCommand:
    """The command line of `electra study`."""

    study: tyro.conf.Positional[str]
    """A study's name (objectives, generator-size, sharing, training-algorithm, budget, model-size, masking,
    loss-weight, temperature, start-up: docs/studies.md says what they ask), or a TOML file of your own."""
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
    """The tasks, of some a part of the training data (sts-b:0.25); left out: those of the study, mostly cola,
    sst-2:0.15, mrpc, sts-b and chunking."""
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
    data = TokenData.open(command.data, verify=False)
    common = Common(
        command.out, study, command.data, command.budget, math.nan, command.tasks,
        (command.suite or study.tasks) if command.tasks else (), command.task_seeds,
    )  # fmt: skip
    configs = _configs(common, data)
    before = _before(common, configs, data)
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
        return plan
    common = _begun(plan.common, configs, data)
    if common.flops != flops:  # another machine was first
        plan = planned(common, configs, seeds=command.seeds)
    every = jobs(study, command.seeds)
    if stopped := _work(common, plan, every):
        return stopped
    for job in every:
        if not job.done(common) and is_taken(job.folder(common.out)):
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
            with taken(job.folder(common.out)) as mine:
                if not mine:
                    others.append(job)
                elif not job.done(common):
                    logger.info("run %s of %s: %s", every.index(job) + 1, len(every), job)
                    if code := run_job(common, job, plan.steps(job.arm.name, job.share)):
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


def _configs(common: Common, data: TokenData) -> Configs:
    """The config of each arm, with a length to count by; nothing is left behind.

    Raises:
        ConfigError: an arm's settings are wrong.
        CheckpointError, DataError: what an arm starts from is none, or has another vocabulary.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for arm in common.study.arms:
            try:
                config = arm_config(common, arm, {"train.steps": 1_000}, folder=Path(folder))
            except ConfigError as error:
                written = str(Path(folder, f"{arm.name}.toml"))
                raise ConfigError(str(error).replace(written, f"arm {arm.name} of {common.study.name}")) from error
            start = load_start(config.init)
            config = with_shapes(config, start)
            check_vocabulary(start, data, config.init)
            found[arm.name] = replace(config, model=fitted(config, data))
    return found


def _before(common: Common, configs: Configs, data: TokenData) -> dict[str, Any]:
    """What the study was begun with; empty where it was not.

    Raises:
        CheckpointError: with something else.
    """
    path = common.out / COMMON
    if not path.is_file():
        return {}
    before = read_facts(path)
    another = "give another --out"
    if before["study"] != common.study.name:
        raise CheckpointError(f"{common.out} holds the study {before['study']}; {another}")
    if before["data"] != data.fingerprint:
        raise CheckpointError(f"{common.out} was begun with other data; give them, or {another}")
    if common.budget not in (before["budget"], before["flops"]):
        raise CheckpointError(
            f"{common.out} was begun with a budget of {before['budget']:g} ({before['flops']:.4g} FLOPs); "
            f"give that, or {another}"
        )
    if before["base"] != common.study.base:
        raise CheckpointError(f"{common.out} was begun with --base {before['base']}; give that, or {another}")
    if common.suite and (lost := [task for task in before["suite"] if task not in common.suite]):
        raise CheckpointError(
            f"{common.out} was begun with the tasks {' '.join(before['suite'])}; --suite may add to them, and "
            f"lacks {' '.join(lost)}; {another}"
        )
    for name, config in configs.items():
        known = before["arms"].get(name, {}).get("config", _fingerprint(config))
        if known != _fingerprint(config):
            raise CheckpointError(f"{common.out} has runs of another arm {name}: its settings differ; {another}")
    return before


def _fingerprint(config: PretrainConfig) -> str:
    """Of all settings of an arm."""
    plain = replace(config, data=None, out=None)
    return hashlib.sha256(to_toml(plain).encode()).hexdigest()[:16]


def _begun(common: Common, configs: Configs, data: TokenData) -> Common:
    """Write down what the runs have in common, or take over what another machine wrote a moment ago."""
    study, path = common.study, common.out / COMMON
    facts: dict[str, Any] = {
        "study": study.name, "title": study.title, "base": study.base, "control": study.control,
        "paper": study.paper, "axis": study.axis, "shares": study.shares, "reached": study.reached,
        "suite": common.suite, "flops": common.flops, "budget": common.budget, "data": data.fingerprint,
        "arms": {
            arm.name: {
                "says": arm.says, "control": arm.control, "paper": arm.paper, "line": arm.line, "x": arm.x,
                "config": _fingerprint(configs[arm.name]),
            }
            for arm in study.arms
        },
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        first = path.with_name(f".{path.name}.{secrets.token_hex(4)}.first")
        RunFolder.write_text(first, json.dumps(facts, indent=1) + "\n")
        try:
            os.link(first, path)  # only one can be first, and the file is whole from the first moment
        except FileExistsError:
            pass
        finally:
            first.unlink()
    before = _before(common, configs, data)
    known = {"suite": list(common.suite) or before["suite"], "arms": {**before["arms"], **facts["arms"]}}
    if "precision" not in before:
        known["precision"] = precision_here(configs[common.study.control], data)
    if (merged := {**before, **json.loads(json.dumps(known))}) != before:
        RunFolder.write_text(path, json.dumps(merged, indent=1) + "\n")
    return replace(common, flops=float(merged["flops"]), precision=merged["precision"])
