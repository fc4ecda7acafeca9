"""Configs: TOML files that extend each other, dotted overrides, frozen dataclasses.

A file becomes a dictionary (first what it `extends`, then the file, then the overrides), and the dictionary
becomes a config dataclass. All problems (an unknown name, a wrong type, settings that contradict each other) are
collected and raised together as one `ConfigError`.

A config dataclass is frozen. Its fields have defaults, except where the user must choose. A string literal below a
field documents it, and the type of a field gives the bounds of a number (`PositiveInt`, `Annotated[float,
Range(gt=0, lt=1)]`). The class may define `problems()`, which yields a message for every invalid combination of
values, and `variant(table)`, which selects a subclass by the values.
"""

import dataclasses
import json
import math
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tomli_w

from electra.config_fields import (
    apply_override,
    convert,
    default_of,
    not_a_section,
    plain,
    setting_name,
    unknown_name,
)
from electra.errors import ConfigError, did_you_mean

PRESETS = Path(__file__).parent / "presets"
PRESET_LAYERS = "objectives/"
"""Prefix of the presets that set an objective. A file combines one of them with a preset that sets a network."""
COMMAND_LINE = "on the command line"
"""Where overrides are from, for `load_config`."""
Config = TypeVar("Config")
Table = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Range:
    """Bounds of a numeric field, as in `Annotated[int, Range(ge=1)]`. The names are those of annotated-types."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    unit: str = ""
    """Of the bounds, for messages; the name of a setting often says it."""

    def violation(self, value: float) -> str | None:
        """Return a message if a value is out of bounds, else None. NaN and infinity are always out of bounds."""
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be a finite number, got {value}"
        within = (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )
        return None if within else f"must be {self}, got {value}"

    def __str__(self) -> str:
        limits = {"at least": self.ge, "above": self.gt, "at most": self.le, "below": self.lt}
        unit = f" {self.unit}" if self.unit else ""
        return " and ".join(f"{word} {limit:g}{unit}" for word, limit in limits.items() if limit is not None)


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
    """Check the options of a command, and raise all problems together.

    Raises:
        ConfigError: a number is out of its bounds, or options contradict each other.
    """
    problems = ["--" + problem.replace("_", "-") for problem in out_of_bounds(command)]
    if not problems and hasattr(command, "problems"):
        problems = list(command.problems())
    if problems:
        raise ConfigError("\n".join(problems))


def problems_of(section: Any) -> Iterator[str]:
    """Yield the problems of the values of one config dataclass, without its sections.

    If a number is out of its bounds, `problems()` is not called, because it may rely on them.
    """
    violations = list(out_of_bounds(section))
    yield from violations
    if not violations and hasattr(section, "problems"):
        yield from section.problems()


def out_of_bounds(section: Any) -> Iterator[str]:
    """Yield `"name: must be at least 1, got 0"` for each field whose value violates the `Range` of its type."""
    return _out_of_bounds(type(section), vars(section))


def _out_of_bounds(cls: type[Any], values: Mapping[str, Any]) -> Iterator[str]:
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        value = values.get(name)
        for limits in _ranges(hint):
            if isinstance(value, int | float) and (violation := limits.violation(value)):
                yield f"{name}: {violation}"


def value_problem(cls: type[Any], name: str, value: Any) -> str | None:
    """Return what is wrong with the type or the bounds of a TOML value for a field of `cls`; None if it is valid.

    It is for values that are checked but not used, such as settings of another kind.
    """
    try:
        converted = convert(value, typing.get_type_hints(cls, include_extras=True)[name])
    except ValueError as error:
        return f"{error}, got {value!r}"
    violations = (problem.removeprefix(f"{name}: ") for problem in _out_of_bounds(cls, {name: converted}))
    return next(violations, None)


def _ranges(hint: Any) -> Iterator[Range]:
    if typing.get_origin(hint) is Annotated:
        yield from (extra for extra in hint.__metadata__ if isinstance(extra, Range))
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _ranges(member)


def load_config(
    cls: type[Config],
    source: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    overrides_from: str = "in the overrides",
) -> Config:
    """Return the config of type `cls` that a preset or TOML file describes, with overrides applied.

    Args:
        source: the name of a preset, the path of a TOML file, or None for the defaults alone.
        overrides: `"dotted.name=value"`, the value written as in TOML (a bare word is a string).
        overrides_from: where the overrides are from, for messages, such as COMMAND_LINE.

    Raises:
        ConfigError: with every problem, one per line.
    """
    table = read_toml(source) if source is not None else {}
    problems: list[str] = []
    for override in overrides:
        apply_override(cls, table, override, problems)
    config = _build(cls, table, "", problems, root=cls)
    if problems:
        if source is not None:
            _check_extended_presets(cls, find(source))
        where = _where(problems, source, overrides, overrides_from)
        count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
        raise ConfigError(f"{count}{where}:\n" + "\n".join(f"  {problem}" for problem in problems))
    assert config is not None
    return config


def _where(
    problems: Sequence[str], source: str | Path | None, overrides: Sequence[str], overrides_from: str
) -> str:
    """Return where problems are: in the file, in the overrides, or in both. The package's presets have none."""
    if not overrides:
        return "" if source is None else f" in {source}"
    if source is None or find(source).is_relative_to(PRESETS):
        return f" {overrides_from}"
    names = {override.partition("=")[0].replace("-", "_") for override in overrides}
    sections = {name.partition(".")[0] for name in names if "." in name}
    names_with_problems = [problem.partition(":")[0].removeprefix("--") for problem in problems]
    are_overrides = [name in names or name in sections for name in names_with_problems]
    if all(are_overrides):
        return f" {overrides_from}"
    return f" in {source} and {overrides_from}" if any(are_overrides) else f" in {source}"


