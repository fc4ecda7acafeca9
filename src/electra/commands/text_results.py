"""What the verbs that read texts return: lines to show, or a file that was written."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from electra import durable
from electra.errors import DataError
from electra.reports.analysis import count_of

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Lines:
    """Results, a line each."""

    lines: list[str]

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Written:
    """Results that went to a file.

    Attributes:
        what: one of them is, such as "prediction".
    """

    count: int
    what: str
    path: Path

    def __str__(self) -> str:
        return f"{count_of(self.count, self.what)}: {self.path}"


def no_text(name: str | None) -> DataError:
    """The error of an input, or (None) of a command line, in which there is no text at all."""
    where = {None: "the command line", STANDARD_INPUT: "standard input"}.get(name, name)
    return DataError(f"there is no text in {where}; give a text, or --input FILE with one")


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines to a file, whole or not at all, and count them.

    Raises:
        DataError: it cannot be written.
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
