"""Configurations: TOML files that extend each other, dotted overrides, frozen dataclasses.

A file becomes a dictionary (`extends` first, then the file, then the overrides), and the dictionary becomes
the dataclass that a verb asks for. Every problem on the way (an unknown name, a wrong type, settings at
odds with each other) is gathered, and all of them are raised together as one `ConfigError`.

A config dataclass is frozen and gives every field a default, or none where the user must choose. A string literal
right below a field documents it, and the field's type bounds a number (`PositiveInt`, `Annotated[float,
Range(gt=0, lt=1)]`). It may define `problems()`, which yields a message for every combination of values that
cannot work, and `variant(table)`, which chooses a subclass by the values themselves.
"""

import ast
import dataclasses
import inspect
import json
import re
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tomli_w

from electra.errors import ConfigError, did_you_mean

PRESETS = Path(__file__).parent / "presets"
PRESET_LAYERS = "objectives/"
"""Presets that say what is learnt, and are laid over one that says by which network."""
Config = TypeVar("Config")
Table = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Range:
    """Bounds of a numeric field, as in `Annotated[int, Range(ge=1)]`. The names are those of annotated-types."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def violation(self, value: float) -> str | None:
        """What is wrong with a value; None where it lies within the bounds. NaN lies within none."""
        within = (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )
        return None if within else f"must be {self}, got {value}"

    def __str__(self) -> str:
        limits = {"at least": self.ge, "above": self.gt, "at most": self.le, "below": self.lt}
        return " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)


PositiveInt = Annotated[int, Range(ge=1)]
NonNegativeInt = Annotated[int, Range(ge=0)]
PositiveFloat = Annotated[float, Range(gt=0)]
NonNegativeFloat = Annotated[float, Range(ge=0)]
Fraction = Annotated[float, Range(ge=0, le=1)]
"""A share or probability; 0 and 1 are allowed."""
OpenFraction = Annotated[float, Range(gt=0, lt=1)]
"""A share or probability strictly between 0 and 1."""
DropoutProbability = Annotated[float, Range(ge=0, lt=1)]


def check(command: Any) -> None:
    """Raise the problems of a command's options together.

    Raises:
        ConfigError: a number is out of its bounds, or options contradict each other.
    """
    violations = [problem.partition(":") for problem in out_of_bounds(command)]
    problems = [f"--{name.replace('_', '-')}: {violation.strip()}" for name, _, violation in violations]
    if not problems and hasattr(command, "problems"):
        problems = list(command.problems())
    if problems:
        raise ConfigError("\n".join(problems))


def problems_of(section: Any) -> Iterator[str]:
    """What is wrong with the values of one config dataclass (not with those of its sections).

    Where a number is out of its bounds, `problems()` is not asked: it may rely on them.
    """
    violations = list(out_of_bounds(section))
    yield from violations
    if not violations and hasattr(section, "problems"):
        yield from section.problems()


def out_of_bounds(section: Any) -> Iterator[str]:
    """`"name: must be at least 1, got 0"` for each field whose value violates the `Range` of its type."""
    for name, hint in typing.get_type_hints(type(section), include_extras=True).items():
        value = getattr(section, name)
        for limits in _ranges(hint):
            if isinstance(value, int | float) and (violation := limits.violation(value)):
                yield f"{name}: {violation}"


def _ranges(hint: Any) -> Iterator[Range]:
    if typing.get_origin(hint) is Annotated:
        yield from (extra for extra in hint.__metadata__ if isinstance(extra, Range))
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _ranges(member)


def load_config(cls: type[Config], source: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The config of type `cls` that a preset or TOML file describes, with overrides applied.

    Args:
        source: the name of a preset, the path of a TOML file, or None for the defaults alone.
        overrides: `"dotted.name=value"`, the value written as in TOML (a bare word is a string).

    Raises:
        ConfigError: with every problem that was found, one a line.
    """
    table = read_toml(source) if source is not None else {}
    problems: list[str] = []
    for override in overrides:
        _override(table, override, problems)
    config = _build(cls, table, "", problems, root=cls)
    if problems:
        where = f" in {source}" if source is not None else ""
        raise ConfigError(f"{_count(len(problems), 'problem')}{where}:\n" + "\n".join(f"  {p}" for p in problems))
    assert config is not None
    return config


