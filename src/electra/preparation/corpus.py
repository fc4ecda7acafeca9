"""The sources of a corpus: the files, folders, patterns, standard input and hub data sets that a user names.

Every source is checked before any work begins, so that a wrong column or a binary file stops the run at once.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from electra import durable
from electra.data.shards import MANIFEST, TOKENIZER
from electra.errors import DataError
from electra.readers.base import DocumentRule, Item, Reader, ReadOptions, find_reader, get_reader, known_endings
from electra.readers.hub import PREFIX, find_hub_column, read_hub
from electra.readers.read import open_reader

logger = logging.getLogger(__name__)

STANDARD_INPUT = "-"
SPOOL = "stdin"


@dataclass(frozen=True, slots=True)
class Source:
    """One file or data set.

    Attributes:
        name: the path, or the name of the data set.
        reader: None: a data set of the hub.
        size: bytes on disk; 0: unknown.
        column: the column with the text; None: the format has no columns.
    """

    name: str
    reader: Reader | None
    size: int
    column: str | None

    @property
    def format(self) -> str:
        """The name of the format."""
        return self.reader.name if self.reader else "hub"

    def read(self, documents: DocumentRule = "blank-line") -> Iterator[Item]:
        """Yield the documents and rejects in their order.

        Args:
            documents: what a document of a plain text file is: text up to a blank line, or the whole file.

        Raises:
            DataError: the file turns out to be damaged.
        """
        if self.reader is None:
            assert self.column is not None
            return read_hub(self.name, self.column)
        if not self.size:  # an empty file has nothing to read, whatever its format
            return iter(())
        return self.reader.read_documents(Path(self.name), ReadOptions(self.column, documents))


def find_sources(
    corpus: Sequence[str], *, out: Path, text_column: str | None = None, stdin: IO[bytes] | None = None
) -> list[Source]:
    """Find and check every file and data set that a corpus names, in a fixed order.

    Args:
        corpus: files, folders (searched recursively, in order of path), patterns like `"texts/**/*.txt"`, `"-"`
            for standard input, `"hub:NAME"` or `"hub:NAME:CONFIG"` for the train split of a hub data set.
        out: the folder being written. Standard input is kept there until the work is done. Files in it are not
            part of the corpus.
        text_column: the column (or key) of the text; None: it is detected.

    Raises:
        DataError: a source is missing, empty, binary, of an unknown format, or without the text column.
    """
    if not corpus:
        raise DataError("No corpus was named; give files, folders, patterns, - for standard input, or hub:NAME")
    sources: dict[str, Source] = {}
    for name in corpus:
        if name.startswith(PREFIX):
            sources[name] = Source(name, None, 0, find_hub_column(name, text_column))
            continue
        for path in [_spool(out, stdin or sys.stdin.buffer)] if name == STANDARD_INPUT else _find_files(name, out):
            if str(path) not in sources:
                sources[str(path)] = _check_file(path, text_column)
    if not any(source.size or source.reader is None for source in sources.values()):
        raise DataError(f"The corpus is empty: {', '.join(corpus)} holds no bytes")
    return list(sources.values())


def _find_files(name: str, out: Path) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    if (path / MANIFEST).is_file() and (path / TOKENIZER).is_file():
        raise DataError(
            f"{path} is prepared data already, not text; give it to electra pretrain --data {path}, or prepare "
            "the text that it was made from"
        )
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        inside = [file for file in inside if out.resolve() not in file.resolve().parents]
        readable = [file for file in inside if find_reader(file) and not file.name.startswith(".")]
        if len(readable) < len(inside):
            logger.info("%s: files of a known format: %d of %d", path, len(readable), len(inside))
        if not readable:
            raise DataError(f"{path}: the folder holds no file of a known format; {known_endings()}")
        return readable
    if any(mark in name for mark in "*?["):
        pattern = path.relative_to(path.anchor) if path.is_absolute() else path
        matches = sorted(file for file in Path(path.anchor).glob(str(pattern)) if file.is_file())
        if not matches:
            raise DataError(f"{name}: no file matches the pattern")
        return matches
    raise DataError(f"{name}: there is no such file or folder")


def _check_file(path: Path, text_column: str | None) -> Source:
    reader = get_reader(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if not size:
        return Source(str(path), reader, 0, None)
    open_reader(path)
    return Source(str(path), reader, size, reader.find_text_column(path, text_column))


def _spool(out: Path, stdin: IO[bytes]) -> Path:
    """Write standard input to a file in `out`, so that it can be read twice, and again after a kill."""
    finished = [path for path in out.glob(f"{SPOOL}.*.zst") if find_reader(path)]
    if finished:
        logger.info("Standard input was kept in %s by the previous run and is not read again", finished[0])
        return finished[0]
    first = stdin.read(1 << 16)
    if not first:
        raise DataError("Standard input is empty")
    ending = "jsonl" if first.lstrip().startswith(b"{") else "txt"
    path = out / f"{SPOOL}.{ending}.zst"

    def write(partial: Path) -> None:
        with partial.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as compressed:
            compressed.write(first)
            while more := stdin.read(1 << 20):
                compressed.write(more)

    out.mkdir(parents=True, exist_ok=True)
    durable.write(path, write)
    return path


def remove_spool(out: Path) -> None:
    """Delete the kept copy of standard input."""
    for path in out.glob(f"{SPOOL}.*.zst*"):
        path.unlink()
