"""Base classes of readers, and the registry that finds the reader of a file by its name.

To add a format, write a subclass of `Reader` (or of `TableReader`, if the files have columns) and register it.
Modules in this package are imported automatically. A module outside it is a plugin (see `electra.registry`):

    @register_reader
    class XmlReader(Reader):
        name, endings = "xml", (".xml",)

        def read_documents(self, path: Path, options: ReadOptions) -> Iterator[Item]:
            with open_file(path) as file:
                for number, page in enumerate(iterate_pages(file), start=1):
                    yield make_document(page.text, str(path), number)
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from electra.errors import DataError, did_you_mean
from electra.registry import Registry

DocumentRule = Literal["blank-line", "file"]

COMPRESSIONS = (".gz", ".zst")
DETECTION_RECORDS = 100  # records that are read to find the text column
DETECTION_LINES = 1000  # lines that are read at most to find them
HEADER_HINT = "or, if the first line is no header, put one before it"
"""Second remedy where the names of columns are wrong."""
TEXT_COLUMNS = ("text", "content", "contents", "body", "document", "article", "raw_content", "passage", "sentence")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its location: the file or data set, and the line (or row) where it begins, from 1."""

    text: str
    source: str
    line: int


@dataclass(frozen=True, slots=True)
class Record:
    """A row of a table: its values by the name of the column, and its location."""

    values: dict[str, Any]
    source: str
    line: int


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that cannot be used, and the reason."""

    source: str
    line: int
    reason: str


Item = Document | Reject


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How documents are read.

    Attributes:
        column: the column (or key) with the text; None for formats without columns.
        documents: what ends a document of a plain text file: a blank line, or only the end of the file.
    """

    column: str | None = None
    documents: DocumentRule = "blank-line"


class Reader(ABC):
    """Reads the files of one format, in bounded memory.

    A bad line is a `Reject` with its location and the reason, and reading continues. A bad file raises
    `DataError`.

    Attributes:
        name: the name of the format.
        endings: the endings of its file names, each with a dot. Each may be followed by .gz or .zst.
        binary: whether the files are not text. Files of other formats are checked to be UTF-8.
    """

    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    binary: ClassVar[bool] = False

    @abstractmethod
    def read_documents(self, path: Path, options: ReadOptions) -> Iterator[Item]:
        """Yield the documents and rejects of a file in their order."""

    def read_texts(self, path: Path, options: ReadOptions) -> Iterator[Item]:
        """Yield the texts of a file for tools that process one text at a time: its documents."""
        return self.read_documents(path, options)

    def find_text_column(self, path: Path, column: str | None = None) -> str | None:
        """Return the column that holds the text; None: the format has no columns.

        Args:
            column: the name of the column if the user gave one.
        """
        return None


class TableReader(Reader):
    """Reads the files of a format with named columns.

    Attributes:
        has_header: whether the first line has the names.
    """

    has_header: ClassVar[bool] = False

    @abstractmethod
    def read_records(self, path: Path, columns: Sequence[str] | None = None) -> Iterator[Record | Reject]:
        """Yield the rows and rejects of a file in their order.

        Args:
            columns: the columns that are needed, if they are known; others may be left out.
        """

    def column_names(self, path: Path) -> list[str]:
        """Return the names that the file itself lists; the keys of the first records are added to them."""
        return []

    def read_documents(self, path: Path, options: ReadOptions) -> Iterator[Item]:
        assert options.column is not None
        for record in self.read_records(path, [options.column]):
            if isinstance(record, Reject):
                yield record
            elif options.column in record.values:
                yield make_document(record.values[options.column], record.source, record.line)
            else:
                keys = ", ".join(map(repr, record.values))
                yield Reject(record.source, record.line, f"no key {options.column!r}; the keys are {keys}")

    def find_text_column(self, path: Path, column: str | None = None) -> str:
        """Return the column named, else one with a usual name, else the one with the longest strings.

        Raises:
            DataError: the named column is missing, no column holds text, or no record can be read.
        """
        records: list[dict[str, Any]] = []
        reason = "the file is empty"
        for item in islice(self.read_records(path), DETECTION_LINES):
            if isinstance(item, Record):
                records.append(item.values)
            elif not records:
                reason = f"line {item.line}: {item.reason}"
            if len(records) == DETECTION_RECORDS:
                break
        names = list(dict.fromkeys([*self.column_names(path), *(name for record in records for name in record)]))
        if not names:
            raise DataError(f"{path}: no record in the first lines ({reason}); is this {self.name}?")
        return choose_text_column(str(path), names, records, column)


