"""SQuAD's files, 1.1 and 2.0: questions in, predictions out.

The format is that of https://rajpurkar.github.io/SQuAD-explorer:
{"data": [{"paragraphs": [{"context": text, "qas": [{"id": text, "question": text,
"answers": [{"text": text, "answer_start": character}], "is_impossible": bool}]}]}]}.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError
from electra.json_files import write_json
from electra.tasks.base import Prediction

SOURCE = "the official files come from https://rajpurkar.github.io/SQuAD-explorer"
FORMAT = (
    "the format is described in electra/tasks/squad_files.py and at https://rajpurkar.github.io/SQuAD-explorer"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the text that its answer stands in.

    Attributes:
        answers: each with the number of its first character in the context; -1 where it does not stand there, so
            that it can be compared with but not learnt.
        impossible: the context does not answer it. Without that and without answers, they are not known.
        training: it is for learning from.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    impossible: bool = False
    training: bool = False

    @property
    def known(self) -> bool:
        """Whether it can be judged."""
        return bool(self.answers) or self.impossible


def read_questions(path: Path, *, training: bool = False) -> tuple[list[Question], tuple[str, ...]]:
    """The questions of a file, and what was found wrong with it, for a person to read.

    An answer that does not stand where the file says is looked for in the context, and the nearest occurrence
    taken. For training, answers that are not found at all are left out, and so are questions without one.

    Raises:
        DataError: the file cannot be read, is not of this format, or holds no question or one id twice.
    """
    questions: list[Question] = []
    odd: dict[str, list[str]] = {}  # by what is wrong the ids of the questions
    seen: set[str] = set()
    for place, context, record in _records(path):
        question = _question(place, context, record, training, odd)
        if question.id in seen:
            raise DataError(f"{place}: the id {question.id!r} stood before; give each question an id of its own")
        seen.add(question.id)
        if training and not question.known:
            odd.setdefault("questions have no answer in their context and are left out", []).append(question.id)
        else:
            questions.append(question)
    if not questions:
        raise DataError(f"{path}: there are no questions{' to learn from' if training else ''} in it; {FORMAT}")
    return questions, tuple(
        f"{path.name}: {len(ids)} {what} (first of question {ids[0]!r})" for what, ids in odd.items()
    )


def hold_out(questions: Sequence[Question], share: float, seed: int) -> tuple[list[Question], list[Question]]:
    """Training questions, and a share for development, drawn by context: none is in both.

    Raises:
        DataError: all questions are about one context.
    """
    contexts = list(dict.fromkeys(question.context for question in questions))
    if len(contexts) < 2:
        raise DataError("All training questions are about one context, so none can be held out; give a dev file")
    count = min(max(1, round(share * len(contexts))), len(contexts) - 1)
    drawn = {contexts[place] for place in np.random.default_rng(seed).permutation(len(contexts))[:count]}
    train = [question for question in questions if question.context not in drawn]
    return train, [replace(question, training=False) for question in questions if question.context in drawn]


def write_predictions(folder: Path, predictions: Sequence[Prediction]) -> None:
    """predictions.json and null_odds.json, as the official script takes them (the second by --na-prob-file).

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
    """Each question as it stands in the file, with its place and its context."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); {SOURCE}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: broken JSON ({error}); get the file again: {SOURCE}") from error
    for a, article in enumerate(_field(content, "data", list, str(path)), 1):
        place = f"{path}, article {a}"
        for p, paragraph in enumerate(_field(article, "paragraphs", list, place), 1):
            place = f"{path}, article {a}, paragraph {p}"
            context = _text(paragraph, "context", place)
            for q, record in enumerate(_field(paragraph, "qas", list, place), 1):
                yield f"{place}, question {q}", context, record


def _question(place: str, context: str, record: Any, training: bool, odd: dict[str, list[str]]) -> Question:
    name, asked = _text(record, "id", place), _text(record, "question", place)
    impossible = "is_impossible" in record and _field(record, "is_impossible", bool, place)
    if impossible:
        return Question(name, asked, context, impossible=True, training=training)
    if not training and "answers" not in record:
        return Question(name, asked, context)
    answers: list[tuple[str, int]] = []
    for answer in _field(record, "answers", list, place):
        text, start = _text(answer, "text", place), _field(answer, "answer_start", int, place)
        found = _nearest(context, text, start)
        if found is None:
            odd.setdefault("answers do not stand in their context", []).append(name)
        elif found != start:
            what = "answers stand elsewhere in their context than the file says; the nearest place is taken"
            odd.setdefault(what, []).append(name)
        if found is not None or not training:
            answers.append((text, -1 if found is None else found))
    return Question(name, asked, context, tuple(answers), training=training)


def _nearest(context: str, text: str, start: int) -> int | None:
    """Where the text begins in the context, as near to `start` as possible."""
    if not text.strip():
        return None
    if start >= 0 and context.startswith(text, start):
        return start
    before, after = context.rfind(text, 0, max(start, 0) + len(text)), context.find(text, max(start, 0))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - start), default=None)


def _field(record: Any, key: str, kind: type, place: str) -> Any:
    names = {list: "a list", str: "a text", int: "a whole number", bool: "true or false"}
    if not isinstance(record, dict):
        raise DataError(
            f"{place}: should be an object with the key {key!r}, found {type(record).__name__}; {FORMAT}"
        )
    if key not in record:
        keys = ", ".join(map(repr, record)) or "none"
        raise DataError(f"{place}: no key {key!r}; the keys are {keys}; {FORMAT}")
    value = record[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"{place}: {key!r} should be {names[kind]}, found {type(value).__name__}; {FORMAT}")
    return value


def _text(record: Any, key: str, place: str) -> str:
    text: str = _field(record, key, str, place)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair
        raise DataError(
            f"{place}: broken Unicode in {key!r} ({error.reason} at character {error.start}); mend the text"
        ) from error
    return text
