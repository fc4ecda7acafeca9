"""How the command line reads the values of options: rules for tyro with the names and messages of this package."""

import types
import typing
from typing import Any

from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

from electra.config_fields import convert, type_name
from electra.help import VALUE_NAMES

Spec = PrimitiveConstructorSpec[Any] | UnsupportedTypeAnnotationError | None


def value_rules() -> ConstructorRegistry:
    """Return rules for numbers, words of a list, and options that may be left out.

    tyro's own rules show Python's messages ("invalid literal for int()") and offer None as a value.
    """
    registry = ConstructorRegistry()
    for rule in (_number, _choice, _optional):
        registry.primitive_rule(rule)
    return registry


def _number(info: PrimitiveTypeInfo) -> Spec:
    kind = info.type
    if kind not in (int, float):
        return None

    def read(words: list[str]) -> Any:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"must be {type_name(kind)}, got {words[0]!r}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=VALUE_NAMES[kind],
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )


def _choice(info: PrimitiveTypeInfo) -> Spec:
    origin: Any = info.type_origin
    if origin is not typing.Literal:
        return None
    words = typing.get_args(info.type)
    if not all(isinstance(word, str) for word in words):
        return None

    def read(given: list[str]) -> Any:
        try:
            return convert(given[0], info.type)
        except ValueError as error:
            raise ValueError(f"{error}, got {given[0]!r}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(words)}}}",
        instance_from_str=read,
        is_instance=lambda value: value in words,
        str_from_instance=lambda value: [value],
    )


def _optional(info: PrimitiveTypeInfo) -> Spec:
    """Read `X | None` as X: an option that is left out is None already."""
    members = typing.get_args(info.type)
    if (
        info.type_origin not in (typing.Union, types.UnionType)
        or types.NoneType not in members
        or len(members) != 2
    ):
        return None
    (member,) = (member for member in members if member is not types.NoneType)
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(member, info.markers))
    if isinstance(spec, UnsupportedTypeAnnotationError):
        return spec
    return PrimitiveConstructorSpec(
        nargs=spec.nargs,
        metavar=spec.metavar,
        instance_from_str=spec.instance_from_str,
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["unset"] if value is None else spec.str_from_instance(value),
        choices=spec.choices,
    )
