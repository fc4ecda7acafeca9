"""Checks of the settings of a run that need no torch, whose import takes seconds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from electra.config import COMMAND_LINE, PRESETS, Table, find, load_config, read_file, read_toml
from electra.config_fields import hint_for_other_section, override_names
from electra.data.packing import PackingConfig
from electra.errors import ConfigError
from electra.objectives.masking_config import MaskingConfig
from electra.pretraining.init_config import InitConfig
from electra.training.config import (
    CheckpointConfig,
    EvaluationConfig,
    OptimizerConfig,
    TrackingConfig,
    TrainConfig,
)

SECTIONS_WITH_TORCH = {"model", "generator", "objective"}
SHARED_NAMES = {"kind", "memory_length"}
"""Names of settings that one of those sections and another one have."""


@dataclass(frozen=True)
class SectionWithTorch:
    """A section whose settings only the classes of networks and objectives know. Here it may have any."""

    @classmethod
    def variant(cls, table: Table) -> tuple[type["SectionWithTorch"], Table]:
        """Return this class, and none of the settings of a TOML table."""
        return cls, {}


@dataclass(frozen=True)
class EarlyConfig:
    """The fields of `PretrainConfig`, of which those of networks and objectives are not checked."""

    data: Path | None = None
    out: Path | None = None
    model: SectionWithTorch = field(default_factory=SectionWithTorch)
    generator: SectionWithTorch = field(default_factory=SectionWithTorch)
    objective: SectionWithTorch = field(default_factory=SectionWithTorch)
    init: InitConfig = field(default_factory=InitConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def check_early(source: str | Path, overrides: Sequence[str]) -> None:
    """Refuse wrong settings of a run before torch is imported, if all of its problems are known without it.

    Args:
        source: the name of a preset, or the path of a TOML file.
        overrides: those of the command line.

    Raises:
        ConfigError: with every problem.
    """
    given = override_names(overrides)
    path = find(source)
    sections = {name.partition(".")[0] for name in given if "." in name}
    if SECTIONS_WITH_TORCH & (sections if path.is_relative_to(PRESETS) else sections | read_file(path).keys()):
        return
    known = {one.name for one in fields(EarlyConfig)}
    unknown = {name for name in given - known if "." not in name}
    if any(name in SHARED_NAMES or not hint_for_other_section(EarlyConfig, name) for name in unknown):
        return  # it may be meant as a setting of one of those sections
    load_config(EarlyConfig, source, overrides, overrides_from=COMMAND_LINE)


def refuse_two_lengths(source: str | Path, given: Collection[str]) -> None:
    """Refuse a file that sets the length of the run twice, because `train.minutes` would hide `train.steps`.

    Args:
        source: the name of a preset, or the path of a TOML file.
        given: the names of the settings on the command line.

    Raises:
        ConfigError: the file sets train.steps and train.minutes, or sets train.minutes and train.steps is given.
    """
    path = find(source)
    if "minutes" not in read_toml(source).get("train", {}):
        return
    if "train.steps" in given:
        raise ConfigError(
            f"--train.steps: {path} sets train.minutes, which is also a length of the run; remove it from "
            "the file, or give --train.minutes instead"
        )
    # The config.toml of a run has both: the minutes that were set, and the number of steps that was computed.
    if path.name != "config.toml" and "steps" in read_file(path).get("train", {}):
        raise ConfigError(
            f"{path}: train.steps and train.minutes both set the length of the run; remove one of them"
        )
