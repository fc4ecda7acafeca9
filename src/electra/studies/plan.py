"""What a study takes: steps of every arm for the same FLOPs; and all that could stop a run, said beforehand."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import torch
from rich.console import Group, RenderableType
from rich.table import Table

from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.errors import ConfigError, DataError
from electra.finetuning.load_task import load_task
from electra.pretraining.build import build, check_data, vocabulary_tables
from electra.pretraining.config import PretrainConfig, build_objective
from electra.studies.config import Study
from electra.studies.runs import Common, task_config, task_folder
from electra.training.cost_estimate import count_parameters, flops_a_sequence
from electra.training.precision import PrecisionName
from electra.training.tracking import clock
from electra.training.train_config import TrainConfig

logger = logging.getLogger(__name__)

LEAST_STEPS = 20
"""A run of fewer steps cannot be evaluated ten times, nor warm up."""
WITHOUT_DISCRIMINATOR = ("masked-lm", "replace-mlm", "all-tokens-mlm")
Configs = Mapping[str, PretrainConfig]
"""Of the arms, by name."""


@dataclass(frozen=True)
class ArmPlan:
    """What one run of an arm takes, at all of the budget."""

    name: str
    says: str
    parameters: int
    flops_a_sequence: float
    flops: float
    train: TrainConfig
    warmup_steps: int

    def steps(self, share: float) -> int:
        """How many steps a share of the budget pays for."""
        sequences, ramp = share * self.flops / self.flops_a_sequence, self.train.batch_ramp_steps
        if sequences < self.train.sequences(ramp):
            return sum(self.train.sequences(step) <= sequences for step in range(1, ramp + 1))
        return ramp + round((sequences - self.train.sequences(ramp)) / self.train.batch_size)


@dataclass(frozen=True)
class StudyPlan:
    """What a study takes.

    Attributes:
        seconds: of one pre-training at all of the budget, as far as FLOPs decide it.
        tuning: seconds of all fine-tunings of one pre-trained model.
    """

    common: Common
    arms: tuple[ArmPlan, ...]
    seeds: int
    seconds: float = math.nan
    tuning: float = math.nan

    def steps(self, arm: str, share: float) -> int:
        return next(one for one in self.arms if one.name == arm).steps(share)

    def check(self) -> None:
        """Refuse a budget of which some run could not make anything.

        Raises:
            ConfigError: naming them.
        """
        least = min(self.common.study.shares)
        if few := [f"{arm.name}: {arm.steps(least)} steps" for arm in self.arms if arm.steps(least) < LEAST_STEPS]:
            share = "" if least == 1 else f" at {least:g} of it"
            wanted = max(arm.flops_a_sequence * arm.train.sequences(LEAST_STEPS) for arm in self.arms) / least
            raise ConfigError(
                f"--budget: too small{share}; an arm needs {LEAST_STEPS} steps for one evaluation; give at least "
                f"{math.ceil(wanted / 1e9) * 1e9:.4g} FLOPs:\n  " + "\n  ".join(few)
            )
        warming = {
            arm.name: (arm.warmup_steps, arm.steps(least))
            for arm in self.arms
            if arm.steps(least) < 2 * arm.warmup_steps
        }
        if warming:
            share = "" if least == 1 else f" at {least:g} of the budget"
            logger.warning(
                "half or more of a run%s is warm-up (%s); a larger budget judges better, or set "
                "optimizer.warmup_steps in a study or base of your own", share,
                ", ".join(f"{name}: {warm:,} of {steps:,} steps" for name, (warm, steps) in warming.items()),
            )  # fmt: skip

    def __rich__(self) -> RenderableType:
        study = self.common.study
        columns = ("arm", "what it is", "parameters", "FLOPs a step", "steps")
        table = Table(*columns, title=study.title, title_justify="left")
        for arm in self.arms:
            flops = arm.flops_a_sequence * arm.train.batch_size
            name = f"{arm.name} (control)" if arm.name == study.control else arm.name
            table.add_row(name, arm.says, f"{arm.parameters:,}", f"{flops:.3e}", f"{arm.steps(1):,}")
        shares = "" if study.shares == (1.0,) else f" at {', '.join(f'{share:g}' for share in study.shares)} of it"
        runs = len(self.arms) * len(study.shares) * self.seeds
        whole = self.seconds * len(self.arms) * sum(study.shares) * self.seeds + self.tuning * runs
        tuned = ""
        if suite := self.common.suite:
            times = "once" if self.common.task_seeds == 1 else f"{self.common.task_seeds} times"
            tuned = f", and {clock(self.tuning)} of fine-tuning ({times} on each of {', '.join(suite)})"
        return Group(
            table,
            f"{self.common.flops:.3e} FLOPs a run{shares} (modern convention: products, backward = 2 × forward)",
            f"{runs} runs, each about {clock(self.seconds)} of pre-training{tuned}",
            f"{clock(whole)} in all, one after the other, if all arms take FLOPs as quickly as the control",
        )


def planned(common: Common, configs: Configs, *, seeds: int) -> StudyPlan:
    """The plan for a budget that is known in FLOPs."""
    arms = []
    for arm in common.study.arms:
        config = configs[arm.name]
        with torch.device("meta"):
            objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
        each = flops_a_sequence(objective, config.packing.sequence_length, steps=config.train.steps)
        parameters, warmup = count_parameters(objective), config.optimizer.warmup_steps
        arms.append(ArmPlan(arm.name, arm.says, parameters, each, common.flops, config.train, warmup))
    return StudyPlan(common, tuple(arms), seeds)


def check(common: Common, configs: Configs, data: TokenData) -> None:
    """Whatever would stop a run is said before any is begun.

    Raises:
        ConfigError: an arm's settings are not for a study.
        DataError: data of a task, or the tags of tokens, are missing or not as they must be.
    """
    problems = [f"{name}: {one}" for name, config in configs.items() for one in _problems(common, config)]
    problems += _unlike(common.study, configs)
    if problems:
        raise ConfigError("arms that cannot be run:\n  " + "\n  ".join(problems))
    for config in configs.values():
        check_data(config, data)
        vocabulary_tables(config, data)
    for task in common.suite:
        assert common.tasks is not None
        if not task_folder(common.tasks, task).is_dir():
            raise DataError(f"--tasks: {task} has no folder {task_folder(common.tasks, task)}")
        load_task(task_config(common, task, model=common.data, out=common.out))


def _problems(common: Common, config: PretrainConfig) -> Iterator[str]:
    longest = next((int(one.partition("=")[2]) for one in common.tune if one.startswith("data.max_length=")), 0)
    if longest > config.packing.sequence_length:
        read = config.packing.sequence_length
        yield f"--tune data.max_length: {longest}, but the models of this arm read {read} tokens at most"
    if config.objective.kind in WITHOUT_DISCRIMINATOR and any("auc" in name for name in common.study.reached):
        what = f"{config.objective.kind} has no discriminator, whose start the study measures"
        yield f"{what}; leave it out with --arms"
    if config.train.minutes is not None:
        yield "train.minutes: runs of equal compute are as long as their steps; leave it out of the base"
    if config.init.discriminator is not None:
        yield "init.discriminator: arms begin with fresh networks; leave it out"


def _unlike(study: Study, configs: Configs) -> Iterator[str]:
    """Arms that cannot be compared: of other examples, or with no difference at all."""
    control = configs[study.control]
    for name, config in configs.items():
        for section in ("evaluation",) if study.own_rows else ("packing", "evaluation"):
            mine, theirs = asdict(getattr(config, section)), asdict(getattr(control, section))
            for key in mine:
                if mine[key] != theirs[key]:
                    yield (
                        f"{name}: {section}.{key} is {mine[key]!r}, and {theirs[key]!r} in {study.control}; all "
                        "arms must see the same examples, so set it for all of them (or own_rows = true)"
                    )
    known = list(configs.items())
    for number, (name, config) in enumerate(known):
        if alike := [one for one, other in known[:number] if other == config]:
            yield f"{name}: differs in nothing from {alike[0]}; does the base say what the arms are to decide?"


def precision_here(config: PretrainConfig, data: TokenData) -> PrecisionName:
    """The quicker precision for a config on this machine, if it does not say which."""
    return build(config, data, None).precision.name
