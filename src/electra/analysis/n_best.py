"""N-best lists of a speech recogniser, and what was really said.

Two forms are read: a table with a row for each hypothesis (transcription, hypothesis, score), of which consecutive
rows with the same id, or without ids the same transcription, are one list; and JSON lines with a list each
(reference, hypotheses: text and score). Where they do not hold what was said, a file of references does, in which
it is found by the list's id or by the recogniser's first best.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from electra.errors import DataError
from electra.readers.read import read_records

REFERENCE, HYPOTHESIS, SCORE, ID = ("reference", "transcription"), ("hypothesis", "text"), ("score",), ("id",)
"""The columns that are known, the first that there is."""
LIST = "hypotheses"
UNKNOWN = "<unk>"
"""What recognisers write for a word that they do not know: a word, and one that is never right."""

NORMALISATION = (
    "lower case; words are runs of letters and digits, so that punctuation, apostrophes and underscores part them "
    "(what's: what s); <eps> and marks in square brackets ([noise]) are no words; <unk> is one, and never right; "
    "digits stay digits"
)

Scale = Literal["auto", "probability", "log"]
LEAST = 1e-12
"""A probability below this counts as this, as 0 has no logarithm."""

_NO_WORDS = re.compile(r"<eps>|\[[^\]\s]*\]")
_WORDS = re.compile(rf"{UNKNOWN}|[^\W_]+")


@dataclass(frozen=True)
class Utterance:
    """A list of hypotheses, the recogniser's first best first.

    Attributes:
        reference: the words that were said.
        texts: the hypotheses as a model reads them.
        scores: natural logarithms.
    """

    reference: list[str]
    texts: list[str]
    scores: list[float]


@dataclass(frozen=True)
class NBestLists:
    """What was read.

    Attributes:
        left_out: lists that could not be joined with a reference, by the reason.
        scale: of the scores in the file, "probability" or "log".
        first_best_added: lists whose first best came from the file of references' join, with the score of the best
            alternative.
        empty: hypotheses without anything to read, as of a recogniser that heard nothing.
    """

    utterances: list[Utterance]
    left_out: dict[str, int]
    scale: Scale
    first_best_added: int
    empty: int


@dataclass(frozen=True)
class _Row:
    """A hypothesis as it was read; those of one list have the same group."""

    where: str
    name: str | None
    group: str
    heading: str | None
    text: str
    score: float


@dataclass
class _References:
    """What was said, by the list's id and by the first best."""

    by_id: dict[str | None, str] = field(default_factory=dict)
    by_text: dict[str, set[str]] = field(default_factory=dict)


def words_of(text: str) -> list[str]:
    """The words of a text as errors are counted (`NORMALISATION`)."""
    return _WORDS.findall(_NO_WORDS.sub(" ", unicodedata.normalize("NFC", text).lower()))


def readable(text: str) -> str:
    """A hypothesis as a model reads it: without marks that are no words, letters of p._m apart, it 's joined."""
    parted = _NO_WORDS.sub(" ", text).replace("._", " ").replace("_", " ")
    return re.sub(r"\s+'", "'", " ".join(parted.split()))


def read_lists(path: Path, *, references: Path | None = None, scale: Scale = "auto") -> NBestLists:
    """The lists of a file.

    Args:
        references: a table with what was said (reference or transcription) and by what it is found: id, or the
            recogniser's first best (hypothesis). The lists' transcription is then the first best.
        scale: of the scores; auto: probabilities where all lie from 0 to 1, else logarithms (higher: better).

    Raises:
        DataError: a file cannot be read, a row lacks something, a score is no number, a reference has no words.
    """
    groups = [list(rows) for _, rows in itertools.groupby(_rows(path), key=lambda row: row.group)]
    if not groups:
        raise DataError(f"{path}: there are no hypotheses in it")
    seen = set[str]()
    for first in (rows[0] for rows in groups if rows[0].name is not None):
        if first.group in seen:  # read as two lists, each would lack the other's hypotheses
            raise DataError(f"{first.where}: id {first.name!r} comes again; put the rows of a list together")
        seen.add(first.group)
    scores = [row.score for rows in groups for row in rows]
    if scale == "auto":
        scale = "probability" if all(0 <= score <= 1 for score in scores) else "log"
    if scale == "probability" and (bad := next((s for s in scores if not 0 <= s <= 1), None)) is not None:
        raise DataError(f"{path}: a score is {bad:g}, which is no probability; give --scale log")
    said = None if references is None else _references(references)
    utterances, left_out, added = [], dict[str, int](), 0
    for rows in groups:
        reference, problem = _reference(rows, said)
        if problem:
            left_out[problem] = left_out.get(problem, 0) + 1
            continue
        assert reference is not None
        if not words_of(reference):
            raise DataError(f"{rows[0].where}: the reference {reference!r} has no words to be right or wrong")
        logs = [math.log(max(row.score, LEAST)) if scale == "probability" else row.score for row in rows]
        best = max(range(len(rows)), key=lambda place: logs[place])
        order = [best, *(place for place in range(len(rows)) if place != best)]
        texts, logs = [rows[place].text for place in order], [logs[place] for place in order]
        if said is not None and rows[0].heading is not None:  # the first best, whose score is not in the file
            texts, logs, added = [rows[0].heading, *texts], [logs[0], *logs], added + 1
        utterances.append(Utterance(words_of(reference), [readable(text) for text in texts], logs))
    if not utterances:
        raise DataError(f"{path}: no list has a reference in {references}; it is found by id or by the first best")
    if all(len(one.texts) == 1 for one in utterances):
        raise DataError(
            f"{path}: each list has one hypothesis, so there is nothing to choose; hypotheses of one list are "
            "rows behind each other with the same id, or without ids with the same transcription"
        )
    empty = sum(not text for one in utterances for text in one.texts)
    return NBestLists(utterances, left_out, scale, added, empty)


