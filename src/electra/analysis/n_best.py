"""N-best lists of a speech recognizer, and their references.

Two formats are read: a table with a row for each hypothesis (transcription, hypothesis, score), in which
consecutive rows with the same id, or without ids with the same transcription, form one list; and JSON lines with
one list each (reference, hypotheses: text and score). If they do not hold the references, a separate file does, in
which a reference is found by the list's id or by the recognizer's first best.
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
"""Known names of each column; the first one that exists counts."""
LIST = "hypotheses"
UNKNOWN = "<unk>"
"""What recognizers write for an unknown word. It counts as a word, and is never correct."""

NORMALIZATION = (
    "lower case; words are sequences of letters and digits, so punctuation, apostrophes and underscores separate "
    "words (what's: what s); <eps> and marks in square brackets ([noise]) are not words; <unk> is a word that is "
    "never correct; digits stay digits"
)

Scale = Literal["auto", "probability", "log"]
MIN_PROBABILITY = 1e-12
"""Smaller probabilities count as this one, because 0 has no logarithm."""

_NO_WORDS = re.compile(r"<eps>|\[[^\]\s]*\]")
_WORDS = re.compile(rf"{UNKNOWN}|[^\W_]+")


@dataclass(frozen=True)
class Utterance:
    """A list of hypotheses, the recognizer's first best first.

    Attributes:
        reference: the words that were spoken.
        texts: the hypotheses as a model reads them.
        scores: natural logarithms.
    """

    reference: list[str]
    texts: list[str]
    scores: list[float]


@dataclass(frozen=True)
class NBestLists:
    """The lists of a file.

    Attributes:
        left_out: the number of lists that have no reference, by the reason.
        scale: the scale of the scores in the file, "probability" or "log".
        first_best_added: the number of lists whose first best was added from the transcription, with the score of
            the best alternative.
        empty: the number of hypotheses without text, such as those of a recognizer that heard nothing.
    """

    utterances: list[Utterance]
    left_out: dict[str, int]
    scale: Scale
    first_best_added: int
    empty: int


@dataclass(frozen=True)
class _Row:
    """A hypothesis as it was read.

    Attributes:
        location: the location of the row, for messages.
        list_id: the id of its list, if it has one.
        group: the same for all rows of one list.
        transcription: the reference or transcription, if there is one.
    """

    location: str
    list_id: str | None
    group: str
    transcription: str | None
    text: str
    score: float


@dataclass
class _References:
    """References by the list's id and by the first best."""

    by_id: dict[str | None, str] = field(default_factory=dict)
    by_text: dict[str, set[str]] = field(default_factory=dict)


def normalize_words(text: str) -> list[str]:
    """The words of a text for counting errors (`NORMALIZATION`)."""
    return _WORDS.findall(_NO_WORDS.sub(" ", unicodedata.normalize("NFC", text).lower()))


def clean_hypothesis(text: str) -> str:
    """A hypothesis as a model reads it: without marks, "p._m" as "p m", and "it 's" as "it's"."""
    separated = _NO_WORDS.sub(" ", text).replace("._", " ").replace("_", " ")
    return re.sub(r"\s+'", "'", " ".join(separated.split()))


def read_n_best_lists(path: Path, *, references: Path | None = None, scale: Scale = "auto") -> NBestLists:
    """Read the lists of a file.

    Args:
        references: a table with a reference (or transcription), and an id or the recognizer's first best
            (hypothesis) to find it by. The lists' transcription is then the first best.
        scale: of the scores; auto: probabilities if all lie between 0 and 1, else logarithms (higher is better).

    Raises:
        DataError: a file cannot be read, a row lacks a value, a score is not a number, a reference has no words.
    """
    groups = [list(rows) for _, rows in itertools.groupby(_read_rows(path), key=lambda row: row.group)]
    if not groups:
        raise DataError(f"{path}: the file has no hypotheses")
    seen = set[str]()
    for first in (rows[0] for rows in groups if rows[0].list_id is not None):
        if first.group in seen:  # as two lists, each would lack the other's hypotheses
            raise DataError(
                f"{first.location}: id {first.list_id!r} occurs again; the rows of a list must be consecutive"
            )
        seen.add(first.group)
    scale = _resolve_scale(path, scale, [row.score for rows in groups for row in rows])
    reference_table = None if references is None else _read_references(references)
    utterances, left_out, added = [], dict[str, int](), 0
    for rows in groups:
        reference, problem = _find_reference(rows, reference_table)
        if problem:
            left_out[problem] = left_out.get(problem, 0) + 1
            continue
        assert reference is not None
        if not normalize_words(reference):
            raise DataError(f"{rows[0].location}: the reference {reference!r} has no words")
        logs = [math.log(max(row.score, MIN_PROBABILITY)) if scale == "probability" else row.score for row in rows]
        best = max(range(len(rows)), key=lambda index: logs[index])
        order = [best, *(index for index in range(len(rows)) if index != best)]
        texts, logs = [rows[index].text for index in order], [logs[index] for index in order]
        if reference_table is not None and rows[0].transcription is not None:
            # The transcription is the first best, whose score is not in the file.
            texts, logs, added = [rows[0].transcription, *texts], [logs[0], *logs], added + 1
        utterances.append(Utterance(normalize_words(reference), [clean_hypothesis(text) for text in texts], logs))
    if not utterances:
        raise DataError(
            f"{path}: no list has a reference in {references}; references are found by id or by the first best"
        )
    if all(len(utterance.texts) == 1 for utterance in utterances):
        raise DataError(
            f"{path}: each list has only one hypothesis, so there is nothing to choose from; the hypotheses of a "
            "list are consecutive rows with the same id, or without ids with the same transcription"
        )
    empty = sum(not text for utterance in utterances for text in utterance.texts)
    return NBestLists(utterances, left_out, scale, added, empty)


