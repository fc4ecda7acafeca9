"""Studies: tables and figures as TOML files, each a list of arms that are compared at equal compute.

    title = "..."                    the question
    base = "electra-tiny"            the preset that all arms change
    control = "electra"              the arm that the others are compared with
    shares = [1.0]                   fractions of the budget; each arm is run at each of them
    tasks = ["cola", "sst-2:0.15"]   tasks that score the arms, some with a fraction of their data, and frozen
                                     probes (`electra.analysis.frozen_probes`); default: SUITE
    reached = {...}                  held-out metrics and thresholds; the tokens needed to reach them are reported
    set = {...}                      settings of all arms, by dotted name
    own_rows = true                  the arms may pack the text into rows in different ways
    figure = "eval/perplexity"       the held-out metric that arms are compared by without tasks; default: the AUC
    costs = true                     show parameters, speed and memory too

    [arms.electra-15]
    says = "..."                     label in the table
    extends = ["objectives/..."]     presets or files whose settings override those of the base
    set = { "masking.share" = 0.25 }
    control = "electra"              the arm that this one is compared with; default: the study's control
    paper = 82.4                     the published score; or { "0.5" = 80.1, "1" = 82.4 }, by fraction
    line, x                          where the arm is in the figure: the name of a curve, and the x value

    [contrasts.gain]                 a sum of arms less another one, seed by seed, with an interval
    says = "..."                     label in the table
    plus, minus = ["a", "b"], ["c", "d"]

A file of your own works in place of a name.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from electra import config
from electra.analysis.frozen_probes import FROZEN_PROBES
from electra.config import PRESETS, find, read_toml
from electra.config_fields import settings
from electra.errors import ConfigError, did_you_mean
from electra.pretraining.config import PretrainConfig
from electra.reports.study_results import UNIGRAM_AUC
from electra.tasks.catalog import NAMED_TASKS

FOLDER = PRESETS / "studies"
SUITE = ("cola", "sst-2:0.15", "mrpc", "sts-b", "chunking")
"""Tasks of a study that names none. SST-2 with 10,000 sentences, different ones for each seed."""
ARM_NAME = re.compile(r"[\w-][\w.-]*")
PATH_SETTINGS = ("init.generator",)
"""Settings of an arm whose value is a path."""
STUDY_DECIDES = ("data", "out", "train.steps", "train.minutes", "train.seed", "init.discriminator", "init.from")
"""Settings that the study sets for every arm."""


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        label: a few words for the table.
        control: the arm that it is compared with; for the study's control, itself.
        extends: presets or files whose settings override those of the base.
        settings: settings by dotted name, which override those of `extends`.
        published: the published score, in the study's unit, at the whole budget; or by fraction of it.
        line, x: the curve of the figure that has the arm as a point, and the x value of the point.
    """

    name: str
    label: str
    control: str
    extends: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: float | Mapping[str, float] | None = None
    line: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Contrast:
    """A comparison of several arms: the sum of the scores of some less the sum of those of as many others."""

    name: str
    label: str
    plus: tuple[str, ...]
    minus: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """Arms that are compared.

    Attributes:
        source: where the published scores are from.
        axis: the label of the x axis.
        budget_fractions: each arm is run at each of them.
        thresholds: values of held-out metrics, by name; the tokens needed to reach them are reported.
        settings: the settings of all arms, by dotted name.
        own_packing: whether arms may pack the text into rows in different ways; their held-out rows then differ.
        metric: the held-out metric that arms are compared by without fine-tuning.
        show_costs: whether the table has parameters, speed and memory.
    """

    name: str
    title: str
    base: str
    control: str
    arms: tuple[Arm, ...]
    contrasts: tuple[Contrast, ...] = ()
    source: str = ""
    axis: str = ""
    budget_fractions: tuple[float, ...] = (1.0,)
    tasks: tuple[str, ...] = SUITE
    thresholds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    own_packing: bool = False
    metric: str = UNIGRAM_AUC
    show_costs: bool = False

    def arm_toml(self, arm: Arm, folder: Path) -> str:
        """The config of an arm as a TOML file in a folder; paths in it are relative to the folder."""
        table: dict[str, Any] = {"extends": [relative_source(folder, one) for one in (self.base, *arm.extends)]}
        for name, value in {**self.settings, **arm.settings}.items():
            *sections, key = name.split(".")
            inner = table
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[key] = value
        return tomli_w.dumps(table)

    def with_arms(self, names: Sequence[str]) -> "Study":
        """The study with these arms and their controls only; with all arms if there are no names.

        Raises:
            ConfigError: there is no such arm.
        """
        known = [arm.name for arm in self.arms]
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"--arms: {self.name} has no arm {', '.join(unknown)}; it has {', '.join(known)}")
        kept = {self.control, *(names or known)}
        kept |= {arm.control for arm in self.arms if arm.name in kept}
        return replace(self, arms=tuple(arm for arm in self.arms if arm.name in kept))


