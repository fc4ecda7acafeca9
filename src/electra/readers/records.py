"""Tables: the rows of a .csv, .tsv, .jsonl or .parquet file as dictionaries, each with its line.

Unlike the documents of a corpus, a row that cannot be read is an error here: a label may hang on it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.errors import DataError
from electra.readers import formats
from electra.readers.corpus import kind_of
from electra.readers.formats import Reject

KNOWN = "tables are .csv, .tsv, .jsonl and .parquet, each also with .gz or .zst"


def check_is_file(path: Path) -> None:
    """Before the kind of a file is judged by its name.

    Raises:
        DataError: it is a folder, or is not there.
    """
    if path.is_dir():
        raise DataError(f"{path}: it is a folder; give one of its files")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line (of a parquet file: row) and values of each row, by the name of the column.

    Raises:
        DataError: the file is missing, of an unknown kind, or a row cannot be read.
    """
    check_is_file(path)
    kind = kind_of(path)
    if kind not in _READERS:
        raise DataError(f"{path}: the kind of file is unknown; {KNOWN}")
    if kind != "parquet":
        formats.check_is_text(path)
    for line, record in _READERS[kind](path):
        if isinstance(record, str):
            raise DataError(f"{path}:{line}: {record}; mend or remove this row")
        yield line, record


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in formats.decoded_lines(path):
        if isinstance(line, Reject):
            yield number, line.reason
        elif line and not line.isspace():
            yield number, formats.parse_json(line)


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    rows = formats.csv_rows(path)
    names = formats.csv_header(rows)
    for number, row in rows:
        if isinstance(row, Reject):
            yield number, row.reason
        elif row and len(row) != len(names):
            yield number, f"{len(row)} fields, but the header has {len(names)}"
        elif row:
            yield number, dict(zip(names, row, strict=True))


def _parquet(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    number = 0
    with formats.open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=1024):
            for row in range(len(batch)):
                number += 1
                try:
                    [record] = batch.slice(row, 1).to_pylist()
                except UnicodeDecodeError as error:
                    yield number, f"broken UTF-8 ({error.reason} at byte {error.start})"
                else:
                    yield number, record


_READERS = {"jsonl": _json_lines, "csv": _csv, "parquet": _parquet}