def _reference(rows: Sequence[_Row], said: _References | None) -> tuple[str | None, str]:
    """What was said, or why it is not known."""
    heading = rows[0].heading
    if said is None:
        if heading is None:
            raise DataError(
                f"{rows[0].where}: a list has a reference or transcription; there is none. Give what was said, or "
                "a file with it: --references"
            )
        return heading, ""
    if rows[0].name in said.by_id:
        return said.by_id[rows[0].name], ""
    found = said.by_text.get(_key(heading or rows[0].text), set())
    if len(found) > 1:
        return None, "whose first best has several references"
    return (found.copy().pop(), "") if found else (None, "without a reference")


def _key(text: str) -> str:
    """A first best by its letters alone: files of one recogniser cut words differently (don't, do n't)."""
    return "".join(words_of(text))


def _references(path: Path) -> _References:
    found = _References()
    for line, record in read_records(path):
        where = f"{path}:{line}"
        reference = _text(record, REFERENCE, where)
        name = next((name for name in ID if record.get(name) not in (None, "")), None)
        if name is not None:
            found.by_id[str(record[name])] = reference
        elif not any(one in record for one in HYPOTHESIS):
            raise DataError(f"{where}: a reference has an id or the first best (hypothesis); {_columns(record)}")
        if any(one in record for one in HYPOTHESIS):
            found.by_text.setdefault(_key(_text(record, HYPOTHESIS, where)), set()).add(reference)
    return found


def _rows(path: Path) -> Iterator[_Row]:
    """Every hypothesis."""
    for line, record in read_records(path):
        where = f"{path}:{line}"
        heading = _text(record, REFERENCE, where) if any(name in record for name in REFERENCE) else None
        name = next((str(record[name]) for name in ID if record.get(name) not in (None, "")), None)
        if LIST not in record:
            if name is None and heading is None:
                raise DataError(
                    f"{where}: a row has transcription (or reference) or an id, hypothesis (or text), and "
                    f"score; {_columns(record)}; rename the column of what was said, or add it"
                )
            if not any(one in record for one in HYPOTHESIS):
                raise DataError(
                    f"{where}: there is no {' or '.join(HYPOTHESIS)} of a row, and no {LIST} of a list; "
                    f"{_columns(record)}"
                )
            text, score = _text(record, HYPOTHESIS, where), _score(record, where)
            yield _Row(where, name, heading or "" if name is None else name, heading, text, score)
            continue
        if not isinstance(record[LIST], list) or not record[LIST]:
            raise DataError(f"{where}: {LIST} is {_shown(record[LIST])}; a list of text and score is expected")
        for number, one in enumerate(record[LIST], start=1):
            place = f"{where}: hypothesis {number}"
            if not isinstance(one, dict):
                raise DataError(f"{place} is {_shown(one)}; an object with text and score is expected")
            group = f"line {line}" if name is None else name
            yield _Row(place, name, group, heading, _text(one, HYPOTHESIS, place), _score(one, place))


def _text(record: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    name = next((name for name in names if name in record), None)
    if name is None:
        raise DataError(f"{where}: there is no {' or '.join(names)}; {_columns(record)}")
    if not isinstance(record[name], str):
        raise DataError(f"{where}: {name} is {_shown(record[name])}; a text is expected")
    return str(record[name])


def _score(record: Mapping[str, Any], where: str) -> float:
    if SCORE[0] not in record:
        raise DataError(f"{where}: there is no {SCORE[0]}; {_columns(record)}")
    value = record[SCORE[0]]
    try:
        score = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"{where}: score is {_shown(value)}, which is no number")
    return score


def _shown(value: Any) -> str:
    """A value as files have it."""
    return "null" if value is None else "empty" if value == "" else repr(value)


def _columns(record: Mapping[str, Any]) -> str:
    return f"the columns are {', '.join(map(repr, record)) or 'none'}"
