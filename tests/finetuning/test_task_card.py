"""The card of a fine-tuned model: purpose, use, metrics, limitations."""

import re
from dataclasses import replace

import pytest

from electra.finetuning.task_card import TaskCard
from electra.tasks.base import Problem
from electra.tasks.classification import Classification
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.tagging import Tagging


def card(
    problem: Problem | None = None,
    *,
    base: str | None = "run discriminator",
    failed: str | None = None,
    loads_whole: bool = True,
) -> str:
    made = TaskCard(
        "chunking", problem or tagging("O", "B-NP"), 64, base=base, seed=3, failed=failed,
        metrics={"span_f1": 0.76521}, examples={"train": 8936, "dev": 2012}, recipe="837 steps of 32 rows.",
        loads_whole=loads_whole,
    )  # fmt: skip
    return str(made)


def tagging(*labels: str) -> Tagging:
    return Tagging(labels, "none", "accuracy", labels[0])


def test_it_has_use_purpose_training_metrics_and_limitations() -> None:
    text = card(replace(tagging("O", "B-NP", "I-NP", "E-NP", "S-NP"), scheme="bio"))
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == [
        "Use", "Purpose", "Training", "Metrics", "Limitations",
    ]  # fmt: skip
    assert "| span F1 | 0.7652 |" in text and "seed 3, starting from `run discriminator`" in text
    assert "8,936 examples of train, 2,012 examples of dev. 837 steps" in text and "at most 64 tokens" in text
    assert "`B-NP`" in text and "BIOES" in text and "This run failed" not in text
    assert 'pipeline("token-classification", model="FOLDER")' in text
    assert "diverged" in card(failed="diverged")
    assert "BIOES" not in card(tagging("NN", "VB"))
    text = card(base=None)
    assert "starting from random weights." in text and "The license of the data is not stated" in text


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Classification(("accuracy",)), 'pipeline("text-classification", model="FOLDER")("A text.")'),
        (Classification(("accuracy",), pair=True), '"text_pair": "Another text."'),
        (QuestionAnswering("plain"), "AutoModelForQuestionAnswering"),
    ],
)
def test_each_kind_is_loaded_its_own_way(problem: Problem, expected: str) -> None:
    assert expected in card(problem)


def test_many_labels_are_cut_and_a_head_without_a_class_is_named() -> None:
    assert "and 5 more." in card(tagging(*(f"tag-{number}" for number in range(25))))
    text = card(QuestionAnswering(), loads_whole=False)
    assert "it can load only the encoder" in text and "pipeline" not in text


def test_the_front_matter_is_what_the_hub_reads() -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(card()).data
    assert data.library_name == "transformers" and data.pipeline_tag == "token-classification"
    assert data.tags == ["electra", "fine-tuned"] and data.license is None
