"""Tables with a delimiter: .csv and .tsv files with a header line."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from electra.errors import DataError
from electra.readers.base import HEADER_HINT, Record, Reject, TableReader, register_reader
from electra.readers.lines import MAX_LINE, decode_lines, encoding_hint, read_lines

MAX_ROW = 2 * MAX_LINE
"""Maximum number of characters in a row, whose quoted fields may have many lines."""


@register_reader
class CsvReader(TableReader):
    """Reads .csv and .tsv files; the delimiter is the most frequent of comma, tab, semicolon and bar."""

    name, endings, has_header = "csv", (".csv", ".tsv"), True

    def read_records(self, path: Path, columns: Sequence[str] | None = None) -> Iterator[Record | Reject]:
        rows = _read_rows(path)
        names = _header(rows)
        for number, row in rows:
            if isinstance(row, Reject):
                yield row
            elif row and len(row) != len(names):
                yield Reject(str(path), number, f"{len(row)} fields, but the header has {len(names)}")
            elif row:
                yield Record(dict(zip(names, row, strict=True)), str(path), number)

    def column_names(self, path: Path) -> list[str]:
        return _header(_read_rows(path))


def _header(rows: Iterator[tuple[int, list[str] | Reject]]) -> list[str]:
    _, header = next(rows)
    assert isinstance(header, list)
    return header


def _read_rows(path: Path) -> Iterator[tuple[int, list[str] | Reject]]:
    """Yield the rows, the header first, each with the number of the line on which it ends.

    Quotation marks may enclose a field and hide what would end it. But if every line of a table with tabs has as
    many fields as the header, then lines are rows, and a quotation mark that does not enclose a whole field is
    text, as in GLUE's files.
    """
    number = size = 0
    rejects: list[Reject] = []

    def feed() -> Iterator[str]:
        nonlocal number, size
        for number, line in decode_lines(str(path), read_lines(path)):
            if isinstance(line, Reject):
                rejects.append(line)
                continue
            size += len(line)  # of the row so far; each of its fields may have lines
            if size > MAX_ROW:
                limit = f"at most {MAX_ROW >> 20} MiB are read"
                raise DataError(f"{path}:{number}: the row does not end, {limit}; is a quotation mark missing?")
            yield line + "\n"

    lines = feed()
    header = next(lines, None)
    if rejects:  # without this, the next line would be taken for the header
        reason = rejects[0].reason
        raise DataError(f"{path}:1: {reason}; fix the header{encoding_hint(reason)}")
    if header is None:
        raise DataError(f"{path}: the file is empty; a header line with the names of the columns is expected")
    delimiter = max("\t,;|", key=header.count)
    csv.field_size_limit(MAX_LINE)  # a setting of the process; the default rejects fields above 128 KiB
    names = next(csv.reader([header], delimiter=delimiter))
    _check_names(path, names)
    yield 1, names
    if delimiter == "\t" and delimiter in header and _lines_are_rows(path, header.count("\t")):
        for number, line in decode_lines(str(path), read_lines(path)):
            if number > 1:
                yield number, line if isinstance(line, Reject) else _split(line)
        return
    rows = csv.reader(lines, delimiter=delimiter)
    while True:
        size = 0
        try:
            row: list[str] | Reject | None = next(rows, None)
        except csv.Error as error:
            row = Reject(str(path), number, f"broken CSV ({error})")
        while rejects:
            yield rejects[0].line, rejects.pop(0)
        if row is None:
            return
        yield number, row


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Check that no column's values would replace those of another one. Empty names have no meaning.

    Raises:
        DataError: two columns have the same name.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1 and name.strip()]:
        listed = ", ".join(map(repr, twice))
        raise DataError(
            f"{path}: the header has {listed} more than once; rename or remove one of these columns, {HEADER_HINT}"
        )


def _lines_are_rows(path: Path, tabs: int) -> bool:
    return all(line.count(b"\t") == tabs for _, line in read_lines(path) if line)


def _split(line: str) -> list[str]:
    """Return the fields between tabs; a field that is quoted by the rules of CSV loses its quotation marks."""
    return [
        field[1:-1].replace('""', '"')
        if len(field) > 1 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', "")
        else field
        for field in (line.split("\t") if line else [])
    ]
