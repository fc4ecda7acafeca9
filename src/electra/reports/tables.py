"""Tables of numbers that stay readable on a narrow console, and the notation of numbers."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table

MAX_NUMBER_WIDTH = 30
"""Characters; a longer cell that starts with a digit is text."""
MAX_WORD_WIDTH = 24
"""Characters of a word that is not broken in a column of text; longer ones, such as addresses, are folded."""
MIN_TEXT_WIDTH = 8
"""The minimum width of a column of text, if it has that many characters."""

_NUMBER = re.compile(r"[-+(]*\.?\d.*|–?", re.DOTALL)


class NumericTable(Table):
    """A table that truncates nothing, however narrow the console is.

    If there is too little room, headers and texts are wrapped, and intervals are put below their numbers. If that
    is not enough, the table is split into several tables below each other.

    Args:
        columns: their headers.
        title: the title of the table.
        keys: the number of first columns that identify a row; each of several tables starts with them.
    """

    def __init__(self, *columns: str, title: str, keys: int = 1) -> None:
        super().__init__(*columns, title=title, title_justify="left")
        self.keys = keys

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        columns = [(str(one.header), *map(str, one.cells)) for one in self.columns]
        natural = [max(map(_longest_line, column)) for column in columns]
        minimum = [_min_width(*column) for column in columns]
        key_widths = [min(width, MAX_WORD_WIDTH) for width in natural[: self.keys]]
        if (
            sum(key_widths) + _frame_width(self.keys) <= options.max_width / 2
        ):  # keys on one line if they leave room
            minimum[: self.keys] = map(max, key_widths, minimum)
        for part in _split_columns(minimum, self.keys, options.max_width):
            room = options.max_width - _frame_width(len(part))
            yield self._part(part, _fit_widths([natural[i] for i in part], [minimum[i] for i in part], room))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def _part(self, indices: Sequence[int], widths: Sequence[int]) -> Table:
        """A table of some of the columns."""
        is_first = indices == tuple(range(len(indices)))
        table = Table(title=self.title if is_first else None, title_justify="left")
        for index, width in zip(indices, widths, strict=True):
            column = self.columns[index]
            table.add_column(column.header, justify=column.justify, width=width, overflow="fold")
        cells = zip(*(map(str, self.columns[index].cells) for index in indices), strict=True)
        for row, line in zip(self.rows, cells, strict=True):
            wrapped = map(_break_interval, line, widths)
            table.add_row(*wrapped, style=row.style, end_section=row.end_section)
        return table


def _split_columns(minimum: Sequence[int], keys: int, width: int) -> Iterator[tuple[int, ...]]:
    """The columns of each table: the keys, and as many of the others as there is room for, but at least one."""
    key_columns = tuple(range(keys))
    part = key_columns
    for index in range(keys, len(minimum)):
        wider = (*part, index)
        if part != key_columns and sum(minimum[i] for i in wider) + _frame_width(len(wider)) > width:
            yield part
            wider = (*key_columns, index)
        part = wider
    yield part


def _frame_width(columns: int) -> int:
    """The width of the lines and spaces between columns."""
    return 3 * columns + 1


def _fit_widths(natural: Sequence[int], minimum: Sequence[int], room: int) -> list[int]:
    """Widths of columns: if there is too little room, the widest columns shrink, down to their minimum."""
    widths = list(natural)
    while sum(widths) > room:
        wide = [i for i in range(len(widths)) if widths[i] > minimum[i]]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _min_width(header: str, *cells: str) -> int:
    """The minimum width of a column: numbers are not broken, nor are words unless they are long."""
    if are_numeric(cells):
        inside = max((_longest_line(_break_interval(cell, 0)) for cell in cells), default=0)
    else:
        longest = max((_longest_line(cell) for cell in cells), default=0)
        words = max((cell_len(word) for cell in cells for word in re.findall(r" *\S+", cell)), default=0)
        inside = max(min(words, MAX_WORD_WIDTH), min(longest, MIN_TEXT_WIDTH))
    return max(inside, max((cell_len(word) for word in header.split()), default=0))


def are_numeric(cells: Iterable[str]) -> bool:
    """Whether all cells of a column are numbers, with or without intervals, or empty."""
    return all(_NUMBER.fullmatch(cell) and len(cell) <= MAX_NUMBER_WIDTH for cell in cells)


def _break_interval(cell: str, width: int) -> str:
    """Put the interval of a number on a separate line if the column is too narrow for both."""
    if _longest_line(cell) <= width or not _NUMBER.fullmatch(cell):
        return cell
    return cell.replace(" (", "\n(")


def _longest_line(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def format_number(value: float, digits: int, *, sign: bool = False) -> str:
    """A number with a fixed number of decimals; zero has no minus sign."""
    return f"{value:{'+' if sign else ''}z.{digits}f}"


def format_interval(interval: Iterable[float], digits: int, *, sign: bool = False) -> str:
    """An interval: "0.10–0.20", or for signed numbers "-0.10 to +0.20", because a dash looks like a minus sign."""
    return (" to " if sign else "–").join(format_number(end, digits, sign=sign) for end in interval)


def format_with_interval(value: float, interval: Sequence[float], digits: int, *, sign: bool = False) -> str:
    """A number with its interval in brackets.

    An interval without width is left out: if all examples are alike, resamples cannot differ, and the interval
    would look like certainty. `NO_INTERVAL_NOTE` explains this.
    """
    number = format_number(value, digits, sign=sign)
    low, high = interval
    if math.isclose(low, high, rel_tol=1e-9, abs_tol=1e-12):
        return number
    return f"{number} ({format_interval(interval, digits, sign=sign)})"


NO_INTERVAL_NOTE = (
    "a number without an interval is the same in all resamples, which does not mean that it is certain"
)
"""The note for tables with `format_with_interval`."""
