"""The columns of a table with the texts and the labels: named by the user, or found by their usual names."""

from collections.abc import Sequence
from pathlib import Path

from electra.errors import DataError, did_you_mean
from electra.readers.base import header_hint
from electra.tasks.config import DataConfig

TEXT_COLUMNS = (
    "text", "sentence", "sentence1", "premise", "question", "review", "content", "first", "body", "text_a",
    "query",
)  # fmt: skip
PAIR_COLUMNS = ("sentence2", "hypothesis", "second", "text_pair", "answer", "context", "text_b", "passage")
LABEL_COLUMNS = ("label", "labels", "class", "category", "score", "rating", "stars", "target")
"""Usual names, in order of preference."""
USUAL_PAIRS = {
    "sentence1": "sentence2", "premise": "hypothesis", "first": "second", "text": "text_pair", "text_a": "text_b",
    "query": "passage",
}  # fmt: skip
"""Names that belong together: a table that has both has pairs of texts."""


def find_columns(
    path: Path,
    names: Sequence[str],
    data: DataConfig,
    *,
    pairs: bool | None,
    needs_label: bool,
    no_labels: Sequence[str] = (),
) -> tuple[str, str | None, str | None]:
    """Return the columns of the text, the second text (None: there are no pairs) and the label (None: not there).

    Args:
        names: all columns of the file.
        pairs: whether the rows have two texts. None: if a second column is named, or no column of a text is and
            the usual names are a pair.
        no_labels: columns that are not the label in the training file, so not in others either.

    Raises:
        DataError: a column is missing.
    """
    if pairs is None:
        usual_pair = data.text is None and _usual_second(names, TEXT_COLUMNS, label=data.label) is not None
        pairs = data.pair is not None or usual_pair
    text, pair = find_text_columns(
        path, names, data.text, data.pair, pairs=pairs, label=data.label, usual=(TEXT_COLUMNS, PAIR_COLUMNS)
    )
    used = (text, pair, *no_labels)
    rest = [name for name in names if name not in used]
    if not needs_label and not (data.label in rest if data.label else _first_usual(rest, LABEL_COLUMNS)):
        return text, pair, None
    return text, pair, _find(path, names, data.label, LABEL_COLUMNS, "--data.label", used=used)


def find_text_columns(
    path: Path,
    names: Sequence[str],
    text: str | None,
    pair: str | None,
    *,
    pairs: bool,
    usual: tuple[Sequence[str], Sequence[str]],
    label: str | None = None,
    options: tuple[str, str] = ("--data.text", "--data.pair"),
) -> tuple[str, str | None]:
    """Return the columns of the text and, if there are pairs, of the second text.

    Args:
        names: all columns of the file.
        text, pair, label: the columns that were named; None: those with usual names.
        usual: usual names of the text's and of the second text's column. If no column is named, two names that
            belong together are preferred.
        options: options that name the two, for messages.

    Raises:
        DataError: a column is missing, or both are the same.
    """
    rest = [name for name in names if name != label]
    if pairs and text is None and pair is None and not any(_first_usual(rest, one) for one in usual):
        raise DataError(
            f"{path}: there are no columns with usual names for a pair of texts; the columns are "
            f"{', '.join(map(repr, names))}; name two with {' and '.join(options)}"
        )
    first = _find(path, names, text, usual[0], options[0], used=(pair, label))
    if not pairs:
        return first, None
    if text is None and pair is None:
        pair = _usual_second(names, usual[0], label=label)
    second = _find(path, names, pair, usual[1], options[1], used=(first, label))
    if first == second:
        raise DataError(f"{path}: both texts would be column {first!r}; name two with {' and '.join(options)}")
    return first, second


def _find(
    path: Path,
    names: Sequence[str],
    column: str | None,
    usual: Sequence[str],
    option: str,
    *,
    used: Sequence[str | None],
) -> str:
    """Return `column` if it is given, else the first column with a usual name that is not used for something else.

    Raises:
        DataError: there is no such column.
    """
    if column in names:
        return str(column)
    if column is not None:
        similar = did_you_mean(column, [name for name in names if name not in used])
        missing, hint = repr(column), similar or f"; name another one with {option}{header_hint(path)}"
    elif usual_name := _first_usual([name for name in names if name not in used], usual):
        return usual_name
    else:
        missing, hint = f"with a usual name for {option}", f"; name it with {option}{header_hint(path)}"
    raise DataError(f"{path}: there is no column {missing}; the columns are {', '.join(map(repr, names))}{hint}")


def _first_usual(names: Sequence[str], usual: Sequence[str]) -> str | None:
    return next((name for one in usual for name in names if name.lower() == one), None)


def _usual_second(names: Sequence[str], usual: Sequence[str], *, label: str | None) -> str | None:
    """Return the column that is a pair with the column of the text, by their names."""
    names = [name for name in names if name != label]
    first = (_first_usual(names, usual) or "").lower()
    return _first_usual(names, [USUAL_PAIRS[first]]) if first in USUAL_PAIRS else None