def parse_task(task: str) -> tuple[str, float]:
    """Split `sts-b:0.25` into the task's name and the fraction of its training data; without a colon that is 1.

    Raises:
        ConfigError: it is no fraction.
    """
    name, colon, text = task.partition(":")
    try:
        fraction = float(text) if colon else 1.0
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise ConfigError(f"{task}: after the colon comes a fraction of the training data, above 0 and at most 1")
    return name, fraction


def check_tasks(tasks: Sequence[str]) -> None:
    """Check that all tasks exist, and that none is named twice.

    Raises:
        ConfigError: naming the first problem.
    """
    for task in tasks:
        name, _ = parse_task(task)
        if name not in (known := [*NAMED_TASKS, *FROZEN_PROBES]):
            raise ConfigError(f"there is no task {name!r}{did_you_mean(name, known)}; tasks: {', '.join(known)}")
        if tasks.count(task) > 1:
            raise ConfigError(f"{task} is named twice")
        if name in FROZEN_PROBES and task != name:
            raise ConfigError(f"{task}: a probe reads fixed sentences; write {name} without a fraction")


def study_names() -> list[str]:
    """The studies that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_study(source: str, *, base: str | None = None) -> Study:
    """The study of a name or of a TOML file.

    Args:
        base: the preset that the arms change, in place of the study's.

    Raises:
        ConfigError: there is no such study, or the file has problems; all are named.
    """
    path = FOLDER / f"{source}.toml"
    if not path.is_file():
        path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f"there is no study or file {source!r}{did_you_mean(source, study_names())}\n"
            f"  studies: {', '.join(study_names())}; or give the path of a TOML file"
        )
    table = read_toml(path)
    if base is not None:
        try:
            find(base)
        except ConfigError as error:
            raise ConfigError(f"--base: {error}") from error
    if problems := list(_problems(table)):
        raise ConfigError(f"{path}:\n" + "\n".join(f"  {problem}" for problem in problems))
    arms = tuple(
        Arm(
            name=name, label=arm.get("says", name), control=arm.get("control", table["control"]),
            extends=tuple(_absolute_source(one, path) for one in arm.get("extends", ())),
            settings=_settings(arm, path), published=arm.get("paper"), line=arm.get("line", ""), x=arm.get("x"),
        )
        for name, arm in table["arms"].items()
    )  # fmt: skip
    contrasts = tuple(
        Contrast(name, one.get("says", name), tuple(one["plus"]), tuple(one["minus"]))
        for name, one in table.get("contrasts", {}).items()
    )
    thresholds = {name: tuple(levels) for name, levels in table.get("reached", {}).items()}
    return Study(
        name=path.stem, title=table["title"],
        base=_absolute_source(base, Path()) if base else _absolute_source(table["base"], path),
        control=table["control"], arms=arms, contrasts=contrasts,
        source=table.get("paper", ""), axis=table.get("axis", ""),
        budget_fractions=tuple(table.get("shares", (1.0,))), tasks=tuple(table.get("tasks", SUITE)),
        thresholds=thresholds, settings=_settings(table, path), own_packing=table.get("own_rows", False),
        metric=table.get("figure", UNIGRAM_AUC), show_costs=table.get("costs", False),
    )  # fmt: skip


def _settings(table: config.Table, path: Path) -> config.Table:
    """The settings of `set`; paths in it may be relative to the file."""
    return {
        name: str((path.parent / value).resolve())
        if name in PATH_SETTINGS and (path.parent / str(value)).exists()
        else value
        for name, value in table.get("set", {}).items()
    }


def _absolute_source(source: str, path: Path) -> str:
    """The absolute path of a file next to the study's; the name of a preset as it is."""
    file = path.parent / source
    return str(file.resolve()) if file.is_file() else source


def relative_source(folder: Path, source: str) -> str:
    """A file's path relative to a folder, so that both can be moved together; the name of a preset as it is."""
    return os.path.relpath(source, folder.resolve()) if Path(source).is_absolute() else source


TEXT, LIST, TABLE, NUMBER = "text, in quotation marks", "a list, in brackets", "a table, in braces", "a number"
BOOLEAN = "true or false"
TYPES: Mapping[str, type | tuple[type, ...]] = {
    TEXT: str, LIST: list, TABLE: dict, NUMBER: (int, float), BOOLEAN: bool,
}  # fmt: skip
KEYS = {
    "title": TEXT, "base": TEXT, "control": TEXT, "arms": TABLE, "paper": TEXT, "axis": TEXT, "shares": LIST,
    "tasks": LIST, "reached": TABLE, "set": TABLE, "own_rows": BOOLEAN,
    "figure": TEXT, "costs": BOOLEAN, "contrasts": TABLE,
}  # fmt: skip
"""Keys of a study's file, with the type of each."""
ARM_KEYS = {
    "says": TEXT, "extends": LIST, "set": TABLE, "control": TEXT, "line": TEXT, "x": NUMBER,
}  # fmt: skip
CONTRAST_KEYS = {"says": TEXT, "plus": LIST, "minus": LIST}


