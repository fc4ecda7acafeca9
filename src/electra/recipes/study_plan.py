"""What a study takes: steps of every arm for the same FLOPs; and all that could stop a run, said beforehand."""

import logging
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import torch
from rich.console import Group, RenderableType
from rich.table import Table

from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.errors import ConfigError, DataError
from electra.modeling.flops import training_flops
from electra.recipes.finetune_task import load_task
from electra.recipes.pretrain import dry_run
from electra.recipes.pretrain_config import PretrainConfig, build_objective
from electra.recipes.pretrain_parts import assembled, check_tags, tables
from electra.recipes.pretrain_start import Start
from electra.recipes.study_config import Study
from electra.recipes.study_runs import Common, task_config, task_folder
from electra.training.optim import build_optimizer
from electra.training.plan import count_parameters, flops_a_sequence
from electra.training.precision import PrecisionName
from electra.training.tracking import clock
from electra.training.train_config import TrainConfig
from electra.training.update import Update

logger = logging.getLogger(__name__)

MEASURED, WARM_UP = 15, 5
"""Steps of the control that are timed to turn minutes into FLOPs, and those before them."""
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
        seconds: of one run at all of the budget, as far as FLOPs decide it.
    """

    common: Common
    arms: tuple[ArmPlan, ...]
    seeds: int
    seconds: float

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
        warming = {arm.name: arm.warmup_steps for arm in self.arms if arm.steps(least) < 2 * arm.warmup_steps}
        if warming:
            logger.warning(
                "half or more of a run at %g of the budget is warm-up (%s); a larger budget judges better",
                least, ", ".join(f"{name}: {steps:,} steps" for name, steps in warming.items()),
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
        whole = self.seconds * len(self.arms) * sum(study.shares) * self.seeds
        times, tasks = self.common.task_seeds, ", ".join(self.common.suite)
        tuned = f"; fine-tuning each {times} times on each of {tasks} comes on top" if tasks else ""
        return Group(
            table,
            f"{self.common.flops:.3e} FLOPs a run{shares} (modern convention: products, backward = 2 × forward)",
            f"{runs} pre-trainings of about {clock(self.seconds)} at most, {clock(whole)} in all{tuned}",
        )


def planned(common: Common, configs: Configs, *, seeds: int) -> StudyPlan:
    """The plan for a budget that is known in FLOPs."""
    control = dry_run(configs[common.study.control]).plan
    arms = []
    for arm in common.study.arms:
        config = configs[arm.name]
        with torch.device("meta"):
            objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
        each = flops_a_sequence(objective, config.packing.sequence_length, steps=config.train.steps)
        parameters, warmup = count_parameters(objective), config.optimizer.warmup_steps
        arms.append(ArmPlan(arm.name, arm.says, parameters, each, common.flops, config.train, warmup))
    return StudyPlan(common, tuple(arms), seeds, control.seconds * common.flops / control.flops)


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
        check_tags(config, data)
        tables(config, data)
    for task in common.suite:
        assert common.tasks is not None
        if not task_folder(common.tasks, task).is_dir():
            raise DataError(f"--tasks: {task} has no folder {task_folder(common.tasks, task)}")
        load_task(task_config(common, task, model=common.data, out=common.out))


def _problems(common: Common, config: PretrainConfig) -> Iterator[str]:
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
        for section in ("packing", "evaluation"):
            mine, theirs = asdict(getattr(config, section)), asdict(getattr(control, section))
            for key in mine:
                if mine[key] != theirs[key]:
                    yield (
                        f"{name}: {section}.{key} is {mine[key]!r}, and {theirs[key]!r} in {study.control}; all "
                        "arms must see the same examples, so set it for all of them"
                    )
    known = list(configs.items())
    for number, (name, config) in enumerate(known):
        if alike := [one for one, other in known[:number] if other == config]:
            yield f"{name}: differs in nothing from {alike[0]}; does the base say what the arms are to decide?"


def precision_here(config: PretrainConfig, data: TokenData) -> PrecisionName:
    """The quicker precision for a config on this machine, if it does not say which."""
    return assembled(config, data, None)[2].name


def flops_a_second(config: PretrainConfig, data: TokenData) -> float:
    """The speed of a config's steps on this machine."""
    config = replace(config, train=replace(config.train, batch_ramp_steps=0))
    objective, batches, precision, device = assembled(config, data, Start())
    update = Update(
        objective, build_optimizer(objective, config.optimizer), gradient_clip=config.optimizer.gradient_clip,
        precision=precision, device=device,
    )  # fmt: skip
    objective.train()
    steps, seconds = config.train.steps or 1, []
    for step in range(WARM_UP + MEASURED):
        objective.begin_step(steps - 1, steps)  # of two stages the last one
        started = time.perf_counter()
        update(batches.micro_batches(step), rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    length = config.packing.sequence_length
    flops = config.train.batch_size * training_flops(objective.networks(length), length)
    return flops / statistics.median(seconds[WARM_UP:])
