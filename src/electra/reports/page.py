"""One HTML page, self-contained, of whatever folders verbs wrote: runs, fine-tunings, studies, analyses.

A section has facts, tables (those of the console) and pictures, which stand inside the page: nothing is fetched.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from electra import __version__
from electra.reports.tables import are_numeric

TEMPLATE = Path(__file__).with_name("page.html.jinja")


@dataclass(frozen=True)
class Picture:
    """A drawing, as SVG, and what it shows in words, for those who do not see it."""

    says: str
    svg: bytes

    @property
    def address(self) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


@dataclass(frozen=True)
class Section:
    """What there is to say of one folder, or of several together.

    Attributes:
        kind: what the folder holds: a pre-training, a fine-tuning, a study, an analysis.
        facts: names and values.
        notes: sentences, such as what was found wrong with the run.
    """

    title: str
    kind: str
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


def render_page(title: str, sections: Sequence[Section]) -> str:
    """The page's HTML."""
    import jinja2

    templates = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, autoescape=True
    )
    template = templates.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(title=title, sections=sections, rows=_rows, figures_of=_figures, version=__version__)


def _rows(table: Table) -> list[tuple[str, ...]]:
    """The cells of a console's table, row by row."""
    return [tuple(map(str, row)) for row in zip(*(column.cells for column in table.columns), strict=True)]


def _figures(table: Table) -> list[bool]:
    """Which columns are of figures, so that they stand on the right and are not broken; the first one never is."""
    others = [are_numeric(map(str, column.cells)) for column in table.columns[1:]]
    return [False, *others]
