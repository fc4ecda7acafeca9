"""Studies: tables and figures as TOML files, each a list of arms that are compared at equal compute.

    title = "..."                    what is asked
    base = "electra-tiny"            the preset that all arms change
    control = "electra"              the arm that the others are compared with
    shares = [1.0]                   of the budget: each arm is run at each of them
    tasks = ["cola", "sst-2:0.15"]   that arms are scored by, or a part of their training data; left out: SUITE
    reached = {...}                  figures and levels: how many tokens it took to reach them
    set = {...}                      settings of all arms, by dotted name
    own_rows = true                  arms may cut the text into rows as they like: that is what is compared
    figure = "eval/perplexity"       the held-out figure that arms are scored by without tasks; left out: the AUC
    costs = true                     show parameters, speed and memory too

    [arms.electra-15]
    says = "..."                     for the table
    extends = ["objectives/..."]     presets or files that are laid over the base
    set = { "masking.share" = 0.25 }
    control = "electra"              the arm that this one is compared with, where it is not the study's control
    paper = 82.4                     the published score; or { "0.5" = 80.1, "1" = 82.4 }, by share
    line, x                          where the arm stands in the figure: a line's name, and a number along it

A file of one's own works as a name does.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from electra import config
from electra.config import PRESETS, did_you_mean, read_toml
from electra.errors import ConfigError
from electra.finetuning import load_task

FOLDER = PRESETS / "studies"
SUITE = ("cola", "sst-2:0.15", "mrpc", "sts-b", "chunking")
"""What arms are scored by where a study does not say; SST-2 with 10,000 sentences, others for each seed."""
AUC = "eval/unigram_auc"
NAME = re.compile(r"[\w-][\w.-]*")
"""Of an arm."""
PATHS = ("init.generator",)
"""Settings of an arm that say where something lies."""
DECIDED = ("data", "out", "train.steps", "train.minutes", "train.seed", "init.discriminator")
"""Settings that a study decides for every arm."""


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        says: a few words for the table.
        extends: presets or files that are laid over the base.
        settings: by dotted name, over those.
        control: the arm that it is compared with; the study's control knows itself.
        paper: the published score, in the study's unit, of the whole budget; or by share of it.
        line, x: the line of the figure that the arm is a point of, and where along it.
    """

    name: str
    says: str
    control: str
    extends: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: float | Mapping[str, float] | None = None
    line: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Study:
    """Arms that are compared.

    Attributes:
        paper: where the published scores are from.
        axis: what `x` counts.
        reached: levels of held-out figures, by name: the tokens that it took to reach them are reported.
        settings: of all arms, by dotted name.
        own_rows: arms may differ in how the text is cut into rows; their held-out figures are then of other rows.
        figure: the held-out figure that arms are scored by where nothing is fine-tuned.
        costs: parameters, speed and memory are shown.
    """

    name: str
    title: str
    base: str
    control: str
    arms: tuple[Arm, ...]
    paper: str = ""
    axis: str = ""
    shares: tuple[float, ...] = (1.0,)
    tasks: tuple[str, ...] = SUITE
    reached: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    own_rows: bool = False
    figure: str = AUC
    costs: bool = False

    def toml(self, arm: Arm, folder: Path) -> str:
        """The config of an arm as a file of its own in a folder, from where it names other files."""
        table: dict[str, Any] = {"extends": [seen_from(folder, one) for one in (self.base, *arm.extends)]}
        for name, value in {**self.settings, **arm.settings}.items():
            *sections, key = name.split(".")
            below = table
            for section in sections:
                below = below.setdefault(section, {})
            below[key] = value
        return tomli_w.dumps(table)


def task_and_fraction(task: str) -> tuple[str, float]:
    """Of `sts-b:0.25` the task's name and the share of its training data; of `sts-b` all of them.

    Raises:
        ConfigError: the share is none.
    """
    name, colon, written = task.partition(":")
    try:
        fraction = float(written) if colon else 1.0
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise ConfigError(f"{task}: behind the colon stands a share of the training data, above 0 and at most 1")
    return name, fraction


def check_tasks(tasks: Sequence[str]) -> None:
    """Refuse tasks that there are not, and those named twice.

    Raises:
        ConfigError: naming the first.
    """
    for task in tasks:
        name, _ = task_and_fraction(task)
        if name not in load_task.task_names():
            known = load_task.task_names()
            raise ConfigError(f"there is no task {name!r}{did_you_mean(name, known)}; tasks: {', '.join(known)}")
        if tasks.count(task) > 1:
            raise ConfigError(f"{task} is named twice")


