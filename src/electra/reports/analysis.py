"""Results of `electra analyze`: NAME.json, a figure, tables on the console, and a section of the report.

Each analysis has a module in `electra.reports.analyses` that presents its results, as they are in its JSON file.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table

from electra.json_files import read_json, write_json
from electra.reports.figures import save_figure

ANALYSES = (
    "context",
    "long-inputs",
    "compare",
    "generator",
    "parts-of-speech",
    "detect",
    "calibrate",
    "minimal-pairs",
    "rescore",
)
"""The names of all analyses. Their verbs, their files and (with underscores) their presenters have these names."""

Results = Mapping[str, Any]
"""The contents of NAME.json."""


class Presenter(Protocol):
    """A module that presents one analysis.

    Attributes:
        TITLE: the title of its section in the report.
        FIGURE_DESCRIPTION: what its figure shows, for readers who do not see it.
    """

    TITLE: str
    FIGURE_DESCRIPTION: str

    def build_tables(self, results: Results) -> list[Table]:
        """The numbers."""
        ...

    def build_notes(self, results: Results) -> list[str]:
        """What was measured on what, and how to read the numbers."""
        ...

    def draw(self, results: Results) -> Any | None:
        """A matplotlib figure; None if there is nothing to draw."""
        ...


@dataclass(frozen=True)
class AnalysisReport:
    """The results of an analysis, and the files that hold them."""

    name: str
    results: dict[str, Any]
    files: Sequence[Path] = ()

    def __rich__(self) -> RenderableType:
        presenter = load_presenter(self.name)
        lines = [*presenter.build_notes(self.results), *(f"wrote {file}" for file in self.files)]
        return Group(*presenter.build_tables(self.results), *lines)


def load_presenter(name: str) -> Presenter:
    """The module that presents an analysis."""
    module: Any = importlib.import_module(f"electra.reports.analyses.{name.replace('-', '_')}")
    return module


def make_output_folder(out: Path | None) -> None:
    """Make the folder for results. Analyses do this first, so that a bad path is found before hours of work."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)


def save_report(name: str, results: dict[str, Any], out: Path | None) -> AnalysisReport:
    """Write NAME.json, NAME.png and NAME.svg, if a folder is given, and return the report."""
    if out is None:
        return AnalysisReport(name, results)
    make_output_folder(out)
    file = out / f"{name}.json"
    write_json(file, results, indent=2, ensure_ascii=False)
    figure = load_presenter(name).draw(results)
    return AnalysisReport(name, results, [file, *(save_figure(figure, out, name) if figure is not None else [])])


def read_analyses(folder: Path) -> list[AnalysisReport]:
    """The analyses in a folder."""
    return [
        AnalysisReport(name, read_json(file)) for name in ANALYSES if (file := folder / f"{name}.json").is_file()
    ]


def count_of(number: int, noun: str) -> str:
    """`1 list`, `1,200 lists`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def windowed_notes(results: Results, texts: str) -> list[str]:
    """A note for each model that read some texts in windows; results of earlier versions do not say so.

    Args:
        texts: what the texts are, such as "sentences".
    """
    return [
        f"{model}: {texts} longer than its input, read in windows: {count:,}"
        for model, count in results.get("in_windows", {}).items()
        if count
    ]
