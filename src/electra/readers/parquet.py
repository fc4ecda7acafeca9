"""Parquet files; the line of a record is the number of its row."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from electra.errors import DataError
from electra.readers.base import COMPRESSIONS, Record, Reject, TableReader, register_reader
from electra.readers.lines import open_file

ROWS = 64
"""Number of rows that are in memory at once."""
MAGIC = b"PAR1"
"""The first bytes of a parquet file."""


@register_reader
class ParquetReader(TableReader):
    """Reads .parquet files."""

    name, endings, binary = "parquet", (".parquet",), True

    def read_records(self, path: Path, columns: Sequence[str] | None = None) -> Iterator[Record | Reject]:
        number = 0
        with _open_parquet(path) as file:
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                for row in _rows(batch):
                    number += 1
                    if isinstance(row, UnicodeDecodeError):
                        reason = f"broken UTF-8 ({row.reason} at byte {row.start})"
                        yield Reject(str(path), number, reason)
                    else:
                        yield Record(row, str(path), number)

    def column_names(self, path: Path) -> list[str]:
        with _open_parquet(path) as file:
            return list(file.schema_arrow.names)


def _rows(batch: Any) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    """Yield the rows of a batch, or the error of a row with broken UTF-8."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:  # one row at a time, to find out which rows are broken
        for number in range(len(batch)):
            try:
                yield from batch.slice(number, 1).to_pylist()
            except UnicodeDecodeError as error:
                yield error


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """Open a parquet file for reading, also one inside .gz or .zst."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _open_seekable(path) as file:
        try:
            # Without read-ahead, memory is bounded by pages, not by row groups.
            yield pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: not a parquet file, or a damaged one ({error})") from error


@contextmanager
def _open_seekable(path: Path) -> Iterator[IO[bytes]]:
    """Open a file in which reading can jump, as parquet needs; a compressed file is decompressed to disk first."""
    with open_file(path) as file:
        if path.suffix not in COMPRESSIONS:
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            if (head := file.read(len(MAGIC))) != MAGIC:  # before the disk is filled with something else
                raise DataError(f"{path}: not a parquet file, or a damaged one (it begins with {head!r})")
            copy.write(head)
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.seek(0)
            yield copy
