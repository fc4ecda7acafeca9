"""Reading one file: lines, JSON lines, CSV and parquet become documents and rejects, in bounded memory.

A bad line is a `Reject` with its place and reason, and reading goes on. A bad file raises `DataError`.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, cast

import zstandard

from electra.errors import DataError

DocumentRule = Literal["blank-line", "file"]

MAX_LINE = 1 << 25
"""Bytes in a line (32 MiB). A longer one is a reject, read past in pieces so that it never fills the memory."""
MAX_DOCUMENT = 1 << 24
"""Characters in a document of a .txt file (16.8 million); what follows starts another document."""
DETECTION_ROWS = 100  # rows looked at to find the text column
TEXT_COLUMNS = ("text", "content", "contents", "body", "document", "article", "raw_content", "passage", "sentence")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its place: the file or data set, and the line (or row) where it begins, from 1."""

    text: str
    source: str
    line: int


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that is no document, and why."""

    source: str
    line: int
    reason: str


Item = Document | Reject


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed when the name ends in .gz or .zst."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    if path.suffix == ".zst":
        return io.BufferedReader(_ZstandardFrames(path), 1 << 20)
    return path.open("rb", buffering=1 << 20)


def read_text(path: Path, documents: DocumentRule) -> Iterator[Item]:
    """A .txt file: a blank line ends a document, or the file is one document."""
    collected: list[str] = []
    first, size = 1, 0
    for number, line in decoded_lines(path):
        if isinstance(line, Reject):
            yield line
            continue
        ends = documents == "blank-line" and (not line or line.isspace())
        if (ends or size + len(line) > MAX_DOCUMENT) and collected:
            yield Document("\n".join(collected), str(path), first)
            collected, size = [], 0
        if line and not line.isspace():
            first = first if collected else number
            collected.append(line)
            size += len(line)
    if collected:
        yield Document("\n".join(collected), str(path), first)


def read_jsonl(path: Path, column: str) -> Iterator[Item]:
    """A file with a JSON object a line."""
    for number, line in decoded_lines(path):
        if isinstance(line, Reject):
            yield line
        elif line and not line.isspace():
            record = parse_json(line)
            if isinstance(record, str):
                yield Reject(str(path), number, record)
            elif column not in record:
                yield Reject(str(path), number, f"no key {column!r}; the keys are {', '.join(map(repr, record))}")
            else:
                yield checked_text(record[column], str(path), number)


def read_csv(path: Path, column: str) -> Iterator[Item]:
    """A .csv or .tsv file with a header line; quoted fields may span lines."""
    rows = csv_rows(path)
    names = csv_header(rows)
    index = names.index(column)
    for number, row in rows:
        if isinstance(row, Reject):
            yield row
        elif row and len(row) != len(names):
            yield Reject(str(path), number, f"{len(row)} fields, but the header has {len(names)}")
        elif row:
            yield checked_text(row[index], str(path), number)


def read_parquet(path: Path, column: str) -> Iterator[Item]:
    """A parquet file; a line is a row."""
    number = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=256, columns=[column]):
            for value in batch.column(0):
                number += 1
                try:
                    text = value.as_py()
                except UnicodeDecodeError as error:
                    yield Reject(str(path), number, f"broken UTF-8 ({error.reason} at byte {error.start})")
                else:
                    yield checked_text(text, str(path), number)


def text_column(path: Path, kind: str, wanted: str | None) -> str:
    """The column that holds the text: the one named, one with a usual name, or the one with the longest strings.

    Raises:
        DataError: when the named column is missing (with those there are), or none holds text.
    """
    if kind == "parquet":
        with open_parquet(path) as file:
            names = list(file.schema_arrow.names)
            batch = next(file.iter_batches(batch_size=DETECTION_ROWS), None)
            rows = batch.to_pylist() if batch is not None else []
    elif kind == "csv":
        lines = csv_rows(path)
        names = csv_header(lines)
        good = (row for _, row in lines if isinstance(row, list) and len(row) == len(names))
        rows = [dict(zip(names, row, strict=True)) for row in islice(good, DETECTION_ROWS)]
    else:
        rows = _first_objects(path)
        names = list(dict.fromkeys(name for row in rows for name in row))
    return choose_column(str(path), names, rows, wanted)


def choose_column(source: str, names: list[str], rows: list[dict[str, Any]], wanted: str | None) -> str:
    """`text_column`, once the names and the first rows are known."""
    listed = ", ".join(map(repr, names))
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"{source}: there is no column {wanted!r}; the columns are {listed}")
        return wanted
    length = {name: sum(len(row[name]) for row in rows if isinstance(row.get(name), str)) for name in names}
    usual = [name for known in TEXT_COLUMNS for name in names if name.lower() == known and length[name]]
    if usual:
        return usual[0]
    if not rows or not any(length.values()):
        raise DataError(f"{source}: no column holds text (the columns are {listed}); name one with --text-column")
    return max(length, key=lambda name: length[name])


def check_is_text(path: Path) -> None:
    """Looks at the beginning of a file.

    Raises:
        DataError: when it is not text in UTF-8 (but UTF-16, or binary), or cannot be decompressed.
    """
    with _damage_reported(path), open_bytes(path) as file:
        head = file.read(1 << 16)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: the file is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW")
    if b"\0" in head or head.startswith(b"%PDF-"):
        raise DataError(f"{path}: a binary file, not text (it holds null bytes or is a PDF); leave it out")


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a file with their numbers from 1, without line ends; None for one above `MAX_LINE`."""
    with _damage_reported(path), open_bytes(path) as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE and not line.endswith(b"\n"):
                while (piece := file.readline(1 << 20)) and not piece.endswith(b"\n"):
                    pass
                yield number, None
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, line.rstrip(b"\r\n")


