"""Precision, recall and F1 of each label, from the predictions that a fine-tuning wrote of its dev part."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from electra.tasks.tags import extract_spans, f_score

Units = list[tuple[Any, str]]
"""What has a label in one example, with the label: the example itself, a word, or a span."""


@dataclass(frozen=True)
class LabelScore:
    """The scores of one label.

    Attributes:
        examples: how often the label is correct.
        predicted: how often it was predicted.
    """

    label: str
    precision: float
    recall: float
    f1: float
    examples: int
    predicted: int


def read_label_scores(path: Path, *, spans: bool) -> list[LabelScore]:
    """The scores of each label, the most frequent first; empty for predictions without labels.

    Args:
        path: the predictions, a JSON object a line.
        spans: whether tags of words mark spans, whose types are then the labels.
    """
    gold: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    both: Counter[str] = Counter()
    for ours, theirs in _pairs(path, spans=spans):
        gold.update(label for _, label in ours)
        predicted.update(label for _, label in theirs)
        both.update(label for _, label in {*ours} & {*theirs})
    labels = sorted(gold | predicted, key=lambda label: (-gold[label], label))
    return [
        LabelScore(label, *f_score(both[label], predicted[label], gold[label]), gold[label], predicted[label])
        for label in labels
    ]


def label_table(scores: Iterable[LabelScore], *, title: str) -> Table:
    """A row for each label."""
    table = Table("label", "F1", "precision", "recall", "examples", "predicted", title=title)
    for one in scores:
        shares = (f"{share:.4f}" for share in (one.f1, one.precision, one.recall))
        table.add_row(one.label, *shares, f"{one.examples:,}", f"{one.predicted:,}")
    return table


def _pairs(path: Path, *, spans: bool) -> Iterator[tuple[Units, Units]]:
    """The correct and the predicted labels of each example."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        key = next((key for key in ("label", "labels", "tags") if key in record), None)
        if key is not None:  # values and answers to questions have no labels
            yield _units(record["gold"], key, spans=spans), _units(record[key], key, spans=spans)


def _units(labels: Any, key: str, *, spans: bool) -> Units:
    if key == "label":
        return [("text", labels)]
    if key == "labels":
        return [(label, label) for label in labels]
    if spans:
        return [((start, end), span_type) for start, end, span_type in extract_spans(labels)]
    return list(enumerate(labels))
