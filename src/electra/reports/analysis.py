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
from electra.reports.figures import save_figure

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
        presenter = load_presenter(self.name)
        lines = [*presenter.notes(self.facts), *(f"wrote {file}" for file in self.files)]
        return Group(*presenter.tables(self.facts), *lines)


def load_presenter(name: str) -> Presenter:
    """The module of an analysis."""
    module: Any = importlib.import_module(f"electra.reports.analyses.{name.replace('-', '_')}")
    return module


def make_output_folder(out: Path | None) -> None:
    """Make the folder for what will be found, so that one that cannot be made is known before hours of work."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)


def save_report(name: str, facts: dict[str, Any], out: Path | None) -> AnalysisReport:
    """What a verb returns, once NAME.json, NAME.png and NAME.svg are written, if a folder for them is given."""
    if out is None:
        return AnalysisReport(name, facts)
    make_output_folder(out)
    file = out / f"{name}.json"
    durable.write_text(file, json_text(facts))
    figure = load_presenter(name).figure(facts)
    return AnalysisReport(name, facts, [file, *(save_figure(figure, out, name) if figure is not None else [])])


def read_analyses(folder: Path) -> list[AnalysisReport]:
    """The analyses that a folder holds."""
    return [
        AnalysisReport(name, read_json(file)) for name in ANALYSES if (file := folder / f"{name}.json").is_file()
    ]


def count_of(number: int, name: str) -> str:
    """`1 list`, `1,200 lists`."""
    return f"{number:,} {name}{'s' * (number != 1)}"
