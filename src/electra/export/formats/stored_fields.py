"""Reading the fields of config.json that transformers' classes store."""

import reprlib
from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

from electra.errors import CheckpointError

_NAMES = {
    int: "a whole number", float: "a number", str: "a string", bool: "true or false", list: "a list",
    dict: "an object", NoneType: "null",
}  # fmt: skip


def check_types(
    fields: Mapping[str, Any], types: Mapping[str, Any], problems: list[str], *, inside: str = ""
) -> dict[str, Any]:
    """Return fields without those of another type than expected; add a problem for each of these.

    Args:
        types: a type for each field, or a union, as `int | None`; fields may be missing.
        inside: the key of the object that has the fields, with a dot, for messages.
    """
    fitting = dict(fields)
    for name, expected in types.items():
        allowed = get_args(expected) or (expected,)
        if name in fields and not any(_is_a(fields[name], one) for one in allowed):
            words = " or ".join(_NAMES[one] for one in allowed)
            problems.append(f"{inside}{name} must be {words}, found {shown(fitting.pop(name))}")
    return fitting


def _is_a(value: Any, expected: type) -> bool:
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, int | float if expected is float else expected)


def shown(value: Any) -> str:
    """Return a value of a file for a message: as in Python source, and shortened."""
    return reprlib.repr(value)


def read_numbers(
    fields: Mapping[str, Any], names: Mapping[str, tuple[str, int | float]], problems: list[str]
) -> dict[str, Any]:
    """Return the numeric settings of an encoder; add a problem for each that is no number.

    Args:
        names: for each setting of ours its stored name and its default, whose type it must have.
    """
    fields = check_types(fields, {stored: type(default) for stored, default in names.values()}, problems)
    return {name: fields.get(stored, default) for name, (stored, default) in names.items()}


def refuse(problems: list[str], source: object) -> None:
    """Refuse a folder with problems.

    Raises:
        CheckpointError: there are problems; one line each.
    """
    if problems:
        raise CheckpointError(
            f"{source}: this model cannot be loaded:\n" + "\n".join(f"  {problem}" for problem in problems)
        )
