"""`electra study`: a table or figure of the paper, run again at a budget that you set."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra.config import PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from electra.reports.study import StudyReport
    from electra.studies.plan import StudyPlan
    from electra.studies.run import StoppedStudy


@dataclass(frozen=True)
class StudyCommand:
    """The command line of `electra study`."""

    study: tyro.conf.Positional[str]
    """Name of a study (objectives, generator-size, sharing, training-algorithm, budget, model-size, masking,
    loss-weight, temperature, start-up, encoders, roberta, albert, recurrence, backbone,
    recipe: docs/guides/studies.md explains them), or a TOML file of your own."""
    data: Path
    """Folder made by `electra prepare`."""
    out: Path
    """Folder of the study. Several machines may share it: each one does the runs that no other process does."""
    tasks: Path | None = None
    """Folder of the tasks on which the runs are evaluated, with the subfolders `glue`, `chunking-conll2000` and
    others. Default: no fine-tuning."""
    budget: PositiveFloat = 15.0
    """Compute of each run: training minutes of the control arm on this machine or, above a million, FLOPs. All
    arms get the same."""
    seeds: PositiveInt = 3
    """Number of pre-trainings of each arm."""
    task_seeds: PositiveInt = 3
    """Number of fine-tunings of each pre-trained model on each task."""
    suite: tuple[str, ...] = ()
    """Tasks, some with a fraction of their training data (sts-b:0.25), and frozen probes: probe-chunking,
    probe-upos, probe-deprel, probe-heads, and the same with nonlinear- in front. Default: those of the study in
    OUT; for a new one mostly cola, sst-2:0.15, mrpc, sts-b and chunking."""
    tune: tuple[str, ...] = ()
    """Settings of all fine-tunings, such as optimizer.learning_rate=1e-3, or the word defaults. If they differ
    from those of the study in OUT, all runs are fine-tuned again, but not pre-trained again. Default: those of the
    study in OUT; for a new one the defaults of fine-tuning."""
    arms: tuple[str, ...] = ()
    """Arms to run, in addition to the control. Default: all."""
    base: str | None = None
    """Preset or file that the arms change. Default: the study's own."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    dry_run: bool = False
    """Print all arms with their parameters, FLOPs, steps and time, and stop."""


def run(command: StudyCommand) -> "StudyReport | StudyPlan | StoppedStudy":
    """Train the arms of a study with the same FLOPs, evaluate them on the same tasks, and compare them.

    The same command resumes a study that was stopped; more seeds or arms cost only their own runs. The table,
    study.csv and the plots are written at the end.

    Examples:
        electra study objectives --data DATA --tasks TASKS --out OUT --budget 15
        electra study budget --data DATA --tasks TASKS --out OUT --budget 1e15 --seeds 2 --dry-run
    """
    from electra.studies.config import load_study
    from electra.studies.run import run_study

    return run_study(
        load_study(command.study, base=command.base).with_arms(command.arms),
        data=command.data,
        out=command.out,
        tasks=command.tasks,
        budget=command.budget,
        seeds=command.seeds,
        task_seeds=command.task_seeds,
        suite=command.suite,
        tune=command.tune,
        device=command.device,
        dry_run=command.dry_run,
    )
