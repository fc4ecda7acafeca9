"""Files in the format of SQuAD 1.1 and 2.0: questions in, predictions out.

The format is that of https://rajpurkar.github.io/SQuAD-explorer:
{"data": [{"paragraphs": [{"context": text, "qas": [{"id": text, "question": text,
"answers": [{"text": text, "answer_start": character}], "is_impossible": bool}]}]}]}.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError
from electra.json_files import write_json
from electra.tasks.base import Prediction
from electra.tasks.passages import Question

SOURCE = "the official files are at https://rajpurkar.github.io/SQuAD-explorer"
FORMAT = (
    "the format is described in electra/tasks/squad_files.py and at https://rajpurkar.github.io/SQuAD-explorer"
)


def read_questions(path: Path, *, training: bool = False) -> tuple[list[Question], tuple[str, ...]]:
    """Return the questions of a file, and remarks about irregularities for the log.

    An answer that is not at its stated position is searched in the context; the nearest occurrence is used. For
    training, answers that are not found are left out, and so are questions without an answer.

    Raises:
        DataError: the file cannot be read, does not have this format, has no question or has an id twice.
    """
    questions: list[Question] = []
    irregular: dict[str, list[str]] = {}  # ids of questions by irregularity
    seen: set[str] = set()
    for place, context, record in _records(path):
        question = _question(place, context, record, training, irregular)
        if question.id in seen:
            raise DataError(f"{place}: the id {question.id!r} occurs twice; give each question its own id")
        seen.add(question.id)
        if training and not question.has_answer:
            reason = "questions have no answer in their context and are left out"
            irregular.setdefault(reason, []).append(question.id)
        else:
            questions.append(question)
    if not questions:
        raise DataError(f"{path}: the file has no questions{' to learn from' if training else ''}; {FORMAT}")
    return questions, tuple(
        f"{path.name}: {len(ids)} {reason} (the first is question {ids[0]!r})" for reason, ids in irregular.items()
    )


def hold_out(questions: Sequence[Question], share: float, seed: int) -> tuple[list[Question], list[Question]]:
    """Split training questions into train and dev. No context is in both.

    Args:
        share: share of the contexts in dev.

    Raises:
        DataError: all questions are about one context.
    """
    contexts = list(dict.fromkeys(question.context for question in questions))
    if len(contexts) < 2:
        raise DataError("All training questions are about one context, so none can be held out; give a dev file")
    count = min(max(1, round(share * len(contexts))), len(contexts) - 1)
    held_out = {contexts[index] for index in np.random.default_rng(seed).permutation(len(contexts))[:count]}
    train = [question for question in questions if question.context not in held_out]
    return train, [replace(question, training=False) for question in questions if question.context in held_out]


def write_predictions(folder: Path, predictions: Sequence[Prediction]) -> None:
    """Write predictions.json and null_odds.json for the official script (the second is its --na-prob-file).

    Raises:
        DataError: they cannot be written.
    """
    for name, key in (("predictions.json", "answer"), ("null_odds.json", "null_odds")):
        path = folder / name
        values = {prediction["id"]: prediction[key] for prediction in predictions}
        try:
            write_json(path, values, ensure_ascii=False)
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error


def _records(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each question's JSON object, with its place in the file and its context."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); {SOURCE}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: invalid JSON ({error}); get the file again: {SOURCE}") from error
    for a, article in enumerate(_field(content, "data", list, str(path)), 1):
        place = f"{path}, article {a}"
        for p, paragraph in enumerate(_field(article, "paragraphs", list, place), 1):
            place = f"{path}, article {a}, paragraph {p}"
            context = _text(paragraph, "context", place)
            for q, record in enumerate(_field(paragraph, "qas", list, place), 1):
                yield f"{place}, question {q}", context, record


def _question(place: str, context: str, record: Any, training: bool, irregular: dict[str, list[str]]) -> Question:
    identifier, question = _text(record, "id", place), _text(record, "question", place)
    impossible = "is_impossible" in record and _field(record, "is_impossible", bool, place)
    if impossible:
        return Question(identifier, question, context, impossible=True, training=training)
    if not training and "answers" not in record:
        return Question(identifier, question, context)
    answers: list[tuple[str, int]] = []
    for answer in _field(record, "answers", list, place):
        text, start = _text(answer, "text", place), _field(answer, "answer_start", int, place)
        position = _nearest_occurrence(context, text, start)
        if position is None:
            irregular.setdefault("answers are not in their context", []).append(identifier)
        elif position != start:
            reason = "answers are not at their stated position; the nearest occurrence is used"
            irregular.setdefault(reason, []).append(identifier)
        if position is not None or not training:
            answers.append((text, -1 if position is None else position))
    return Question(identifier, question, context, tuple(answers), training=training)


def _nearest_occurrence(context: str, text: str, start: int) -> int | None:
    """Return the position of a text in the context that is nearest to `start`."""
    if not text.strip():
        return None
    if start >= 0 and context.startswith(text, start):
        return start
    before, after = context.rfind(text, 0, max(start, 0) + len(text)), context.find(text, max(start, 0))
    positions = [position for position in (before, after) if position >= 0]
    return min(positions, key=lambda position: abs(position - start), default=None)


def _field(record: Any, key: str, kind: type, place: str) -> Any:
    names = {list: "a list", str: "a string", int: "a whole number", bool: "true or false"}
    if not isinstance(record, dict):
        raise DataError(
            f"{place}: should be an object with the key {key!r}, got {type(record).__name__}; {FORMAT}"
        )
    if key not in record:
        keys = ", ".join(map(repr, record)) or "none"
        raise DataError(f"{place}: no key {key!r}; the keys are {keys}; {FORMAT}")
    value = record[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"{place}: {key!r} should be {names[kind]}, got {type(value).__name__}; {FORMAT}")
    return value


def _text(record: Any, key: str, place: str) -> str:
    text: str = _field(record, key, str, place)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can contain half a surrogate pair
        raise DataError(
            f"{place}: invalid Unicode in {key!r} ({error.reason} at character {error.start}); fix the text"
        ) from error
    return text