def _problems(table: config.Table) -> Iterator[str]:
    """All problems of a study's file. A value of the wrong type does not hide problems of other values."""
    problems = list(_type_problems(table, KEYS, ""))
    problems += [f"{key}: is missing" for key in ("title", "base", "control", "arms") if key not in table]
    table = _well_typed(table, KEYS)
    arms = table.get("arms", {})
    problems += _type_problems(arms, dict.fromkeys(arms, TABLE), "arms.")
    arms = _well_typed(arms, dict.fromkeys(arms, TABLE))
    for name, arm in arms.items():
        keys = {**ARM_KEYS, "paper": TABLE if isinstance(arm.get("paper"), dict) else NUMBER}
        problems += _type_problems(arm, keys, f"arms.{name}.")
        arms[name] = _well_typed(arm, keys)
    thresholds = table.get("reached", {})
    problems += _type_problems(thresholds, dict.fromkeys(thresholds, LIST), "reached.")
    thresholds = _well_typed(thresholds, dict.fromkeys(thresholds, LIST))
    contrasts = table.get("contrasts", {})
    problems += _type_problems(contrasts, dict.fromkeys(contrasts, TABLE), "contrasts.")
    contrasts = _well_typed(contrasts, dict.fromkeys(contrasts, TABLE))
    for name, contrast in contrasts.items():
        problems += _type_problems(contrast, CONTRAST_KEYS, f"contrasts.{name}.")
        contrasts[name] = _well_typed(contrast, CONTRAST_KEYS)
    yield from problems
    yield from _value_problems({**table, "arms": arms, "reached": thresholds, "contrasts": contrasts})


def _has_type(value: Any, expected: str) -> bool:
    return isinstance(value, TYPES[expected]) and isinstance(value, bool) == (expected == BOOLEAN)


def _well_typed(table: config.Table, keys: Mapping[str, str]) -> config.Table:
    """The known keys whose values have the right type."""
    return {key: value for key, value in table.items() if key in keys and _has_type(value, keys[key])}


def _type_problems(table: config.Table, keys: Mapping[str, str], where: str) -> Iterator[str]:
    """Unknown keys, and values of another type than theirs."""
    for key, value in table.items():
        if key not in keys:
            yield f"{where}{key}: there is no such setting{did_you_mean(key, sorted(keys))}"
        elif not _has_type(value, keys[key]):
            yield f"{where}{key}: must be {keys[key]}, got {value!r}"


def _value_problems(table: config.Table) -> Iterator[str]:
    """Problems of values that have the right type."""
    arms, fractions = table["arms"], table.get("shares", [1.0])
    controls = {"control": table["control"]} if "control" in table else {}
    controls |= {f"arms.{name}.control": arm["control"] for name, arm in arms.items() if "control" in arm}
    for where, control in controls.items():
        if control not in arms:
            hint = did_you_mean(control, list(arms))
            yield f"{where}: there is no arm {control!r}{hint}; there are {', '.join(arms)}"
    if len(set(fractions)) < len(fractions):
        yield f"shares: one is given twice, in {fractions}"
    if not fractions or not all(isinstance(one, int | float) and 0 < one <= 1 for one in fractions):
        yield f"shares: must be above 0 and at most 1, got {fractions}"
    try:
        check_tasks([str(task) for task in table.get("tasks", [])])
    except ConfigError as error:
        yield f"tasks: {error}"
    for name, arm in arms.items():
        if not ARM_NAME.fullmatch(name):
            yield f"arms.{name}: a name may have letters, digits and - _ . in it, because it names a folder"
        published = arm["paper"] if isinstance(arm.get("paper"), dict) else {}
        if not all(isinstance(score, int | float) for score in published.values()):
            yield f"arms.{name}.paper: must be a number for each share of the budget, got {published}"
        if unknown := [one for one in published if one not in [f"{fraction:g}" for fraction in fractions]]:
            yield f"arms.{name}.paper: there is no share {unknown[0]}; there are {fractions}"
    for name, contrast in table["contrasts"].items():
        plus, minus = contrast.get("plus", []), contrast.get("minus", [])
        if not plus or len(plus) != len(minus):
            yield f"contrasts.{name}: needs as many arms in plus as in minus, got {plus} and {minus}"
        if unknown := [one for one in (*plus, *minus) if one not in arms]:
            hint = did_you_mean(str(unknown[0]), list(arms))
            yield f"contrasts.{name}: there is no arm {unknown[0]!r}{hint}; there are {', '.join(arms)}"
    for name, levels in table.get("reached", {}).items():
        if not all(isinstance(level, int | float) for level in levels):
            yield f"reached.{name}: must be a list of numbers, got {levels}"
    names = [setting.name for setting in settings(PretrainConfig)]
    for where, given in [
        ("", table.get("set", {})),
        *((f"arms.{n}.", a.get("set", {})) for n, a in arms.items()),
    ]:
        for name in given:
            if name in STUDY_DECIDES:
                yield f"{where}set: {name} is set by the study; leave it out"
            elif name not in names:
                yield f"{where}set: there is no setting {name!r}{did_you_mean(name, names)}"
