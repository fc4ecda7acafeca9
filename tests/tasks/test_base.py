"""What is stored of an example beside its prediction."""

from typing import Any

import pytest

from electra.tasks.base import Problem
from electra.tasks.classification import Classification
from electra.tasks.conll import Sentence
from electra.tasks.multilabel import Multilabel
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.regression import Regression
from electra.tasks.squad_files import Question
from electra.tasks.tagging import build_tagging_task
from electra.tasks.texts import TextExample

LABELS = ("bad", "good")
TAGGED = Sentence(("a", "dog"), ("O", "B-PET"), "a.txt", 1)


@pytest.mark.parametrize(
    ("problem", "example", "expected"),
    [
        (Classification((), labels=LABELS), TextExample("a", answer=1), {"text": "a", "gold": "good"}),
        (
            Classification((), labels=LABELS, pair=True),
            TextExample("a", "b", 0),
            {"text": "a", "pair": "b", "gold": "bad"},
        ),
        (Multilabel((), labels=LABELS), TextExample("a", answer=(0, 1)), {"text": "a", "gold": ["bad", "good"]}),
        (Regression((), low=0.0, high=5.0), TextExample("a", answer=2.5), {"text": "a", "gold": 2.5}),
        (build_tagging_task("x", {"train": [TAGGED]}).problem, TAGGED, {"gold": ["O", "B-PET"]}),
        (
            QuestionAnswering(),
            Question("1", "who?", "a dog", [("a dog", 0), ("dog", 2)]),
            {"question": "who?", "gold": ["a dog", "dog"]},
        ),
    ],
)
def test_texts_and_answers_are_described(problem: Problem, example: Any, expected: dict[str, Any]) -> None:
    assert problem.describe_example(example) == expected