def overrides_of(values: Mapping[str, Any]) -> list[str]:
    """Overrides for `load_config` from values by dotted name."""
    # JSON writes values as TOML does, but for paths.
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    return [f"{name}={json.dumps(value)}" for name, value in plain.items()]


def read_toml(source: str | Path, *, above: tuple[Path, ...] = ()) -> Table:
    """A preset's or file's table with everything that it extends merged in below it.

    `extends` names a preset or a file, or several in a list, of which later ones lie over earlier ones.

    Args:
        above: the files that led here by what they extend.
    """
    path = find(source)
    if path.resolve() in above:
        names = " -> ".join(one.name for one in (*above[above.index(path.resolve()) :], path))
        raise ConfigError(f"{path}: extends itself ({names})")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # of TOML, or of UTF-8
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    parents = table.pop("extends", [])
    below: Table = {}
    for parent in parents if isinstance(parents, list) else [parents]:
        beside = path.parent / str(parent)
        below = merged(
            below, read_toml(beside if beside.is_file() else str(parent), above=(*above, path.resolve()))
        )
    return merged(below, table)


def find(source: str | Path) -> Path:
    """The file of a preset's name or of a path."""
    preset = PRESETS / f"{source}.toml"
    if preset.is_file():
        return preset
    if Path(source).is_file():
        return Path(source)
    objectives = "/" in str(source)
    names = [f"{PRESET_LAYERS}{name}" for name in preset_names(PRESET_LAYERS)] if objectives else preset_names()
    raise ConfigError(
        f"no preset and no file is called {str(source)!r}{did_you_mean(str(source), names)}\n"
        f"  presets: {', '.join(names)}; or give the path of a TOML file"
    )


def preset_names(folder: str = "") -> list[str]:
    """The presets that the package ships, sorted: those that stand for themselves, or those of a folder."""
    return sorted(path.stem for path in (PRESETS / folder).glob("*.toml"))


def merged(below: Table, above: Table) -> Table:
    """`above` laid over `below`, table by table."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def to_table(config: Any) -> Table:
    """A config as plain TOML values; fields that are None are left out, since TOML has no null."""
    table: Table = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            table[field.name] = to_table(value)
        elif value is not None:
            table[field.name] = _plain(value)
    return table


def to_toml(config: Any) -> str:
    """A config as TOML text that `load_config` reads back to an equal config."""
    return tomli_w.dumps(to_table(config))


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of a config by its dotted name."""
    settings: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            settings |= flat(value, f"{prefix}{field.name}.")
        else:
            settings[prefix + field.name] = value
    return settings


@dataclasses.dataclass(frozen=True)
class Setting:
    """One documented setting of a config dataclass.

    Attributes:
        kinds: the variants of its section that have it; empty: all of them.
    """

    name: str
    type: str
    default: str
    documentation: str
    kinds: tuple[str, ...] = ()


def settings(cls: type[Any], prefix: str = "") -> Iterator[Setting]:
    """Every setting below a config dataclass, in order, for the reference page.

    A section with variants (`variants()` gives their classes by name) has the settings of all of them.
    """
    variants: Mapping[str, type[Any]] = cls.variants() if hasattr(cls, "variants") else {"": cls}
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
        default = _default(next(field for field in dataclasses.fields(variant) if field.name == name))
        shown = "required" if default is dataclasses.MISSING else repr(_plain(default))
        is_kind = name == "kind" and len(variants) > 1
        takes = f"one of {', '.join(variants)}" if is_kind else _type_name(hint)
        documentation = field_documentation(variant).get(name, "")
        yield Setting(
            prefix + name, takes, shown, documentation, () if len(kinds) == len(variants) else tuple(kinds)
        )


