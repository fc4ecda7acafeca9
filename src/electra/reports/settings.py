"""The settings of runs: read, written for people, and compared."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from electra.config import read_toml

UNCOMPARED = ("out", "data", "data.path")
"""Settings that say where files are."""


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of a run; empty if it has not written them."""
    path = folder / "config.toml"
    return read_toml(path) if path.is_file() else {}


def has_generator(config: Mapping[str, Any]) -> bool:
    """Whether the objective of a run has a generator: only a masked language model weights no other loss than
    `generator_loss`. (The class of the objective says so, too, but needs torch.)"""
    objective = config.get("objective", {})
    return "discriminator_weight" in objective or "generator_weight" not in objective


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a config by their full names."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def format_setting(value: object) -> str:
    """A setting as TOML writes it, but texts without quotes, and numbers as people write them: 15, 1e-5."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return re.sub(r"e\+?(-?)0*", r"e\1", str(value).removesuffix(".0"))
    if isinstance(value, list):
        return f"[{', '.join(map(format_setting, value))}]"
    return str(value)


def different_settings(folders: Mapping[str, Path]) -> list[Table]:
    """A table of the settings in which runs differ; none if they are equal.

    A setting that only some runs have, all with the same value, is left out if the others are of another kind,
    such as another kind of objective.
    """
    settings = [dict(flatten(read_config(folder))) for folder in folders.values()]
    table = Table("setting that differs", *folders)
    kinds: set[str] = set()
    for key in dict.fromkeys(key for config in settings for key in config):
        values = [format_setting(config[key]) if key in config else "–" for config in settings]
        if len(set(values)) == 1 or key in UNCOMPARED:
            continue
        section = key.rpartition(".")[0]
        having = {config.get(f"{section}.kind") for config in settings if key in config}
        lacking = {config.get(f"{section}.kind") for config in settings if key not in config}
        if lacking and len({*values}) == 2 and having.isdisjoint(lacking) and key != f"{section}.kind":
            kinds.add(section)
        else:
            table.add_row(key, *values)
    table.title = f"{table.row_count} settings that differ" if table.row_count > 1 else "1 setting that differs"
    if kinds:
        table.caption = (
            f"Left out: settings that differ only because not every kind of {' or '.join(sorted(kinds))} has them."
        )
    return [table] if table.row_count else []
