"""What `electra analyze` found: NAME.json, a picture, tables on the console, and a section of the report.

Each analysis has a module here that presents its facts, which are those of its JSON file.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table

from electra import durable
from electra.json_files import json_text, read_json
from electra.reports.pictures import written

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
    module: Any = importlib.import_module(f"electra.reports.{name.replace('-', '_')}")
    return module


def reported(name: str, facts: dict[str, Any], out: Path | None) -> AnalysisReport:
    """What a verb returns, once NAME.json, NAME.png and NAME.svg are written, if a folder for them is given."""
    if out is None:
        return AnalysisReport(name, facts)
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.json"
    durable.write_text(file, json_text(facts))
    figure = presenter_of(name).figure(facts)
    return AnalysisReport(name, facts, [file, *(written(figure, out, name) if figure is not None else [])])


def analyses_in(folder: Path) -> list[AnalysisReport]:
    """The analyses that a folder holds."""
    return [
        AnalysisReport(name, read_json(file)) for name in ANALYSES if (file := folder / f"{name}.json").is_file()
    ]


def names_of(models: Sequence[str]) -> list[str]:
    """What facts call MODELs: as little of each one's path as tells it from the others.

    Of a run's tower it is the run, too: RUN/export/generator is "RUN generator".
    """
    parts = [[part for part in Path(model).parts if part != "export"] for model in models]
    sizes = [2 if len(one) > 1 and one[-1] in TOWERS else 1 for one in parts]
    while True:
        names = [" ".join(one[-size:]) for one, size in zip(parts, sizes, strict=True)]
        alike = [number for number, name in enumerate(names) if names.count(name) > 1]
        longer = [number for number in alike if sizes[number] < len(parts[number])]
        if not longer:
            return names
        for number in longer:
            sizes[number] += 1
