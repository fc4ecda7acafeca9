"""The texts that `electra score` and `electra predict` read, and their results as lines."""

import contextlib
import csv
import io
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from electra import durable
from electra.errors import ConfigError, DataError
from electra.readers import read
from electra.readers.base import Item, Reject, make_document
from electra.readers.text import texts_of_lines

logger = logging.getLogger(__name__)

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Lines:
    """Results to print, one per line."""

    lines: list[str]

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class WrittenFile:
    """A file of results.

    Attributes:
        count: the number of results in it.
        what: the name of one result, such as "prediction".
    """

    count: int
    what: str
    path: Path

    def __str__(self) -> str:
        return f"{self.count:,} {self.what}{'s' * (self.count != 1)}: {self.path}"


def read_texts(texts: Iterable[str], name: str | None, *, text_column: str | None = None) -> Iterator[str]:
    """The texts of the command line, then those of a file. A line that cannot be used is skipped with a warning.

    Args:
        name: the path of the file, - for standard input (one text per line), or None.
        text_column: the column of the texts in a table. None: it is detected.

    Raises:
        DataError: the file is missing or of an unknown format; or, after the last line, there was no text at all.
    """
    given = (make_document(text, "the command line", number) for number, text in enumerate(texts, start=1))
    items: Iterator[Item] = iter(())
    if name == STANDARD_INPUT:
        items = texts_of_lines("standard input", enumerate(sys.stdin.buffer, start=1))
    elif name is not None:
        items = read.read_texts(Path(name), text_column=text_column)
    return _usable(chain(given, items), name)


def warn_of_paths(texts: Iterable[str]) -> None:
    """Warn if a text of the command line is the path of a file, which was probably meant as --input."""
    for text in texts:
        with contextlib.suppress(OSError):  # of a text that is too long for a path
            if Path(text).is_file():
                logger.warning(
                    "%s is a file, but is read as a text; to read what is in it, give --input %s", text, text
                )
                return


def _usable(items: Iterable[Item], name: str | None) -> Iterator[str]:
    has_text = False
    for item in items:
        if isinstance(item, Reject):
            logger.warning("%s:%s is skipped: %s", item.source, item.line, item.reason)
        else:
            has_text = True
            yield item.text
    if not has_text:
        raise no_text_error(name)


def no_text_error(name: str | None) -> DataError:
    """The error for an input file, or a command line (None), without any text."""
    where = {None: "the command line", STANDARD_INPUT: "standard input"}.get(name, name)
    return DataError(f"there is no text in {where}; give a text, or --input FILE with a text")


def check_place(path: Path | None) -> None:
    """Check the folder of the file of --output, if one is given.

    Raises:
        ConfigError: there is no such folder, or the path itself is a folder.
    """
    if path is None:
        return
    if not path.parent.is_dir():
        raise ConfigError(f"--output: there is no folder {path.parent}; create it, or give another --output")
    with contextlib.suppress(OSError):  # a name that is too long; writing fails with the reason
        if path.is_dir():
            raise ConfigError(f"--output: {path} is a folder; give a file, such as {path / 'results.jsonl'}")


def check_suffix(path: Path, suffixes: tuple[str, ...], *, option: str = "--output") -> None:
    """Check the ending of a file to write.

    Raises:
        ConfigError: the file has another one.
    """
    if path.suffix.lower() not in suffixes:
        *others, last = suffixes
        raise ConfigError(f"{option}: {path.name} must end in {', '.join(others)}{' or ' * bool(others)}{last}")


def table_row(values: Iterable[Any], suffix: str) -> str:
    """A row of a .csv or .tsv file."""
    stream = io.StringIO()
    csv.writer(stream, delimiter="," if suffix == ".csv" else "\t", lineterminator="").writerow(values)
    return stream.getvalue()


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines to a file, all of them or none, and return their number.

    Raises:
        DataError: the file cannot be written.
    """
    count = 0

    def write(partial: Path) -> None:
        nonlocal count
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1

    try:
        durable.write(path, write)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error
    return count
