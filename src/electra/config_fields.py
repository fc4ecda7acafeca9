"""The settings of config dataclasses: name, type, default and documentation of each, and conversion of values.

The documentation is for the configuration reference, for the help of verbs, and for messages about wrong names.
"""

import ast
import dataclasses
import inspect
import re
import reprlib
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.errors import ConfigError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Setting:
    """One documented setting of a config dataclass.

    Attributes:
        name: the dotted name.
        type: the type in words; "a path" also for a path that may be left unset.
        default: as in Python source; "required", or "unset" for None.
        kinds: the variants of its section that have it; empty: all of them.
    """

    name: str
    type: str
    default: str
    documentation: str
    kinds: tuple[str, ...] = ()


def settings(cls: type[Any], prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a config dataclass and of its sections, in order.

    A section with variants (`variants()` returns their classes by name) has the settings of all of them.

    Args:
        prefix: the dotted name of the section, with a dot at its end.
    """
    variants: Mapping[str, type[Any]] = cls.variants() if hasattr(cls, "variants") else {"": cls}
    documentation = {kind: field_documentation(variant) for kind, variant in variants.items()}
    owners: dict[str, list[str]] = {}
    for kind, variant in variants.items():
        for field in dataclasses.fields(variant):
            owners.setdefault(field.name, []).append(kind)
    for name, kinds in owners.items():
        variant = variants[kinds[0]]
        hint = typing.get_type_hints(variant)[name]
        if dataclasses.is_dataclass(hint):
            yield from settings(typing.cast(type[Any], hint), f"{prefix}{name}.")
            continue
        default = default_of(next(field for field in dataclasses.fields(variant) if field.name == name))
        if default is dataclasses.MISSING:
            shown = "required"
        else:
            shown = "unset" if default is None else repr(plain(default))
        is_kind = name == "kind" and len(variants) > 1
        type_text = f"one of {', '.join(variants)}" if is_kind else type_name(hint)
        text = documentation[kinds[0]].get(name, "")
        yield Setting(
            prefix + setting_name(name),
            type_text,
            shown,
            text,
            () if len(kinds) == len(variants) else tuple(kinds),
        )


def setting_name(field_name: str) -> str:
    """Return the name of the setting of a field: without the `_` behind a Python keyword, as in `from_`."""
    return field_name.removesuffix("_")


def field_documentation(cls: type[Any]) -> dict[str, str]:
    """Return the string literals below the fields of a dataclass and of its base classes, by field name."""
    documentation: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):  # the class was defined in a shell
            continue
        assert isinstance(body, ast.ClassDef)
        for statement, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        documentation[statement.target.id] = inspect.cleandoc(text)
    return documentation


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """Return the default of a field; `dataclasses.MISSING` if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def plain(value: Any) -> Any:
    """Return a value of a config as TOML and JSON have it: tuples as lists, paths as text."""
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def type_name(hint: Any) -> str:
    """Return the type of a field in words."""
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(a) for a in arguments if a is not types.NoneType)
    if origin is typing.Literal:
        return "one of " + ", ".join(str(a) for a in arguments)
    if origin is tuple:
        return f"a list of {type_name(arguments[0]).removeprefix('a ')}s"
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def convert(value: Any, hint: Any) -> Any:
    """Convert a TOML value to the type of a field.

    Raises:
        ValueError: it has another type; the message says which one is expected.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return convert(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        return convert(value, next(a for a in arguments if a is not types.NoneType))
    if origin is typing.Literal:
        if value in arguments:
            return value
        allowed = [str(a) for a in arguments]
        near = did_you_mean(str(value), allowed).removeprefix("; ") if len(allowed) > 1 else ""
        raise ValueError(f"must be one of {', '.join(allowed)}{f' ({near})' if near else ''}")
    if origin is tuple:
        return tuple(convert(v, arguments[0]) for v in (value if isinstance(value, list) else [value]))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str) and re.fullmatch(r"[+-]?(\.\d+|\d+\.)", value):
        return float(value)  # .25 and 5. are numbers on the command line, but not in TOML
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if type(value) is not hint:
        raise ValueError(f"must be {type_name(hint)}")
    return value


def json_problem(value: Any, hint: Any) -> str | None:
    """Return what is wrong with the type of a value from a JSON file for a field; None if it fits as it is."""
    if hint is Any or (value is None and types.NoneType in typing.get_args(hint)):
        return None
    value = plain(value)
    try:
        is_object = dict in (hint, typing.get_origin(hint))
        fits = isinstance(value, dict) if is_object else plain(convert(value, hint)) == value
    except ValueError:
        fits = False
    return None if fits else f"must be {type_name(hint)}, found {reprlib.repr(value)}"


def apply_override(cls: type[Any], table: dict[str, Any], override: str, problems: list[str]) -> None:
    """Set a value in the table of a config of type `cls` by `name=value`. Problems are added to `problems`."""
    name, equals, text = override.partition("=")
    name = name.replace("-", "_")
    if not equals and any(name == setting.name for setting in settings(cls)):
        problems.append(f"--{name}: needs a value, as in --{name} VALUE")
        return
    if any("\ud800" <= character <= "\udfff" for character in text):
        problems.append(f"{name}: {text} is not UTF-8, which a config must be; rename the file or folder")
    value = _parse(text)
    *sections, key = name.split(".")
    for depth, section in enumerate(sections, start=1):
        below = table.setdefault(section, {})
        if not isinstance(below, dict):
            problems.append(not_a_section(cls, ".".join(sections[:depth]), ".".join([*sections[depth:], key])))
            return
        table = below
    if isinstance(below := table.get(key), dict) and any(name == setting.name for setting in settings(cls)):
        problems.extend(not_a_section(cls, name, inner) for inner in below)
    table[key] = value


def _parse(text: str) -> Any:
    """The value of an override: TOML if it is that, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def override_names(overrides: Sequence[str]) -> set[str]:
    """Return the dotted names of the settings that overrides (`name=value`) set."""
    return {override.partition("=")[0].replace("-", "_") for override in overrides}


