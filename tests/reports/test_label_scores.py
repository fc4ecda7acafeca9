"""Precision, recall and F1 of each label, from a file of predictions."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import precision_recall_fscore_support

from electra.reports.label_scores import LabelScore, label_table, read_label_scores
from electra.tasks.tags import span_scores

LABELS = ["rare", "good", "bad", "fair"]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_labels_of_texts_have_the_scores_of_scikit_learn(tmp_path: Path) -> None:
    draw = random.Random(0)
    gold = draw.choices(LABELS, weights=[1, 9, 6, 4], k=80)
    predicted = [label if draw.random() < 0.6 else draw.choice(LABELS[1:]) for label in gold]
    records = [{"text": "x", "gold": a, "label": b} for a, b in zip(gold, predicted, strict=True)]
    scores = read_label_scores(write(tmp_path / "dev.jsonl", records), spans=False)
    assert [one.examples for one in scores] == sorted(map(gold.count, LABELS), reverse=True)
    expected = precision_recall_fscore_support(gold, predicted, labels=LABELS, zero_division=0)
    for label, precision, recall, f1, examples in zip(LABELS, *expected, strict=True):
        [one] = [one for one in scores if one.label == label]
        assert (one.precision, one.recall, one.f1) == pytest.approx((precision, recall, f1))
        assert (one.examples, one.predicted) == (examples, predicted.count(label))


def test_spans_have_the_scores_of_conlleval(tmp_path: Path) -> None:
    draw = random.Random(1)
    tags = ["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    gold = [draw.choices(tags, k=12) for _ in range(30)]
    predicted = [[tag if draw.random() < 0.7 else draw.choice(tags) for tag in row] for row in gold]
    records = [{"gold": a, "words": ["w"] * 12, "tags": b} for a, b in zip(gold, predicted, strict=True)]
    path = write(tmp_path / "dev.jsonl", records)
    expected = {name: value for name, value in span_scores(gold, predicted).items() if "/" in name}
    scores = read_label_scores(path, spans=True)
    assert {f"span_f1/{one.label}": one.f1 for one in scores} == pytest.approx(expected)
    words = read_label_scores(path, spans=False)
    assert {one.label for one in words} == set(tags) and sum(one.examples for one in words) == 30 * 12


def test_each_of_several_labels_of_a_text_counts(tmp_path: Path) -> None:
    records = [{"gold": ["a", "b"], "labels": ["b"]}, {"gold": [], "labels": ["a"]}]
    first, second = read_label_scores(write(tmp_path / "dev.jsonl", records), spans=False)
    assert first == LabelScore("a", 0.0, 0.0, 0.0, 1, 1) and second == LabelScore("b", 1.0, 1.0, 1.0, 1, 1)
    assert label_table([first], title="t").row_count == 1


def test_a_label_that_is_only_predicted_is_listed_last(tmp_path: Path) -> None:
    records = [{"gold": "a", "label": "never right"}, {"gold": "b", "label": "b"}]
    scores = read_label_scores(write(tmp_path / "dev.jsonl", records), spans=False)
    assert [one.label for one in scores] == ["a", "b", "never right"]
    assert scores[-1] == LabelScore("never right", 0.0, 0.0, 0.0, 0, 1)


@pytest.mark.parametrize("record", [{"gold": 2.5, "value": 2.0}, {"gold": ["x"], "answer": "x", "null_odds": 1.0}])
def test_values_and_answers_have_no_labels(record: dict[str, Any], tmp_path: Path) -> None:
    assert read_label_scores(write(tmp_path / "dev.jsonl", [record]), spans=False) == []
    assert read_label_scores(tmp_path / "missing.jsonl", spans=False) == []