def names() -> list[str]:
    """The studies that the package ships."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_study(source: str, *, base: str | None = None) -> Study:
    """The study of a name or of a file.

    Args:
        base: the preset that the arms change, in place of the study's.

    Raises:
        ConfigError: there is no such study, or it is not as it must be; every problem is named.
    """
    path = FOLDER / f"{source}.toml"
    if not path.is_file():
        path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f"no study and no file is called {source!r}{did_you_mean(source, names())}\n"
            f"  studies: {', '.join(names())}; or give the path of a TOML file"
        )
    table = read_toml(path)
    problems = list(_problems(table))
    if problems:
        raise ConfigError(f"{path}:\n" + "\n".join(f"  {problem}" for problem in problems))
    arms = tuple(
        Arm(
            name=name, says=arm.get("says", name), control=arm.get("control", table["control"]),
            extends=tuple(_beside(one, path) for one in arm.get("extends", ())),
            settings=_settings(arm, path), paper=arm.get("paper"), line=arm.get("line", ""), x=arm.get("x"),
        )
        for name, arm in table["arms"].items()
    )  # fmt: skip
    reached = {name: tuple(levels) for name, levels in table.get("reached", {}).items()}
    return Study(
        name=path.stem, title=table["title"], base=_beside(base, Path()) if base else _beside(table["base"], path),
        control=table["control"], arms=arms,
        paper=table.get("paper", ""), axis=table.get("axis", ""), shares=tuple(table.get("shares", (1.0,))),
        tasks=tuple(table.get("tasks", SUITE)), reached=reached, settings=_settings(table, path),
        own_rows=table.get("own_rows", False), figure=table.get("figure", AUC), costs=table.get("costs", False),
    )  # fmt: skip


def _settings(table: config.Table, path: Path) -> config.Table:
    """What `set` says; paths in it may be relative to the file."""
    return {
        name: str((path.parent / value).resolve())
        if name in PATHS and (path.parent / str(value)).exists()
        else value
        for name, value in table.get("set", {}).items()
    }


def _beside(source: str, path: Path) -> str:
    """A file that lies beside the study's by its whole path, whoever reads it from wherever; else the name."""
    beside = path.parent / source
    return str(beside.resolve()) if beside.is_file() else source


def seen_from(folder: Path, source: str) -> str:
    """A file's path from a folder, wherever the two lie together on a machine; the name of a preset as it is."""
    return os.path.relpath(source, folder.resolve()) if Path(source).is_absolute() else source


TEXT, LIST, TABLE, NUMBER = "text, in quotation marks", "a list, in brackets", "a table, in braces", "a number"
TRUTH = "true or false"
TYPES: Mapping[str, type | tuple[type, ...]] = {
    TEXT: str, LIST: list, TABLE: dict, NUMBER: (int, float), TRUTH: bool,
}  # fmt: skip
KEYS = {
    "title": TEXT, "base": TEXT, "control": TEXT, "arms": TABLE, "paper": TEXT, "axis": TEXT, "shares": LIST,
    "tasks": LIST, "reached": TABLE, "set": TABLE, "own_rows": TRUTH,
    "figure": TEXT, "costs": TRUTH,
}  # fmt: skip
"""Of a study's file, and what each must be."""
ARM_KEYS = {
    "says": TEXT, "extends": LIST, "set": TABLE, "control": TEXT, "line": TEXT, "x": NUMBER,
}  # fmt: skip


def _problems(table: config.Table) -> Iterator[str]:
    found = list(_untyped(table, KEYS, ""))
    found += [f"{key}: is missing" for key in ("title", "base", "control", "arms") if key not in table]
    if not found:
        found = list(_untyped(table["arms"], dict.fromkeys(table["arms"], TABLE), "arms."))
    if not found:
        for name, arm in table["arms"].items():
            paper = {"paper": TABLE if isinstance(arm.get("paper"), dict) else NUMBER}
            found += _untyped(arm, {**ARM_KEYS, **paper}, f"arms.{name}.")
        reached = table.get("reached", {})
        found += _untyped(reached, dict.fromkeys(reached, LIST), "reached.")
    yield from found or _contradictions(table)


def _untyped(table: config.Table, keys: Mapping[str, str], where: str) -> Iterator[str]:
    """Keys that there are not, and values that are no such thing."""
    for key, value in table.items():
        if key not in keys:
            yield f"{where}{key}: there is no such setting{did_you_mean(key, sorted(keys))}"
        elif not isinstance(value, TYPES[keys[key]]) or isinstance(value, bool) != (keys[key] == TRUTH):
            yield f"{where}{key}: must be {keys[key]}, got {value!r}"


def _contradictions(table: config.Table) -> Iterator[str]:
    """What is wrong with a study whose keys and types are right."""
    arms, shares = table["arms"], table.get("shares", [1.0])
    controls = {"control": table["control"]} | {
        f"arms.{name}.control": arm["control"] for name, arm in arms.items() if "control" in arm
    }
    for where, control in controls.items():
        if control not in arms:
            hint = did_you_mean(control, list(arms))
            yield f"{where}: there is no arm {control!r}{hint}; there are {', '.join(arms)}"
    if len(set(shares)) < len(shares):
        yield f"shares: one is given twice, in {shares}"
    if not shares or not all(isinstance(share, int | float) and 0 < share <= 1 for share in shares):
        yield f"shares: must lie above 0 and be at most 1, got {shares}"
    try:
        check_tasks([str(task) for task in table.get("tasks", [])])
    except ConfigError as error:
        yield f"tasks: {error}"
    for name, arm in arms.items():
        if not NAME.fullmatch(name):
            yield f"arms.{name}: a name may have letters, digits and - _ . in it, since a folder has it"
        papers = arm["paper"] if isinstance(arm.get("paper"), dict) else {}
        if not all(isinstance(score, int | float) for score in papers.values()):
            yield f"arms.{name}.paper: must be a number for each share of the budget, got {papers}"
        if unknown := [share for share in papers if share not in [f"{one:g}" for one in shares]]:
            yield f"arms.{name}.paper: there is no share {unknown[0]}; there are {shares}"
    for name, levels in table.get("reached", {}).items():
        if not all(isinstance(level, int | float) for level in levels):
            yield f"reached.{name}: must be a list of numbers, got {levels}"
    for where, settings in [
        ("", table.get("set", {})),
        *((f"arms.{n}.", a.get("set", {})) for n, a in arms.items()),
    ]:
        for setting in settings:
            if setting in DECIDED:
                yield f"{where}set: {setting} is decided by the study; leave it out"
