"""`electra pretrain`: from token shards to a trained, exported discriminator."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra.config import COMMAND_LINE, PRESET_LAYERS, load_config, overrides_of, read_toml
from electra.config_fields import override_names, refuse_contradictions
from electra.errors import ConfigError

if TYPE_CHECKING:
    from electra.pretraining.dry_run import DryRun
    from electra.pretraining.profile import Profile
    from electra.pretraining.run import PretrainResult


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PretrainCommand:
    """The command line of `electra pretrain`."""

    preset: tyro.conf.Positional[str]
    """A preset (quickstart, electra-nano, -tiny, -mini, -small, -base, -large, ...-plus-plus, electra-plus-nano,
    -tiny, -mini, and bert-, roberta-, albert-, txl-, xlnet-, modern- and deberta- in their sizes) or a TOML
    file."""
    data: Path | None = None
    """Folder made by `electra prepare`. Required, here or in the TOML file."""
    out: Path | None = None
    """Folder of the run. An existing run is resumed. Required, here or in the TOML file."""
    device: str | None = None
    """Device to compute on, the setting train.device: auto, cpu, cuda, cuda:1 or mps. Default: that of the config,
    auto: a CUDA GPU if there is one, else the CPU."""
    fresh: bool = False
    """Start a new run next to OUT (OUT-2, OUT-3, …) instead of resuming the existing one."""
    dry_run: bool = False
    """Print the resolved config, parameters, FLOPs, memory and time, and stop."""
    profile: int | None = None
    """Profile this number of steps: list the most expensive operations, write a trace to OUT/profile, and stop.
    Nothing else is kept."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Any setting of the config, as `--section.name VALUE`."""


def run(command: PretrainCommand) -> "PretrainResult | DryRun | Profile":
    """Pre-train a generator and a discriminator, or resume a run that was stopped.

    Every setting of the preset can be changed on the command line: --section.name VALUE (--dry-run prints the
    settings of a run; the configuration reference explains them). The same command resumes a run that was stopped
    or killed, and the final weights are the same, bit for bit. A TOML file can combine a network size with another
    objective: extends = ["electra-small", "objectives/electra-15"].

    Examples:
        electra pretrain electra-plus-tiny --data DATA --out RUN --train.minutes 5
        electra pretrain electra-small --data DATA --out RUN --train.steps 100000 --optimizer.learning_rate 3e-4
        electra pretrain continue --data DATA --out RUN --init.discriminator FOLDER --train.minutes 20
        electra pretrain mine.toml --data DATA --out RUN
    """
    started = time.monotonic()  # before torch is imported, which takes seconds
    overrides = list(command.overrides)
    paths = {"data": command.data, "out": command.out}
    refuse_contradictions({"train.device": ("device", command.device)}, overrides)
    overrides += overrides_of({name: path for name, path in paths.items() if path is not None})
    if command.device is not None:
        overrides += overrides_of({"train.device": command.device})
    given = override_names(overrides)
    if command.profile is not None and (command.profile < 1 or command.dry_run or command.fresh):
        raise ConfigError("--profile: give a number of steps, at least 1, without --dry-run and --fresh")
    if {"train.steps", "train.minutes"} <= given:
        raise ConfigError("train.steps and train.minutes both set the length of the run; give one of them")
    if command.preset.startswith(PRESET_LAYERS):
        raise ConfigError(
            f"{command.preset} sets an objective, but no network size\n"
            f'  combine it with one that does, in a file with extends = ["electra-base", "{command.preset}"],\n'
            "  or give its settings one by one, as --objective.NAME VALUE"
        )
    table = read_toml(command.preset)  # what is missing is said before torch is imported, which takes seconds
    needed = {"data": "--data (made by `electra prepare`)", "out": "--out, the folder to write to"}
    missing = [option for name, option in needed.items() if paths[name] is None and name not in table]
    if missing and not command.dry_run:
        raise ConfigError(f"a run needs {' and '.join(missing)}")
    from electra.pretraining.early_check import check_early, refuse_two_lengths

    check_early(command.preset, overrides)
    refuse_two_lengths(command.preset, given)
    from electra.modeling.device import check_device
    from electra.pretraining.config import PretrainConfig
    from electra.pretraining.refused_settings import refuse_fixed, refuse_unused

    config = load_config(PretrainConfig, command.preset, overrides, overrides_from=COMMAND_LINE)
    check_device(command.device or "auto")  # below, a message would name train.device
    config = replace(config, tracking=config.tracking.trusted(given))
    refuse_fixed(config.init, given)
    refuse_unused(config.objective, given)
    if config.init.discriminator is not None and config.init.vocabulary == "same" and not config.init.average:
        logger.info(
            "this run has no average with %s; as a start for fine-tuning on the domain of this text, the preset "
            "continue is better (docs/guides/continue-pretraining.md)", config.init.discriminator,
        )  # fmt: skip
    if command.dry_run:
        from electra.pretraining.dry_run import dry_run

        return dry_run(config, fresh=command.fresh)
    if command.profile is not None:
        from electra.pretraining.profile import profile_steps

        return profile_steps(config, command.profile)
    from electra.pretraining.run import pretrain

    return pretrain(config, fresh=command.fresh, started=started)