def refuse_contradictions(options: Mapping[str, tuple[str, Any]], overrides: Sequence[str]) -> None:
    """Refuse an option and the setting that it stands for, if both are given with different values.

    Args:
        options: name and value of options (None: it is not given) by the dotted name of the setting.
        overrides: `name=value` of the settings that are given.

    Raises:
        ConfigError: it says which of the two to leave out.
    """
    texts = {name.replace("-", "_"): text for name, _, text in (one.partition("=") for one in overrides)}
    for setting, (option, value) in options.items():
        if value is not None and setting in texts and not _is_same(texts[setting], value):
            raise ConfigError(
                f"--{option} {value} and --{setting} {texts[setting]} are two values of one setting; leave "
                f"--{setting} out"
            )


def _is_same(text: str, value: Any) -> bool:
    try:
        return text == str(value) or bool(convert(_parse(text), type(value)) == value)
    except ValueError:
        return False


DEVICE_NAMES = "auto, cpu, cuda, cuda:1 (a GPU by its number, from 0) or mps"


def is_device_name(name: str) -> bool:
    """Whether a name is that of a device, whatever this machine has."""
    return re.fullmatch(r"auto|cpu|cuda(:\d+)?|mps", name) is not None


OTHER_NAMES = {
    "bs": "batch_size", "batch": "batch_size", "per_device_train_batch_size": "batch_size",
    "gradient_accumulation_steps": "micro_batch_size N (train.batch_size divided by these steps)",
    "bf16": "precision bfloat16", "fp16": "precision float16", "text_column": "text", "label_column": "label",
    "max_seq_length": "max_length", "block_size": "max_length", "length": "max_length",
    "max_length": "sequence_length", "sequence_length": "max_length",
    "lr": "learning_rate", "wd": "weight_decay", "logging_steps": "report_every", "mlm_probability": "share",
    "warmup": "warmup_steps", "warmup_ratio": "warmup_share",
    "warmup_steps": "warmup_share S (a share of the steps, such as 0.1)", "warmup_share": "warmup_steps",
    "max_steps": "steps", "num_epochs": "epochs", "num_train_epochs": "epochs",
    "epochs": "steps N (an epoch is the rows that `electra data inspect DATA --preset PRESET` counts, divided by "
    "train.batch_size)",
    "steps": "epochs N (--dry-run shows the number of steps)", "output_dir": "out",
}  # fmt: skip
"""What other trainers (transformers, timm) or another verb call a setting, and its name here, which may have a
value behind it."""


def hint_for_other_section(cls: type[Any], key: str) -> str:
    """Return a hint for a setting that was written in the wrong section, or with the name that another trainer has
    for it; empty if there is none."""
    names: dict[str, str] = {}
    for setting in settings(cls):
        names.setdefault(setting.name.rpartition(".")[2], setting.name)
    value, tried = "", set[str]()
    while key not in names and key in OTHER_NAMES and key not in tried:
        tried.add(key)
        key, _, value = OTHER_NAMES[key].partition(" ")
    if key not in names:
        return ""
    return f"; give --{names[key]} {value}" if value else f"; did you mean --{names[key]}?"


def unknown_name(cls: type[Any], prefix: str, key: str, *, is_section: bool, root: type[Any]) -> str:
    """Return the problem that a section of type `cls` has no section or setting `key`.

    Args:
        prefix: the dotted name of the section in the config of type `root`, with a dot at its end.
    """
    if is_section:
        hints = typing.get_type_hints(cls)
        names = [one.name for one in dataclasses.fields(cls) if dataclasses.is_dataclass(hints[one.name])]
        return f"{prefix}{key}: there is no such section{did_you_mean(key, names)}"
    names = [setting.name for setting in settings(cls)]
    hint = hint_for_other_section(root, key) or did_you_mean(key, names, section=prefix)
    return f"{prefix}{key}: there is no such setting{hint}"


def not_a_section(root: type[Any], setting: str, key: str) -> str:
    """Return the problem that `key` was written as if a setting of the config of type `root` were a section."""
    return f"{setting}.{key}: {setting!r} is a setting, not a section{hint_for_other_section(root, key)}"
