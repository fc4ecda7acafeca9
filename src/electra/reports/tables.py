"""Tables of figures that stay readable in a narrow console, and figures in one notation."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table

LONGEST_FIGURE = 30
"""Characters; what begins with a digit and is longer is a text."""
LONGEST_WORD = 24
"""Characters of a word that a column of text keeps together; of longer ones, such as addresses, it is folded."""
NARROWEST = 8
"""Characters that a column of text gets, if it has so many."""

_FIGURE = re.compile(r"[-+(]*\.?\d.*|–?", re.DOTALL)


class NumericTable(Table):
    """A table that shortens nothing, however narrow the console is.

    Where there is too little room, headers and texts are wrapped, and intervals stand below their figures; where
    that is not enough, it comes as several tables below each other.

    Args:
        columns: their headers.
        title: of the table.
        keys: how many columns in front say what a row is about; each of several tables begins with them.
    """

    def __init__(self, *columns: str, title: str, keys: int = 1) -> None:
        super().__init__(*columns, title=title, title_justify="left")
        self.keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        columns = [(str(one.header), *map(str, one.cells)) for one in self.columns]
        natural = [max(map(_longest_line, column)) for column in columns]
        least = [_least(*column) for column in columns]
        whole = [min(width, LONGEST_WORD) for width in natural[: self.keys]]
        if sum(whole) + _frame(self.keys) <= options.max_width / 2:  # names in one line where they leave room
            least[: self.keys] = map(max, whole, least)
        for part in _parts(least, self.keys, options.max_width):
            room = options.max_width - _frame(len(part))
            yield self._part(part, _fitted([natural[i] for i in part], [least[i] for i in part], room))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def _part(self, places: Sequence[int], widths: Sequence[int]) -> Table:
        """A table of some of the columns."""
        first = places == tuple(range(len(places)))
        table = Table(title=self.title if first else None, title_justify="left")
        for place, width in zip(places, widths, strict=True):
            column = self.columns[place]
            table.add_column(column.header, justify=column.justify, width=width, overflow="fold")
        cells = zip(*(map(str, self.columns[place].cells) for place in places), strict=True)
        for row, line in zip(self.rows, cells, strict=True):
            broken = map(_broken, line, widths)
            table.add_row(*broken, style=row.style, end_section=row.end_section)
        return table


def _parts(least: Sequence[int], keys: int, width: int) -> Iterator[tuple[int, ...]]:
    """The columns of each table: the keys, and of the others as many as there is room for, but one at least."""
    front = tuple(range(keys))
    part = front
    for place in range(keys, len(least)):
        wider = (*part, place)
        if part != front and sum(least[i] for i in wider) + _frame(len(wider)) > width:
            yield part
            wider = (*front, place)
        part = wider
    yield part


def _frame(columns: int) -> int:
    """What the lines and blanks between columns take."""
    return 3 * columns + 1


def _fitted(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths of columns: where there is too little room for all, the widest ones give way, down to their least."""
    widths = list(natural)
    while sum(widths) > room:
        wide = [i for i in range(len(widths)) if widths[i] > least[i]]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _least(header: str, *cells: str) -> int:
    """How narrow a column may be: figures are not broken, nor words, unless they are long."""
    if are_numeric(cells):
        inside = max((_longest_line(_broken(cell, 0)) for cell in cells), default=0)
    else:
        longest = max((_longest_line(cell) for cell in cells), default=0)
        words = max((cell_len(word) for cell in cells for word in re.findall(r" *\S+", cell)), default=0)
        inside = max(min(words, LONGEST_WORD), min(longest, NARROWEST))
    return max(inside, max((cell_len(word) for word in header.split()), default=0))


def are_numeric(cells: Iterable[str]) -> bool:
    """Whether all cells of a column are figures, with or without intervals, or empty."""
    return all(_FIGURE.fullmatch(cell) and len(cell) <= LONGEST_FIGURE for cell in cells)


def _broken(cell: str, width: int) -> str:
    """With what is in brackets in a line of its own, if a figure has no room for it behind it."""
    if _longest_line(cell) <= width or not _FIGURE.fullmatch(cell):
        return cell
    return cell.replace(" (", "\n(")


def _longest_line(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def format_number(value: float, digits: int, *, sign: bool = False) -> str:
    """A figure with so many digits behind the point; what is rounded to zero has no minus."""
    return f"{value:{'+' if sign else ''}z.{digits}f}"


def format_interval(interval: Iterable[float], digits: int, *, sign: bool = False) -> str:
    """The ends of an interval; of figures that have a sign with a word between, as a dash would look like one."""
    return (" to " if sign else "–").join(format_number(end, digits, sign=sign) for end in interval)


def format_with_interval(value: float, interval: Sequence[float], digits: int, *, sign: bool = False) -> str:
    """A figure, and its interval in brackets.

    An interval without any width is left out: where all that was drawn from is alike, as with one of one that is
    right, draws cannot differ, and it would look like certainty. `NO_INTERVAL_NOTE` says so.
    """
    shown = format_number(value, digits, sign=sign)
    low, high = interval
    if math.isclose(low, high, rel_tol=1e-9, abs_tol=1e-12):
        return shown
    return f"{shown} ({format_interval(interval, digits, sign=sign)})"


NO_INTERVAL_NOTE = (
    "a figure without an interval is the same in all resamples, which says nothing of how sure it is"
)
"""What to say beside figures of `format_with_interval`."""
