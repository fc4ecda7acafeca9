"""Read one file, whatever its format: its records, or its texts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.errors import DataError
from electra.readers.base import (
    Item,
    Reader,
    ReadOptions,
    Reject,
    TableReader,
    check_is_file,
    find_reader,
    get_reader,
    known_endings,
)
from electra.readers.lines import check_is_text, encoding_hint


def open_reader(path: Path) -> Reader:
    """Return the reader for a file whose beginning has been checked.

    Raises:
        DataError: the file is missing, of an unknown format, binary, or cannot be read.
    """
    reader = get_reader(path)
    if not reader.binary:
        check_is_text(path)
    return reader


def is_table(path: Path) -> bool:
    """Whether a file of this name has named columns."""
    return isinstance(find_reader(path), TableReader)


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a table: the line (of a parquet file: the row) and the values by the name of the column.

    Unlike the documents of a corpus, a row that cannot be read is an error, because its label may matter.

    Raises:
        DataError: the file is missing, is not a table, or a row cannot be read.
    """
    check_is_file(path)
    reader = find_reader(path)
    if not isinstance(reader, TableReader):
        raise DataError(f"{path}: unknown table format; {known_endings(tables=True)}")
    if not reader.binary:
        check_is_text(path)
    for record in reader.read_records(path):
        if isinstance(record, Reject):
            hint = "" if reader.binary else encoding_hint(record.reason)
            raise DataError(f"{path}:{record.line}: {record.reason}; fix or remove this row{hint}")
        yield record.line, record.values


def read_texts(path: Path, *, text_column: str | None = None) -> Iterator[Item]:
    """Yield the texts of a file: the lines of plain text, the text column of a table, or the documents.

    Args:
        text_column: the column of the texts; None: it is detected (see `choose_text_column`).

    Raises:
        DataError: the file is missing, of an unknown format, damaged, or without this column.
    """
    reader = open_reader(path)
    return reader.read_texts(path, ReadOptions(reader.find_text_column(path, text_column)))
