"""Run a study: train and evaluate every arm at equal compute, and compare them."""

import logging
import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from electra.data.shards import TokenData
from electra.errors import ConfigError
from electra.folder_lock import acquire, is_locked
from electra.modeling.device import resolve_device
from electra.reports.study import StudyReport, read_study
from electra.reports.study_results import Record, read_study_record
from electra.studies.arms import StudySetup, check_arms, resolve_arms
from electra.studies.config import Study, check_tasks
from electra.studies.cost_estimate import estimate_scoring_seconds, measure_flops_per_second
from electra.studies.finetuning import check_task_data, normalize_settings
from electra.studies.folder import check_empty, check_matches, open_study
from electra.studies.plan import StudyPlan, plan_study
from electra.studies.runs import StudyRun, study_runs, train_and_score

logger = logging.getLogger(__name__)

MIN_FLOPS = 1e6
"""A budget below this is in minutes, above it in FLOPs."""


@dataclass(frozen=True)
class StoppedStudy:
    """A study that a signal stopped."""

    out: Path
    run: StudyRun
    exit_code: int

    def __rich__(self) -> str:
        return f"{self.out}: stopped in {self.run}; the same command resumes it"


def run_study(
    study: Study, *, data: Path, out: Path, tasks: Path | None = None, budget: float = 15.0, seeds: int = 3,
    task_seeds: int = 3, suite: Sequence[str] = (), tune: Sequence[str] = (), device: str = "auto",
    dry_run: bool = False,
) -> StudyReport | StudyPlan | StoppedStudy:  # fmt: skip
    """Train and evaluate every arm of a study, or continue a study, and write its table and plots.

    Args:
        study: a study with the arms to run; see `load_study`.
        data: the folder that `electra prepare` made.
        out: the study's folder, or an archive of one. Several processes may share it.
        tasks: the folder of the tasks; None: no fine-tuning.
        budget: compute of a run: minutes of the control on this machine or, above a million, FLOPs.
        seeds: number of pre-trainings of each arm.
        task_seeds: number of fine-tunings of each model on each task.
        suite: the tasks; empty: those of the study so far.
        tune: settings of all fine-tunings, or `defaults`; empty: those of the study so far.
        device: the device of all runs (`resolve_device`).
        dry_run: return the plan with estimated times, and run nothing.

    Raises:
        ConfigError, CheckpointError, DataError: the study cannot be run, or differs from the one in `out`.
    """
    _check_tasks(tasks, suite, tune)
    resolve_device(device)
    token_data, stored = TokenData.open(data, verify=False), read_study_record(out)
    if not stored:
        check_empty(out)
    setup = StudySetup(
        out=out, study=study, data=data, budget=budget, flops=math.nan, tasks=tasks,
        suite=tuple(suite or stored.get("suite", ()) or study.tasks) if tasks else (), task_seeds=task_seeds,
        finetune_settings=normalize_settings(tune, stored.get("tune", ())), device=device,
    )  # fmt: skip
    configs = resolve_arms(setup, token_data)
    if stored:
        check_matches(setup, configs, token_data, stored)
    check_arms(setup, configs, token_data)
    check_task_data(setup)
    control = configs[study.control]
    if stored or budget >= MIN_FLOPS:
        flops = stored.get("flops", budget)
    else:
        flops = 60 * budget * measure_flops_per_second(control, token_data)
        logger.info("%g minutes of the control are %.3e FLOPs", budget, flops)
    setup = replace(setup, flops=flops)
    plan = plan_study(setup, configs, token_data, seeds=seeds)
    plan.check()
    if dry_run:
        seconds = flops / measure_flops_per_second(control, token_data)
        scoring_seconds = estimate_scoring_seconds(setup, control, token_data)
        return replace(plan, seconds=seconds, scoring_seconds=scoring_seconds)
    _warn_without_tasks(setup, stored)
    opened = open_study(setup, configs, token_data)
    if opened.flops != flops:  # another process was first
        plan = plan_study(opened, configs, token_data, seeds=seeds)
    runs = study_runs(study, seeds)
    if stopped := _work(opened, plan, runs):
        return stopped
    for run in runs:
        if not run.is_done(opened) and is_locked(run.folder(out)):
            logger.info("%s: another process works on it", run)
    return read_study(out).write()


def _check_tasks(tasks: Path | None, suite: Sequence[str], tune: Sequence[str]) -> None:
    """Check the options about tasks.

    Raises:
        ConfigError: options of tasks are given without tasks, or there are no such tasks.
    """
    if suite and tasks is None:
        raise ConfigError("--suite: needs --tasks, the folder of the tasks")
    if tune and tasks is None:
        raise ConfigError("--tune: needs --tasks, the folder of the tasks; without it nothing is fine-tuned")
    if tasks is not None and not tasks.is_dir():
        raise ConfigError(f"--tasks: there is no folder {tasks}")
    try:
        check_tasks(suite)
    except ConfigError as error:
        raise ConfigError(f"--suite: {error}") from error


def _warn_without_tasks(setup: StudySetup, stored: Record) -> None:
    if stored.get("suite") and setup.tasks is None:
        logger.warning(
            "runs of %s are scored by %s; without --tasks, new runs are not scored",
            setup.out, " ".join(stored["suite"]),
        )  # fmt: skip


def _work(setup: StudySetup, plan: StudyPlan, runs: Sequence[StudyRun]) -> StoppedStudy | None:
    """Do the runs that no other process works on; then those of processes that died in the meantime."""
    remaining = [run for run in runs if not run.is_done(setup)]
    logger.info("%s of %s runs are done", len(runs) - len(remaining), len(runs))
    while remaining:
        locked = []
        for run in remaining:
            if run.is_done(setup):
                continue
            with acquire(run.folder(setup.out)) as acquired:
                if not acquired:
                    locked.append(run)
                elif not run.is_done(setup):
                    logger.info("run %s of %s: %s", runs.index(run) + 1, len(runs), run)
                    try:
                        code = train_and_score(setup, run, plan.steps(run.arm.name, run.budget_fraction))
                    except KeyboardInterrupt:  # between trainings, which handle signals themselves
                        code = 128 + signal.SIGINT
                    if code:
                        return StoppedStudy(setup.out, run, code)
        if len(locked) == len(remaining):
            break
        remaining = locked
    return None
