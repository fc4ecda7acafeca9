"""What a corpus is made of: the files, folders, patterns, standard input and hub data sets that a user names.

Every source is looked at before any work begins, so that a wrong column or a binary file stops the run at once.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import zstandard

from electra import durable
from electra.errors import DataError
from electra.readers import formats
from electra.readers.formats import Document, DocumentRule, Item, Reject

__all__ = ["Document", "DocumentRule", "Item", "Reject", "Source", "find_sources", "read"]

logger = logging.getLogger(__name__)

Kind = Literal["text", "jsonl", "csv", "parquet", "hub"]
KINDS: dict[str, Kind] = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
KNOWN = "known are .txt, .jsonl, .csv, .tsv and .parquet, each also with .gz or .zst"
HUB = "hub:"
SPOOL = "stdin"


@dataclass(frozen=True, slots=True)
class Source:
    """One file or data set: its name, its kind, its bytes on disk (0: unknown) and its text column."""

    name: str
    kind: Kind
    size: int
    column: str | None


def find_sources(
    corpus: Sequence[str], *, out: Path, text_column: str | None = None, stdin: IO[bytes] | None = None
) -> list[Source]:
    """Every file and data set that a corpus names, in a fixed order, each checked.

    Args:
        corpus: files, folders (searched through, in order of path), patterns like `"texts/**/*.txt"`, `"-"` for
            standard input, `"hub:NAME"` or `"hub:NAME:CONFIG"` for the train split of a hub data set.
        out: the folder being written; standard input is kept there until the work is done, and what lies in it is
            no part of the corpus.
        text_column: the column (or key) of the text; None to find it.

    Raises:
        DataError: when a source is missing, empty, binary, of an unknown kind, or without the text column.
    """
    if not corpus:
        raise DataError("No corpus was named; give files, folders, patterns, - for standard input, or hub:NAME")
    sources: dict[str, Source] = {}
    for name in corpus:
        if name.startswith(HUB):
            sources[name] = Source(name, "hub", 0, _hub_column(name, text_column))
            continue
        for path in [_spool(out, stdin or sys.stdin.buffer)] if name == "-" else _files(name, out):
            if str(path) not in sources:
                sources[str(path)] = _check(path, text_column)
    if not any(source.size or source.kind == "hub" for source in sources.values()):
        raise DataError(f"The corpus is empty: {', '.join(corpus)} holds no bytes")
    return list(sources.values())


def read(source: Source, documents: DocumentRule = "blank-line") -> Iterator[Item]:
    """The documents and rejects of a source, in its order.

    Args:
        documents: what a document of a .txt file is: text up to a blank line, or the whole file.

    Raises:
        DataError: when the file turns out to be damaged.
    """
    path = Path(source.name)
    if source.kind == "text":
        return formats.read_text(path, documents)
    assert source.column is not None
    if source.kind == "hub":
        return _read_hub(source.name, source.column)
    reader = {"jsonl": formats.read_jsonl, "csv": formats.read_csv, "parquet": formats.read_parquet}[source.kind]
    return reader(path, source.column)


def kind_of(path: Path) -> Kind | None:
    """The kind of a file by its name, compression aside."""
    name = path.with_suffix("") if path.suffix in (".gz", ".zst") else path
    return KINDS.get(name.suffix.lower())


def _files(name: str, out: Path) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        apart = [file for file in inside if out.resolve() not in file.resolve().parents]
        found = [file for file in apart if kind_of(file) and not file.name.startswith(".")]
        if len(found) < len(apart):
            logger.info("%s: %d of %d files are of a known kind", path, len(found), len(apart))
        if not found:
            raise DataError(f"{path}: the folder holds no file of a known kind; {KNOWN}")
        return found
    if any(mark in name for mark in "*?["):
        pattern = path.relative_to(path.anchor) if path.is_absolute() else path
        found = sorted(file for file in Path(path.anchor).glob(str(pattern)) if file.is_file())
        if not found:
            raise DataError(f"{name}: no file matches the pattern")
        return found
    raise DataError(f"{name}: there is no such file or folder")


def _check(path: Path, text_column: str | None) -> Source:
    kind = kind_of(path)
    if kind is None:
        hint = "; a .json file has to be turned into .jsonl, one object a line" if path.suffix == ".json" else ""
        raise DataError(f"{path}: the kind of file is unknown; {KNOWN}{hint}")
    try:
        size = path.stat().st_size
        if kind != "parquet":
            formats.check_is_text(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if kind == "text" or not size:
        return Source(str(path), "text", size, None)  # an empty file has nothing to read, whatever its name
    return Source(str(path), kind, size, formats.text_column(path, kind, text_column))


def _spool(out: Path, stdin: IO[bytes]) -> Path:
    """Standard input as a file in `out`, so that it can be read twice, and again after a kill."""
    finished = [path for path in out.glob(f"{SPOOL}.*.zst") if kind_of(path)]
    if finished:
        logger.info("Standard input was kept in %s by the run before and is not read again", finished[0])
        return finished[0]
    first = stdin.read(1 << 16)
    if not first:
        raise DataError("Standard input is empty")
    kind = "jsonl" if first.lstrip().startswith(b"{") else "txt"
    path = out / f"{SPOOL}.{kind}.zst"

    def write(partial: Path) -> None:
        with partial.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as packed:
            packed.write(first)
            while more := stdin.read(1 << 20):
                packed.write(more)

    out.mkdir(parents=True, exist_ok=True)
    durable.write(path, write)
    return path


def remove_spool(out: Path) -> None:
    """Deletes the kept copy of standard input."""
    for path in out.glob(f"{SPOOL}.*.zst*"):
        path.unlink()


def _hub_rows(name: str) -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{name}: data sets of the hub need the `datasets` library: pip install 'electra[hub]'"
        ) from error
    path, _, config = name.removeprefix(HUB).partition(":")
    try:
        yield from datasets.load_dataset(path, config or None, split="train", streaming=True)
    except Exception as error:  # whatever the hub, the network or a data set's own files can raise
        raise DataError(f"{name}: the data set cannot be read ({type(error).__name__}: {error})") from error


def _hub_column(name: str, wanted: str | None) -> str:
    rows = list(islice(_hub_rows(name), formats.DETECTION_ROWS))
    return formats.choose_column(name, list(rows[0]) if rows else [], rows, wanted)


def _read_hub(name: str, column: str) -> Iterator[Item]:
    for number, row in enumerate(_hub_rows(name), 1):
        yield formats.checked_text(row.get(column), name, number)
