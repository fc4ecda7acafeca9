"""The plan of a study: the number of steps of each arm for equal FLOPs, and the time that all runs take."""

import logging
import math
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table

from electra.analysis.frozen_probes import FROZEN_PROBES
from electra.data.shards import TokenData
from electra.durations import format_duration
from electra.errors import ConfigError
from electra.pretraining.build import packed_documents
from electra.studies.arms import ArmConfigs, StudySetup, meta_objective
from electra.training.config import TrainConfig
from electra.training.cost_estimate import count_parameters, flops_per_sequence
from electra.training.optim import update_flops

logger = logging.getLogger(__name__)

MIN_STEPS = 20
"""A shorter run cannot be evaluated ten times, nor warm up."""


@dataclass(frozen=True)
class ArmCost:
    """The cost of one run of an arm at the whole budget."""

    name: str
    label: str
    parameters: int
    flops_per_sequence: float
    flops_per_update: float
    """Of the optimizer."""
    flops: float
    train: TrainConfig
    warmup_steps: int

    def steps(self, budget_fraction: float) -> int:
        """The number of steps whose FLOPs come nearest to a fraction of the budget."""
        budget, ramp = budget_fraction * self.flops, self.train.batch_ramp_steps
        if budget < self.flops_of(ramp):
            return sum(self.flops_of(step) <= budget for step in range(1, ramp + 1))
        return ramp + round((budget - self.flops_of(ramp)) / self.flops_per_step)

    def flops_of(self, steps: int) -> float:
        """The FLOPs of a run of some steps."""
        return self.train.sequences(steps) * self.flops_per_sequence + steps * self.flops_per_update

    @property
    def flops_per_step(self) -> float:
        """The FLOPs of a step after the ramp of the batch size."""
        return self.flops_per_sequence * self.train.batch_size + self.flops_per_update


@dataclass(frozen=True)
class StudyPlan:
    """The cost of a study.

    Attributes:
        seconds: duration of one pre-training at the whole budget, estimated from its FLOPs.
        scoring_seconds: duration of all fine-tunings and probes of one pre-trained model.
    """

    setup: StudySetup
    arms: tuple[ArmCost, ...]
    seeds: int
    seconds: float = math.nan
    scoring_seconds: float = math.nan

    def steps(self, arm: str, budget_fraction: float) -> int:
        """The number of steps of an arm at a fraction of the budget."""
        return next(one for one in self.arms if one.name == arm).steps(budget_fraction)

    def check(self) -> None:
        """Check that the budget is large enough for every run; warn if much of a run is warm-up.

        Raises:
            ConfigError: it is too small; the message names a budget that is large enough.
        """
        smallest = min(self.setup.study.budget_fractions)
        steps = {arm.name: arm.steps(smallest) for arm in self.arms}
        if short := [f"{name}: {count} steps" for name, count in steps.items() if count < MIN_STEPS]:
            where = "" if smallest == 1 else f" at {smallest:g} of it"
            required = max(arm.flops_of(MIN_STEPS) for arm in self.arms) / smallest
            raise ConfigError(
                f"--budget: too small{where}; an arm needs {MIN_STEPS} steps for one evaluation; give at least "
                f"{math.ceil(required / 1e9) * 1e9:.4g} FLOPs:\n  " + "\n  ".join(short)
            )
        if warming := [arm for arm in self.arms if steps[arm.name] < 2 * arm.warmup_steps]:
            where = "" if smallest == 1 else f" at {smallest:g} of the budget"
            logger.warning(
                "warm-up takes half or more of a run%s (%s); a larger budget gives a better comparison, or set "
                "optimizer.warmup_steps in a study or base of your own", where,
                ", ".join(f"{arm.name}: {arm.warmup_steps:,} of {steps[arm.name]:,} steps" for arm in warming),
            )  # fmt: skip

    def __rich__(self) -> RenderableType:
        study = self.setup.study
        columns = ("arm", "description", "parameters", "FLOPs per step", "steps")
        table = Table(*columns, title=study.title, title_justify="left")
        for arm in self.arms:
            name = f"{arm.name} (control)" if arm.name == study.control else arm.name
            table.add_row(name, arm.label, f"{arm.parameters:,}", f"{arm.flops_per_step:.3e}", f"{arm.steps(1):,}")
        fractions = study.budget_fractions
        at = "" if fractions == (1.0,) else f" at {', '.join(f'{one:g}' for one in fractions)} of it"
        runs = len(self.arms) * len(fractions) * self.seeds
        total = self.seconds * len(self.arms) * sum(fractions) * self.seeds + self.scoring_seconds * runs
        scoring = ""
        if suite := self.setup.suite:
            times = "once" if self.setup.task_seeds == 1 else f"{self.setup.task_seeds} times"
            tasks = ", ".join(task for task in suite if task not in FROZEN_PROBES)
            probes = ", ".join(task for task in suite if task in FROZEN_PROBES)
            done = [
                *([f"fine-tuning {times} on each of {tasks}"] if tasks else []),
                *([f"probes ({probes})"] if probes else []),
            ]
            scoring = f", and {format_duration(self.scoring_seconds)} of {' and '.join(done)}"
        which = "each" if fractions == (1.0,) else "those with the whole budget"
        return Group(
            table,
            f"{self.setup.flops:.3e} FLOPs per run{at} (modern convention: matrix products, "
            "backward = 2 × forward)",
            f"{runs} runs, {which} about {format_duration(self.seconds)} of pre-training{scoring}",
            f"{format_duration(total)} in total without start-up and held-out metrics, one run after the other, "
            "if all arms are as fast per FLOP as the control",
        )


def plan_study(setup: StudySetup, configs: ArmConfigs, data: TokenData, *, seeds: int) -> StudyPlan:
    """The plan of a study whose budget is known in FLOPs, without times."""
    arms = []
    for arm in setup.study.arms:
        config = configs[arm.name]
        objective = meta_objective(config)
        length, documents = config.packing.sequence_length, packed_documents(config, data)
        flops = flops_per_sequence(objective, length, steps=config.train.steps, documents=documents)
        update = update_flops(objective, config.optimizer)
        parameters, warmup = count_parameters(objective), config.optimizer.warmup_steps
        arms.append(ArmCost(arm.name, arm.label, parameters, flops, update, setup.flops, config.train, warmup))
    return StudyPlan(setup, tuple(arms), seeds)