def decoded_lines(path: Path) -> Iterator[tuple[int, str | Reject]]:
    for number, raw in numbered_lines(path):
        if raw is None:
            yield number, Reject(str(path), number, f"the line is longer than {MAX_LINE >> 20} MiB")
            continue
        try:
            yield number, raw.decode()
        except UnicodeDecodeError as error:
            yield number, Reject(str(path), number, f"broken UTF-8 ({error.reason} at byte {error.start})")


def parse_json(line: str) -> dict[str, Any] | str:
    """The object in a line, or the reason why there is none."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        return f"broken JSON ({error.msg} at column {error.colno})"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; nested thousands deep
        return f"broken JSON ({error})"
    return record if isinstance(record, dict) else "the line is JSON but not an object"


def checked_text(text: object, source: str, number: int) -> Item:
    """A document, if the value is a text that can be written as UTF-8."""
    if not isinstance(text, str):
        return Reject(source, number, f"the text is {type(text).__name__}, not a string")
    if not text or text.isspace():
        return Reject(source, number, "the text is empty")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair
            return Reject(source, number, f"broken Unicode ({error.reason} at character {error.start})")
    return Document(text, source, number)


def _first_objects(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    reason = "the file is empty"
    for number, line in islice(decoded_lines(path), 10 * DETECTION_ROWS):
        record = line.reason if isinstance(line, Reject) else parse_json(line) if line.strip() else None
        if isinstance(record, dict):
            rows.append(record)
        elif record is not None and not rows:
            reason = f"line {number}: {record}"
        if len(rows) == DETECTION_ROWS:
            break
    if not rows:
        raise DataError(
            f"{path}: no JSON object in its first lines ({reason}); is it JSON lines, one object a line?"
        )
    return rows


def csv_header(rows: Iterator[tuple[int, list[str] | Reject]]) -> list[str]:
    _, header = next(rows)
    assert isinstance(header, list)
    return header


def csv_rows(path: Path) -> Iterator[tuple[int, list[str] | Reject]]:
    """The rows, the header first, each with the number of the line on which it ends.

    Quotation marks may enclose a field and hide what would end it. But where every line of a table with tabs has
    as many fields as the header, lines are rows, and a mark that does not enclose a whole field is text, as in
    GLUE's files.
    """
    number = 0
    rejects: list[Reject] = []

    def feed() -> Iterator[str]:
        nonlocal number
        for number, line in decoded_lines(path):  # noqa: B007 (read below)
            if isinstance(line, Reject):
                rejects.append(line)
            else:
                yield line + "\n"

    lines = feed()
    header = next(lines, None)
    if header is None:
        raise DataError(f"{path}: the file is empty; a header line with the names of the columns is expected")
    delimiter = max("\t,;|", key=header.count)
    csv.field_size_limit(MAX_LINE)  # a setting of the process; the default rejects fields above 128 KiB
    yield 1, next(csv.reader([header], delimiter=delimiter))
    if delimiter == "\t" and delimiter in header and _lines_are_rows(path, header.count("\t")):
        for number, line in decoded_lines(path):
            if number > 1:
                yield number, line if isinstance(line, Reject) else _fields(line)
        return
    rows = csv.reader(lines, delimiter=delimiter)
    while True:
        try:
            row: list[str] | Reject | None = next(rows, None)
        except csv.Error as error:
            row = Reject(str(path), number, f"broken CSV ({error})")
        while rejects:
            yield rejects[0].line, rejects.pop(0)
        if row is None:
            return
        yield number, row


def _lines_are_rows(path: Path, tabs: int) -> bool:
    return all(line.count(b"\t") == tabs for _, line in numbered_lines(path) if line)


def _fields(line: str) -> list[str]:
    """The fields between tabs, without the marks around a field that is quoted by the rules of CSV."""
    return [
        field[1:-1].replace('""', '"')
        if len(field) > 1 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', "")
        else field
        for field in (line.split("\t") if line else [])
    ]


class open_parquet:
    """A parquet file opened for reading (also inside .gz or .zst), as a context."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        packed = self.path.suffix in (".gz", ".zst")
        with _damage_reported(self.path):
            self.file: IO[bytes] = _unpacked(self.path) if packed else self.path.open("rb")
        try:
            # Without read-ahead, memory is bounded by pages, not by row groups.
            return pq.ParquetFile(self.file, pre_buffer=False, buffer_size=1 << 20)
        except (pa.ArrowException, OSError) as error:
            self.file.close()
            raise DataError(f"{self.path}: not a parquet file, or a damaged one ({error})") from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import pyarrow as pa

        self.file.close()
        if isinstance(error, pa.ArrowException | OSError):
            raise DataError(f"{self.path}: a damaged parquet file ({error})") from error


