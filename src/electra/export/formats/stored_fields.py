"""Reading the fields of config.json that transformers' classes store."""

from collections.abc import Mapping
from typing import Any

from electra.errors import CheckpointError


def read_numbers(
    fields: Mapping[str, Any], names: Mapping[str, tuple[str, int | float]], problems: list[str]
) -> dict[str, Any]:
    """Return the numeric settings of an encoder; add a problem for each that is no number.

    Args:
        names: for each setting of ours its stored name and its default, whose type it must have.
    """
    values: dict[str, Any] = {}
    for name, (stored, default) in names.items():
        values[name] = fields.get(stored, default)
        allowed = int if isinstance(default, int) else int | float
        if not isinstance(values[name], allowed) or isinstance(values[name], bool):
            problems.append(f"{stored} must be a number, found {values[name]!r}")
    return values


def refuse(problems: list[str], source: object) -> None:
    """Refuse a folder with problems.

    Raises:
        CheckpointError: there are problems; one line each.
    """
    if problems:
        raise CheckpointError(
            f"{source}: this model cannot be loaded:\n" + "\n".join(f"  {problem}" for problem in problems)
        )
