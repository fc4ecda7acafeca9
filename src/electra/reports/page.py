"""One self-contained HTML page about the folders that verbs wrote: runs, fine-tunings, studies, analyses.

A section has properties, tables (those of the console) and figures. Figures are part of the page: nothing is
loaded from elsewhere.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from electra import __version__
from electra.reports.tables import are_numeric

BREAKS = re.compile(r"(?<=\w[-_/])(?<!\d[eE]-)(?=\w)")
"""Where the name of a run may be broken: behind a separator, but not inside a number such as -0.5 or 1e-05."""
TEMPLATE = Path(__file__).with_name("page.html.jinja")


@dataclass(frozen=True)
class Figure:
    """A figure, and what it shows, for readers who do not see it."""

    description: str
    svg: bytes

    @property
    def data_url(self) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


@dataclass(frozen=True)
class LegendEntry:
    """The name of a line in all figures of a section, with its CSS color and line style."""

    name: str
    color: str
    line: str


@dataclass(frozen=True)
class Section:
    """The report of one folder, or of several together.

    Attributes:
        kind: what the folder holds: a pre-training, a fine-tuning, a study, an analysis.
        properties: names and values.
        notes: sentences, such as the health problems of a run.
        legend: the names of the lines, if all figures have the same.
        folded: tables that only show their titles until they are opened.
    """

    title: str
    kind: str
    properties: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    legend: Sequence[LegendEntry] = ()
    folded: Sequence[Table] = ()


def render_page(title: str, sections: Sequence[Section]) -> str:
    """Render the page as HTML."""
    import jinja2

    templates = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, autoescape=True
    )
    template = templates.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        sections=sections,
        rows=_rows,
        numeric_columns=_numeric_columns,
        is_bold=_is_bold,
        name_parts=_name_parts,
        version=__version__,
    )


def _rows(table: Table) -> list[tuple[RenderableType, ...]]:
    """The cells of a console's table, row by row."""
    return list(zip(*(column.cells for column in table.columns), strict=True))


def _name_parts(name: RenderableType) -> list[str]:
    """A name, cut where a browser may break it."""
    return BREAKS.split(str(name))


def _is_bold(cell: RenderableType) -> bool:
    return isinstance(cell, Text) and cell.style == "bold"


def _numeric_columns(table: Table) -> list[bool]:
    """Which columns are numeric, so that they are right-aligned and not wrapped; the first column never is."""
    others = [are_numeric(map(str, column.cells)) for column in table.columns[1:]]
    return [False, *others]
