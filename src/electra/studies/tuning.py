"""How the runs of a study are fine-tuned, where that is not by the defaults."""

import json
from collections.abc import Sequence

from electra.config import flat, load_config
from electra.errors import ConfigError
from electra.finetuning.config import FinetuneConfig

DEFAULTS = "defaults"
SECTIONS = ("optimizer.", "head.", "evaluation.")
MODEL = "model=MODEL"
"""Without which there is no such config; that of a study's run comes in its place."""
SINGLE = ("train.epochs", "train.batch_size", "train.dropout", "data.max_length")


def tuning(given: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """The settings that are not the defaults, as `name=value` in an order and a spelling that do not depend on how
    they were given; those of before, if none were.

    Raises:
        ConfigError: a setting does not exist, is given twice, or says something else than how to fine-tune.
    """
    if not given:
        return tuple(before)
    if DEFAULTS in given:
        if len(given) > 1:
            raise ConfigError(f"--tune: {DEFAULTS} stands for itself; leave it or the settings beside it out")
        return ()
    names = [one.partition("=")[0] for one in given]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"--tune: {twice[0]} is given twice")
    try:
        config = load_config(FinetuneConfig, None, [MODEL, *given])
    except ConfigError as error:
        raise ConfigError(f"--tune: {error}") from error
    defaults = flat(load_config(FinetuneConfig, None, [MODEL]))
    found = {name: value for name, value in flat(config).items() if value != defaults[name]}
    if others := [name for name in {**dict.fromkeys(names), **found} if not _says_how(name)]:
        known = ", ".join([*(f"{section}*" for section in SECTIONS), *SINGLE])
        raise ConfigError(f"--tune: {others[0]}: only what says how to fine-tune may be set: {known}")
    return tuple(f"{name}={json.dumps(found[name])}" for name in sorted(found))


def _says_how(name: str) -> bool:
    return name.startswith(SECTIONS) or name in SINGLE