def _resolve_scale(path: Path, scale: Scale, scores: Sequence[float]) -> Scale:
    if scale == "auto":
        scale = "probability" if all(0 <= score <= 1 for score in scores) else "log"
    if scale == "probability" and (invalid := [score for score in scores if not 0 <= score <= 1]):
        raise DataError(f"{path}: a score is {invalid[0]:g}, which is not a probability; give --scale log")
    return scale


def _find_reference(rows: Sequence[_Row], references: _References | None) -> tuple[str | None, str]:
    """The reference of a list, or the reason why it is unknown."""
    transcription = rows[0].transcription
    if references is None:
        if transcription is None:
            raise DataError(
                f"{rows[0].location}: the list has no reference or transcription; add one, or give a file with "
                "references: --references"
            )
        return transcription, ""
    if rows[0].list_id in references.by_id:
        return references.by_id[rows[0].list_id], ""
    candidates = references.by_text.get(_text_key(transcription or rows[0].text), set())
    if len(candidates) > 1:
        return None, "whose first best has several references"
    return (next(iter(candidates)), "") if candidates else (None, "without a reference")


def _text_key(text: str) -> str:
    """A first best by its letters alone: files of one recognizer split words differently (don't, do n't)."""
    return "".join(normalize_words(text))


def _read_references(path: Path) -> _References:
    references = _References()
    for line, record in read_records(path):
        location = f"{path}:{line}"
        reference, list_id = _read_text(record, REFERENCE, location), _read_id(record)
        has_hypothesis = any(name in record for name in HYPOTHESIS)
        if list_id is not None:
            references.by_id[list_id] = reference
        elif not has_hypothesis:
            raise DataError(
                f"{location}: a reference needs an id or the first best (hypothesis); {_list_columns(record)}"
            )
        if has_hypothesis:
            key = _text_key(_read_text(record, HYPOTHESIS, location))
            references.by_text.setdefault(key, set()).add(reference)
    return references


def _read_rows(path: Path) -> Iterator[_Row]:
    """Read every hypothesis."""
    for line, record in read_records(path):
        location = f"{path}:{line}"
        has_reference = any(name in record for name in REFERENCE)
        transcription = _read_text(record, REFERENCE, location) if has_reference else None
        list_id = _read_id(record)
        if LIST not in record:
            if list_id is None and transcription is None:
                raise DataError(
                    f"{location}: a row needs transcription (or reference) or an id, hypothesis (or text), and "
                    f"score; {_list_columns(record)}; rename the column of the transcription, or add it"
                )
            if not any(name in record for name in HYPOTHESIS):
                raise DataError(
                    f"{location}: there is no {' or '.join(HYPOTHESIS)} of a row, and no {LIST} of a list; "
                    f"{_list_columns(record)}"
                )
            text, score = _read_text(record, HYPOTHESIS, location), _read_score(record, location)
            group = transcription or "" if list_id is None else list_id
            yield _Row(location, list_id, group, transcription, text, score)
            continue
        if not isinstance(record[LIST], list) or not record[LIST]:
            raise DataError(
                f"{location}: {LIST} is {_show_value(record[LIST])}; expected a list of objects with text and "
                "score"
            )
        for number, item in enumerate(record[LIST], start=1):
            location_of_item = f"{location}: hypothesis {number}"
            if not isinstance(item, dict):
                raise DataError(
                    f"{location_of_item} is {_show_value(item)}; expected an object with text and score"
                )
            text, score = _read_text(item, HYPOTHESIS, location_of_item), _read_score(item, location_of_item)
            group = f"line {line}" if list_id is None else list_id
            yield _Row(location_of_item, list_id, group, transcription, text, score)


def _read_id(record: Mapping[str, Any]) -> str | None:
    return next((str(record[name]) for name in ID if record.get(name) not in (None, "")), None)


def _read_text(record: Mapping[str, Any], names: Sequence[str], location: str) -> str:
    name = next((name for name in names if name in record), None)
    if name is None:
        raise DataError(f"{location}: there is no {' or '.join(names)}; {_list_columns(record)}")
    if not isinstance(record[name], str):
        raise DataError(f"{location}: {name} is {_show_value(record[name])}; expected a text")
    return str(record[name])


def _read_score(record: Mapping[str, Any], location: str) -> float:
    if SCORE[0] not in record:
        raise DataError(f"{location}: there is no {SCORE[0]}; {_list_columns(record)}")
    value = record[SCORE[0]]
    try:
        score = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"{location}: score is {_show_value(value)}, which is not a number")
    return score


def _show_value(value: Any) -> str:
    """A value as it is written in files."""
    return "null" if value is None else "empty" if value == "" else repr(value)


def _list_columns(record: Mapping[str, Any]) -> str:
    return f"the columns are {', '.join(map(repr, record)) or 'none'}"