def _check_extended_presets(cls: type[Any], path: Path) -> None:
    """Refuse a file that extends a preset of pre-training, if its config is of another type.

    Raises:
        ConfigError: naming the file and the preset.
    """
    parents = tomllib.loads(path.read_text(encoding="utf-8")).get("extends", [])
    names = {field.name for field in dataclasses.fields(cls)}
    for parent in parents if isinstance(parents, list) else [parents]:
        file = _find_parent(parent, path)
        if not file.is_relative_to(PRESETS):
            _check_extended_presets(cls, file)
        elif not path.is_relative_to(PRESETS) and (others := sorted(set(read_toml(file)) - names)):
            raise ConfigError(
                f"{path}: extends {parent!r}, a preset of electra pretrain, whose settings do not belong here "
                f"({', '.join(others)})\n  remove it from extends"
            )


def overrides_of(values: Mapping[str, Any]) -> list[str]:
    """Return overrides for `load_config` from values by dotted name."""
    # JSON and TOML write all values the same way, except paths.
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in plain.items()]


def read_toml(source: str | Path, *, above: tuple[Path, ...] = ()) -> Table:
    """Read the table of a preset or file, merged with everything that it extends.

    `extends` names a preset or a file, or a list of several. Later ones override earlier ones, and the file
    overrides all of them.

    Args:
        above: the files that extend this one, to detect cycles.

    Raises:
        ConfigError: a file does not exist, is not valid TOML, or extends itself.
    """
    path = find(source)
    if path.resolve() in above:
        names = " -> ".join(one.name for one in (*above[above.index(path.resolve()) :], path))
        raise ConfigError(f"{path}: extends itself ({names})")
    table = read_file(path)
    parents = table.pop("extends", [])
    below: Table = {}
    for parent in parents if isinstance(parents, list) else [parents]:
        below = merged(below, read_toml(_find_parent(parent, path), above=(*above, path.resolve())))
    return merged(below, table)


def read_file(path: Path) -> Table:
    """Read the table of one file, without what it extends.

    Raises:
        ConfigError: the file is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # of TOML, or of UTF-8
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _find_parent(parent: Any, path: Path) -> Path:
    """Return the file that `extends` of a file names: a file next to it, or as `find`.

    Raises:
        ConfigError: there is none.
    """
    if (beside := path.parent / str(parent)).is_file():
        return beside
    try:
        return find(str(parent))
    except ConfigError as error:
        raise ConfigError(f"{path}: extends: {error}") from error


def find(source: str | Path) -> Path:
    """Return the file of a preset, or the path of a file that exists.

    Raises:
        ConfigError: there is neither.
    """
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
    """Return the sorted names of the package's complete presets, or of those in a folder such as objectives."""
    return sorted(path.stem for path in (PRESETS / folder).glob("*.toml"))


def merged(below: Table, above: Table) -> Table:
    """Return `below` with the values of `above`, which override it, table by table."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def to_table(config: Any) -> Table:
    """Return a config as plain TOML values. Fields that are None are left out, because TOML has no null."""
    table: Table = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            table[field.name] = to_table(value)
        elif value is not None:
            table[setting_name(field.name)] = plain(value)
    return table


def to_toml(config: Any) -> str:
    """Return a config as TOML text. `load_config` reads it back to an equal config."""
    return tomli_w.dumps(to_table(config))


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return every setting of a config by its dotted name."""
    settings: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            settings |= flat(value, f"{prefix}{field.name}.")
        else:
            settings[prefix + setting_name(field.name)] = value
    return settings


def _build(cls: type[Any], table: Table, prefix: str, problems: list[str], *, root: type[Any]) -> Any:
    """Build a `cls` from a table; None if that is impossible. Problems are added to `problems`.

    Sections are checked independently, so that all problems are reported at once.

    Args:
        prefix: the dotted name of this section in the config of type `root`, with a dot at its end.
    """
    if hasattr(cls, "variant"):
        # These settings select the class, so their type is checked first.
        not_text = [key for key in ("kind", "positions") if not isinstance(table.get(key, ""), str)]
        if not_text:
            problems.extend(f"{prefix}{key}: must be text, got {table[key]!r}" for key in not_text)
            return None
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
    known = {setting_name(name) for name in fields}
    for key in table:
        if key not in known:
            problems.append(unknown_name(cls, prefix, key, is_section=isinstance(table[key], dict), root=root))
    values, is_incomplete = Table(), False
    for name, field in fields.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            below = table.get(name, {})
            if isinstance(below, dict):
                values[name] = _build(typing.cast(type[Any], hint), below, f"{prefix}{name}.", problems, root=root)
                is_incomplete |= values[name] is None
            else:
                near = f"; did you mean --{prefix}{name}.path?" if hasattr(hint, "path") else ""
                problems.append(f"{prefix}{name}: is a section, not a setting; got {below!r}{near}")
                is_incomplete = True
        elif isinstance(below := table.get(key := setting_name(name)), dict) and below:
            problems.extend(not_a_section(root, prefix + key, inner) for inner in below)
            is_incomplete = True
        elif key in table:
            try:
                values[name] = convert(table[key], hint)
            except ValueError as error:
                problems.append(f"{prefix}{key}: {error}, got {table[key]!r}")
                is_incomplete = True
        elif default_of(field) is dataclasses.MISSING:
            problems.append(f"{prefix}{name}: is missing; give --{prefix}{name} VALUE")
            is_incomplete = True
    if is_incomplete:
        problems.extend(prefix + problem for problem in _out_of_bounds(cls, values))
        return None
    config = cls(**values)
    problems.extend(prefix + problem for problem in problems_of(config))
    return config