def _unpacked(path: Path) -> IO[bytes]:
    """A decompressed copy on disk, gone when closed: parquet is read from its end."""
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the caller)
    with open_bytes(path) as file:
        shutil.copyfileobj(file, copy, 1 << 20)
    copy.seek(0)
    return copy


class _damage_reported:
    """A context that turns the many errors of a damaged or unreadable file into one `DataError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile | zstandard.ZstdError):
            raise DataError(f"{self.path}: the compressed file is damaged or cut short ({error})") from error
        if isinstance(error, OSError):
            raise DataError(f"{self.path}: cannot be read ({error.strerror or error})") from error


class _ZstandardFrames(io.RawIOBase):
    """The bytes of all frames of a .zst file; unlike zstandard's own reader it notices a cut one."""

    # What one piece unpacks to stands in memory; a block of one repeated byte is 4 bytes for 128 KiB.
    PACKED_PIECE = 1 << 10

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.frame = zstandard.ZstdDecompressor().decompressobj()
        self.started = False
        self.unpacked = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.unpacked:
            packed = (self.frame.unused_data if self.frame.eof else b"") or self.file.read(self.PACKED_PIECE)
            if not packed:
                if self.started and not self.frame.eof:
                    raise EOFError("the last frame has no end")
                return 0
            if self.frame.eof:
                self.frame = zstandard.ZstdDecompressor().decompressobj()
            self.started = True
            self.unpacked = memoryview(self.frame.decompress(packed))
        count = min(len(buffer), len(self.unpacked))
        buffer[:count], self.unpacked = self.unpacked[:count], self.unpacked[count:]
        return count

    def close(self) -> None:
        self.file.close()
        super().close()