def choose_text_column(source: str, names: list[str], records: list[dict[str, Any]], column: str | None) -> str:
    """Return the column named, else one with a usual name, else the one with the longest strings.

    Raises:
        DataError: the named column is missing, or no column holds text.
    """
    listed = ", ".join(map(repr, names))
    if column is not None:
        if column not in names:
            hint = did_you_mean(column, names) or f"; name another one{header_hint(Path(source))}"
            raise DataError(f"{source}: there is no column {column!r}; the columns are {listed}{hint}")
        return column
    length = {
        name: sum(len(record[name]) for record in records if isinstance(record.get(name), str)) for name in names
    }
    usual = [name for usual_name in TEXT_COLUMNS for name in names if name.lower() == usual_name and length[name]]
    if usual:
        return usual[0]
    if not any(length.values()):
        raise DataError(f"{source}: no column holds text (the columns are {listed}); name one with --text-column")
    return max(length, key=lambda name: length[name])


def header_hint(path: Path) -> str:
    """Return a remedy for a missing column, as the end of a sentence; empty for formats without a header line."""
    reader = find_reader(path)
    return f"; {HEADER_HINT}" if isinstance(reader, TableReader) and reader.has_header else ""


def make_document(text: object, source: str, line: int) -> Item:
    """Return a document, or a reject if the value is not a text that can be written as UTF-8."""
    if not isinstance(text, str):
        return Reject(source, line, f"the text is {type(text).__name__}, not a string")
    if not text or text.isspace():
        return Reject(source, line, "the text is empty")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair
            return Reject(source, line, f"broken Unicode ({error.reason} at character {error.start})")
    return Document(text, source, line)


readers = Registry("reader", "electra.readers", {})
"""Reader classes by the ending of file names. Entry points of installed packages are named by the ending, too."""
ReaderClass = TypeVar("ReaderClass", bound=type[Reader])


def register_reader(reader: ReaderClass) -> ReaderClass:
    """Register a reader for the endings that it names; use it as a decorator of the class.

    Raises:
        ConfigError: another reader has one of these endings.
    """
    for ending in reader.endings:
        readers.register(ending)(reader)
    return reader


def find_reader(path: Path) -> Reader | None:
    """Return the reader for a file of this name; None: its format is unknown."""
    _import_readers()
    name = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    reader: type[Reader] | None = readers.find(name.suffix.lower())
    return None if reader is None else _build(reader)


@cache
def _build(reader: type[Reader]) -> Reader:
    return reader()


def get_reader(path: Path) -> Reader:
    """Return the reader for a file.

    Raises:
        DataError: there is no such file, or its format is unknown.
    """
    check_is_file(path)
    if (reader := find_reader(path)) is None:
        hint = "; convert it to .jsonl, one object per line" if path.suffix == ".json" else ""
        raise DataError(f"{path}: unknown file format; {known_endings()}{hint}")
    return reader


def check_is_file(path: Path) -> None:
    """
    Raises:
        DataError: the path is a folder, or does not exist.
    """
    if path.is_dir():
        raise DataError(f"{path}: it is a folder; give one of its files")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")


def known_endings(*, tables: bool = False) -> str:
    """Return a sentence that lists the known endings, of all formats or of those with named columns."""
    _import_readers()
    endings = sorted(ending for ending, reader in readers if not tables or issubclass(reader, TableReader))
    return f"known formats are {', '.join(endings)}, each also with {' or '.join(COMPRESSIONS)}"


@cache
def _import_readers() -> None:
    """Import the modules of this package, which register their readers."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