def field_documentation(cls: type[Any]) -> dict[str, str]:
    """The string literals below the fields of a dataclass and of the dataclasses it extends, by field name."""
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


def _override(table: Table, override: str, problems: list[str]) -> None:
    name, equals, text = override.partition("=")
    name = name.replace("-", "_")
    if not equals:
        problems.append(f"--{name}: needs a value, as in --{name} VALUE")
        return
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, key = name.split(".")
    for section in sections:
        below = table.setdefault(section, {})
        if not isinstance(below, dict):
            problems.append(f"{name}: {section!r} is a setting, not a section")
            return
        table = below
    table[key] = value


def _build(cls: type[Any], table: Table, prefix: str, problems: list[str], *, root: type[Any]) -> Any:
    """`cls` from a table, or None where that cannot be; what is wrong is added to `problems`.

    Every section that can be built says what is wrong with its values together, whatever the others are like.

    Args:
        prefix: the dotted name of the section that `cls` is in the config of type `root`.
    """
    if hasattr(cls, "variant"):
        try:
            cls, table = cls.variant(table)
        except ConfigError as error:
            problems.append(f"{prefix}kind: {error}")
            return None
        except ValueError as error:
            problems.extend(prefix + line for line in str(error).splitlines())
            return None
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in table:
        if key not in fields:
            known = [setting.name for setting in settings(cls)]
            hint = did_you_mean(key, known) or _elsewhere(root, key)
            problems.append(f"{prefix}{key}: there is no such setting{hint}")
    values, broken = Table(), False
    for name, field in fields.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            below = table.get(name, {})
            if isinstance(below, dict):
                values[name] = _build(typing.cast(type[Any], hint), below, f"{prefix}{name}.", problems, root=root)
                broken |= values[name] is None
            else:
                problems.append(f"{prefix}{name}: is a section, not a setting; got {below!r}")
                broken = True
        elif name in table:
            try:
                values[name] = _convert(table[name], hint)
            except ValueError as error:
                problems.append(f"{prefix}{name}: {error}, got {table[name]!r}")
                broken = True
        elif _default(field) is dataclasses.MISSING:
            problems.append(f"{prefix}{name}: is missing; give --{prefix}{name} VALUE")
            broken = True
    if broken:
        return None
    config = cls(**values)
    problems.extend(prefix + problem for problem in problems_of(config))
    return config


def _elsewhere(cls: type[Any], key: str) -> str:
    """A hint for a setting that was written in the wrong section."""
    homes = [name for name in (s.name for s in settings(cls)) if name.rpartition(".")[2] == key]
    return f"; did you mean {homes[0]!r}?" if homes else ""


def _convert(value: Any, hint: Any) -> Any:
    """A TOML value as the type that a field asks for; ValueError says what was wanted."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _convert(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _convert(value, next(a for a in arguments if a is not types.NoneType))
    if origin is typing.Literal:
        if value in arguments:
            return value
        known = [str(a) for a in arguments]
        near = did_you_mean(str(value), known).removeprefix("; ")
        raise ValueError(f"must be one of {', '.join(known)}{f' ({near})' if near else ''}")
    if origin is tuple:
        return tuple(_convert(v, arguments[0]) for v in (value if isinstance(value, list) else [value]))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str) and re.fullmatch(r"[+-]?(\.\d+|\d+\.)", value):
        return float(value)  # .25 and 5. on the command line: numbers to a reader, though not to TOML
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if type(value) is not hint:
        raise ValueError(f"must be {_type_name(hint)}")
    return value


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def _type_name(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _type_name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join("nothing" if a is types.NoneType else _type_name(a) for a in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(str(a) for a in arguments)
    if origin is tuple:
        return f"a list of {_type_name(arguments[0]).removeprefix('a ')}s"
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
