"""What `electra analyze` found: NAME.json, a picture, tables on the console, and a section of the report.

Each analysis has a module here that presents its facts, which are those of its JSON file.
"""

import importlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table

from electra import durable
from electra.json_files import json_text, read_json
from electra.reports.figures import written

ANALYSES = (
    "context",
    "compare",
    "generator",
    "parts-of-speech",
    "detect",
    "calibrate",
    "minimal-pairs",
    "rescore",
)
"""The names of all analyses: of their verbs (with dashes), modules here and files."""

TOWERS = ("discriminator", "generator", "encoder")
"""Folders of an export that say what of the run, but not of which."""
UNNAMED = ("export", "model")
"""Folders that say neither."""
OF_STUDIES = re.compile(r"(?P<arm>[^/]+)/(?P<share>[\d.]+)/(?P<seed>seed-\d+)/run")
"""The folders that a study gives to a run: it is the arm that tells."""

Facts = Mapping[str, Any]


class Presenter(Protocol):
    """A module that presents one analysis.

    Attributes:
        TITLE: what the analysis is about.
        SHOWS: what its picture shows in words, for those who do not see it.
    """

    TITLE: str
    SHOWS: str

    def tables(self, facts: Facts) -> list[Table]:
        """The figures."""
        ...

    def notes(self, facts: Facts) -> list[str]:
        """Sentences that say what was measured on what, and what has to be known to read the figures."""
        ...

    def figure(self, facts: Facts) -> Any | None:
        """matplotlib's figure; None where there is nothing to draw."""
        ...


@dataclass(frozen=True)
class AnalysisReport:
    """What was found, and the files that say so."""

    name: str
    facts: dict[str, Any]
    files: Sequence[Path] = ()

    def __rich__(self) -> RenderableType:
        presenter = presenter_of(self.name)
        lines = [*presenter.notes(self.facts), *(f"wrote {file}" for file in self.files)]
        return Group(*presenter.tables(self.facts), *lines)


def presenter_of(name: str) -> Presenter:
    """The module of an analysis."""
    module: Any = importlib.import_module(f"electra.reports.analyses.{name.replace('-', '_')}")
    return module


def prepare_out(out: Path | None) -> None:
    """Make the folder for what will be found, so that one that cannot be made is known before hours of work."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)


def reported(name: str, facts: dict[str, Any], out: Path | None) -> AnalysisReport:
    """What a verb returns, once NAME.json, NAME.png and NAME.svg are written, if a folder for them is given."""
    if out is None:
        return AnalysisReport(name, facts)
    prepare_out(out)
    file = out / f"{name}.json"
    durable.write_text(file, json_text(facts))
    figure = presenter_of(name).figure(facts)
    return AnalysisReport(name, facts, [file, *(written(figure, out, name) if figure is not None else [])])


def analyses_in(folder: Path) -> list[AnalysisReport]:
    """The analyses that a folder holds."""
    return [
        AnalysisReport(name, read_json(file)) for name in ANALYSES if (file := folder / f"{name}.json").is_file()
    ]


def counted(number: int, name: str) -> str:
    """`1 list`, `1,200 lists`."""
    return f"{number:,} {name}{'s' * (number != 1)}"


def names_of(models: Sequence[str]) -> list[str]:
    """What facts call MODELs: as little of each one's path as tells it from the others.

    Of a run's tower it is the run, too: RUN/export/generator is "RUN generator". The same one again has a number.
    A run of a study is named by its arm, by the seed and the share of the budget only where need be.
    """
    parts = [_of_study(_parts(model)) for model in models]
    sizes = {one: 2 if len(one) > 1 and one[-1] in TOWERS else 1 for one in parts}
    while True:
        short = {one: " ".join(one[-size:]) for one, size in sizes.items()}
        seen = Counter(short.values())
        longer = [one for one in sizes if seen[short[one]] > 1 and sizes[one] < len(one)]
        if not longer:
            break
        for one in longer:
            sizes[one] += 1
    names = [short[one] for one in parts]
    return [
        f"{name} ({names[: number + 1].count(name)})" if names.count(name) > 1 else name
        for number, name in enumerate(names)
    ]


def _of_study(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The arm of a study's run last of its folders, its tower aside."""
    tower = parts[-1:] if parts[-1] in TOWERS else ()
    run = parts[: len(parts) - len(tower)]
    if found := OF_STUDIES.fullmatch("/".join(run[-4:])):
        run = (*run[:-4], found["share"], found["seed"], found["arm"])
    return run + tower


def _parts(model: str) -> tuple[str, ...]:
    """The folders of a MODEL that tell something."""
    path = Path(model).absolute() if Path(model).is_dir() else Path(model)  # so that "." has a name
    return tuple(part for part in path.parts if part not in UNNAMED) or path.parts
