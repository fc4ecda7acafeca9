"""Settings on the command line that have no effect, because something else decides them, are refused."""

from collections.abc import Collection
from dataclasses import fields

from electra.errors import ConfigError
from electra.objectives.config import GeneratorConfig, ObjectiveConfig
from electra.pretraining.init_config import InitConfig
from electra.registry import encoders

FRESH = ("token_table", "attention", "output_bias")
"""Settings of [init] for new networks."""


def refuse_fixed(init: InitConfig, given: Collection[str]) -> None:
    """Refuse settings on the command line that the pre-trained networks decide.

    Raises:
        ConfigError: it names each one.
    """
    fixed = ["init.trained_length", "init.generator_trained_length"]
    if init.from_ is not None:
        overridden = ("discriminator", "generator", "generator_layers", "vocabulary", "average", *FRESH)
        fixed += [f"init.{name}" for name in overridden]
    elif init.discriminator is not None:
        shape = {name for _, kind in encoders for name in kind().shape()}
        fixed += [f"model.{name}" for name in (*shape, "positions")] + ["init.token_table", "init.attention"]
    if init.has_generator and init.from_ is None:
        names = [field.name for field in fields(GeneratorConfig)]
        fixed += [f"generator.{name}" for name in (*names, "positions")]
        fixed += ["init.output_bias"] if init.generator is not None else []
    if refused := sorted(set(fixed) & set(given)):
        raise ConfigError(f"{', '.join(refused)}: decided by the networks that [init] names; leave it out")


def refuse_unused(objective: ObjectiveConfig, given: Collection[str]) -> None:
    """Refuse settings on the command line that the objective does not read; presets may have them.

    Raises:
        ConfigError: it names each one.
    """
    if refused := sorted(name for name in given if name.startswith(objective.unused_settings or ("-",))):
        raise ConfigError(f"{', '.join(refused)}: {objective.kind} has {objective.unused_reason}; leave it out")
