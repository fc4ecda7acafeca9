"""Which columns of a table hold texts and answers: as they were named, or under a usual name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from electra.config import did_you_mean
from electra.errors import DataError

TEXTS = ("text", "sentence", "sentence1", "premise", "question", "review", "content", "first", "body")
SECONDS = ("sentence2", "hypothesis", "second", "text_pair", "answer", "context")
ANSWERS = ("label", "labels", "class", "category", "score", "rating", "stars", "target")


@dataclass(frozen=True)
class Columns:
    """Where texts and answers stand; None: under a usual name."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    separator: str = ","
    """Between the labels of one text, where they are not a list."""

    def found(
        self, path: Path, names: Sequence[str], *, pairs: bool, needs_label: bool
    ) -> tuple[str, str | None, str | None]:
        """The columns of the text, the second text and the answer in a file with columns of these names.

        Raises:
            DataError: one is not there.
        """
        text, pair = find_text_columns(path, names, self.text, self.pair, pairs=pairs, label=self.label)
        rest = [name for name in names if name not in (text, pair)]
        if not needs_label and not (self.label in rest if self.label else _usual(rest, ANSWERS)):
            return text, pair, None
        return text, pair, _find(path, names, self.label, ANSWERS, "--data.label", taken=(text, pair))


def find_text_columns(
    path: Path,
    names: Sequence[str],
    text: str | None,
    pair: str | None,
    *,
    pairs: bool,
    label: str | None = None,
    usual: tuple[Sequence[str], Sequence[str]] = (TEXTS, SECONDS),
    options: tuple[str, str] = ("--data.text", "--data.pair"),
) -> tuple[str, str | None]:
    """The columns of the text and, where there are pairs, of the second text.

    Args:
        names: of all columns.
        text, pair, label: the columns that were named.
        usual: what the text's and the second text's column are called where they are not named.
        options: that name the two.

    Raises:
        DataError: a column is not there, or both would be the same.
    """
    first = _find(path, names, text, usual[0], options[0], taken=(pair, label))
    if not pairs:
        return first, None
    second = _find(path, names, pair, usual[1], options[1], taken=(first, label))
    if first == second:
        raise DataError(f"{path}: both texts would be column {first!r}; name two with {' and '.join(options)}")
    return first, second


def _find(
    path: Path,
    names: Sequence[str],
    wanted: str | None,
    usual: Sequence[str],
    option: str,
    *,
    taken: Sequence[str | None],
) -> str:
    """The column that is wanted; where none is, the first usual name that is not taken."""
    if wanted in names:
        return str(wanted)
    if wanted is not None:
        what, hint = repr(wanted), did_you_mean(wanted, names)
    elif found := _usual([name for name in names if name not in taken], usual):
        return found
    else:
        what, hint = f"with a usual name for {option}", f"; name it with {option}"
    raise DataError(f"{path}: there is no column {what}; the columns are {', '.join(map(repr, names))}{hint}")


def _usual(names: Sequence[str], usual: Sequence[str]) -> str | None:
    return next((name for one in usual for name in names if name.lower() == one), None)
