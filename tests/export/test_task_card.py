"""The card of a fine-tuned network says what it is for, how to load it and what it cannot do."""

import re
from typing import Any

import pytest

from electra.export.task_card import TaskCard


def card(kind: str = "tagging", *, failed: str | None = None, alone: bool = False, **task: Any) -> str:
    facts = {"kind": kind, "max_length": 64, **task}
    made = TaskCard(
        "chunking", facts, base="run discriminator", seed=3, metrics={"span_f1": 0.76521}, failed=failed,
        examples={"train": 8936, "dev": 2012}, recipe="837 steps of 32 rows.", alone=alone,
    )  # fmt: skip
    return str(made)


def test_it_has_figures_use_purpose_training_and_limits() -> None:
    text = card(labels=["O", "B-NP", "I-NP", "E-NP", "S-NP"])
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == [
        "Use", "What it is for", "Training", "Figures", "Limits",
    ]  # fmt: skip
    assert "| span_f1 | 0.7652 |" in text and "seed 3; it began from `run discriminator`" in text
    assert "8,936 examples of train, 2,012 examples of dev. 837 steps" in text and "at most 64 tokens" in text
    assert "`B-NP`" in text and "BIOES" in text and "This run failed" not in text
    assert 'pipeline("token-classification", model="FOLDER")' in text
    assert "diverged" in card(failed="diverged")
    assert "BIOES" not in card(labels=["NN", "VB"])


@pytest.mark.parametrize(
    ("kind", "task", "expected"),
    [
        ("classification", {}, 'pipeline("text-classification", model="FOLDER")("A text.")'),
        ("classification", {"pair": True}, '"text_pair": "Another text."'),
        ("answering", {}, "AutoModelForQuestionAnswering"),
        ("answering", {"pointer": "conditional"}, "the encoder alone loads"),
    ],
)
def test_each_kind_is_loaded_its_own_way(kind: str, task: dict[str, Any], expected: str) -> None:
    assert expected in card(kind, **task)


def test_many_labels_are_cut_and_a_head_without_a_class_is_said_to_be_one() -> None:
    assert "and 5 more." in card(labels=[f"tag-{number}" for number in range(25)])
    text = card(alone=True)
    assert "the encoder alone loads" in text and "pipeline" not in text


def test_the_front_matter_is_what_the_hub_reads() -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(card()).data
    assert data.library_name == "transformers" and data.pipeline_tag == "token-classification"
    assert data.tags == ["electra", "fine-tuned"] and data.license is None
