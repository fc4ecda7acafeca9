"""The configs of a study's arms, and whether they can be run and compared."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from electra import durable
from electra.config import load_config, overrides_of
from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.errors import ConfigError
from electra.objectives.base import Objective
from electra.pretraining.build import vocabulary_tables
from electra.pretraining.config import PretrainConfig, build_objective
from electra.pretraining.resolve import resolve
from electra.reports.study_results import read_study_record
from electra.studies.config import Arm, Study
from electra.training.config import OptimizerConfig
from electra.training.precision import PrecisionName

ArmConfigs = Mapping[str, PretrainConfig]
"""The configs of the arms, by name."""


@dataclass(frozen=True)
class StudySetup:
    """What all runs of a study share.

    Attributes:
        out: the study's folder.
        data: the folder of the prepared data.
        budget: the budget of one run as it was given, in minutes or FLOPs.
        flops: FLOPs of one run (modern convention), from the budget.
        tasks: the folder of all tasks; without one, `suite` is empty.
        suite: the tasks, some with the fraction of their training data.
        task_seeds: number of fine-tunings on each task.
        finetune_settings: settings of all fine-tunings that are not the defaults, as `name=value`.
        precision: the precision of all runs whose config says "auto". It is measured once, because the
            measurements of single runs would differ by chance.
        device: the device of all runs whose config has no other, and of what evaluates them.
    """

    out: Path
    study: Study
    data: Path
    budget: float
    flops: float
    tasks: Path | None
    suite: tuple[str, ...]
    task_seeds: int
    finetune_settings: tuple[str, ...] = ()
    precision: PrecisionName | Literal["auto"] = "auto"
    device: str = "auto"


def load_arm_config(setup: StudySetup, arm: Arm, settings: Mapping[str, Any], *, folder: Path) -> PretrainConfig:
    """The config of an arm, from a TOML file that is written into a folder.

    Raises:
        ConfigError: the arm's settings are wrong.
    """
    path, text = folder / f"{arm.name}.toml", setup.study.arm_toml(arm, folder)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        folder.mkdir(parents=True, exist_ok=True)
        durable.write_text(path, text)
    config = load_config(PretrainConfig, path, overrides_of({"data": setup.data, **settings}))
    if config.train.device == "auto":
        config = replace(config, train=replace(config.train, device=setup.device))
    stored = read_study_record(setup.out).get("arms", {}).get(arm.name, {}).get("settings", {})
    config = replace(config, optimizer=_with_earlier_warmup(config.optimizer, stored))
    return replace(config, tracking=config.tracking.trusted(()))


def _with_earlier_warmup(optimizer: OptimizerConfig, stored: Mapping[str, Any]) -> OptimizerConfig:
    """Keep the warm-up of a study that was begun when presets set a number of steps, which is now their maximum.

    Args:
        stored: the settings of the arm in study.json.
    """
    before = stored.get("optimizer.warmup_steps")
    if optimizer.warmup_steps or optimizer.max_warmup_steps != before:
        return optimizer
    return replace(optimizer, warmup_steps=before, max_warmup_steps=OptimizerConfig().max_warmup_steps)


def resolve_arms(setup: StudySetup, data: TokenData) -> ArmConfigs:
    """The resolved config of each arm, with 1,000 steps; no file stays behind.

    Raises:
        ConfigError: settings of arms are wrong; all are named.
        CheckpointError, DataError: a network that an arm starts from cannot be loaded, or has another vocabulary.
    """
    configs, problems = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for arm in setup.study.arms:
            try:
                config = load_arm_config(setup, arm, {"train.steps": 1_000}, folder=Path(folder))
            except ConfigError as error:
                name, path = f"arm {arm.name} of {setup.study.name}", str(Path(folder, f"{arm.name}.toml"))
                message = str(error)
                problems.append(message.replace(path, name) if path in message else f"{name}: {message}")
                continue
            configs[arm.name] = resolve(config, data).config
    if problems:
        raise ConfigError("\n".join(problems))
    return configs


def meta_objective(config: PretrainConfig) -> Objective:
    """The objective of a config with shapes but without values."""
    with torch.device("meta"):
        return build_objective(config, SpecialTokens(0, 1, 2, 3, 4))


def check_arms(setup: StudySetup, configs: ArmConfigs, data: TokenData) -> None:
    """Check everything that could stop a run before the first one starts.

    Raises:
        ConfigError: arms cannot be run or compared.
        DataError: the prepared data lacks something that an arm needs.
    """
    problems = [f"{name}: {one}" for name, config in configs.items() for one in _problems(setup, config)]
    problems += _comparison_problems(setup.study, configs)
    if problems:
        raise ConfigError("arms that cannot be run:\n  " + "\n  ".join(problems))
    for config in configs.values():
        vocabulary_tables(config, data)


def _problems(setup: StudySetup, config: PretrainConfig) -> Iterator[str]:
    lengths = (one.partition("=") for one in setup.finetune_settings)
    longest = next((int(value) for name, _, value in lengths if name == "data.max_length"), 0)
    if longest > config.packing.sequence_length:
        yield (
            f"--tune data.max_length: is {longest}, but the models of this arm read at most "
            f"{config.packing.sequence_length} tokens"
        )
    needs_discriminator = any("auc" in name for name in setup.study.thresholds)
    if needs_discriminator and "discriminator" not in meta_objective(config).exportable_networks():
        kind = config.objective.kind
        yield f"{kind} has no discriminator, whose AUC the study measures; leave the arm out with --arms"
    if config.train.minutes is not None:
        yield "train.minutes: runs of equal compute are measured in steps; leave it out of the base"
    for name, value in (("discriminator", config.init.discriminator), ("from", config.init.from_)):
        if value is not None:
            yield f"init.{name}: arms start with new networks; leave it out"


def _comparison_problems(study: Study, configs: ArmConfigs) -> Iterator[str]:
    """Arms that cannot be compared, because they see different examples or do not differ at all."""
    control = configs[study.control]
    for name, config in configs.items():
        for section in ("evaluation",) if study.own_packing else ("packing", "evaluation"):
            own, others = asdict(getattr(config, section)), asdict(getattr(control, section))
            remedy = ", or own_rows = true at the top of the study's file" if section == "packing" else ""
            for key in own:
                if own[key] != others[key]:
                    yield (
                        f"{name}: {section}.{key} is {own[key]!r}, and {others[key]!r} in {study.control}; all "
                        f"arms must see the same examples, so set it for all of them{remedy}"
                    )
    checked: dict[str, PretrainConfig] = {}
    for name, config in configs.items():
        if same := [one for one, other in checked.items() if other == config]:
            yield f"{name}: has the same settings as {same[0]}; does the base set what the arms change?"
        checked[name] = config
