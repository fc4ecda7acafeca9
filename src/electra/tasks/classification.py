"""Classification: one label for a text or a pair of texts.

Shapes: N texts, B batch, L length, K labels, D hidden size.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.errors import ConfigError, DataError, did_you_mean
from electra.tasks.base import Outputs, Prediction, Rows, Task, TaskBatch
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.metrics import compute_metrics
from electra.tasks.tabular import (
    TableRow,
    build_table_task,
    file_of,
    label_index,
    order_labels,
    read_table,
)
from electra.tasks.texts import TextExample, TextProblem, label_shares, round_scores

BALANCED = "balanced"
"""Value of `data.class_weights`: the weight of a label is inversely proportional to its number of rows."""


@dataclass(frozen=True)
class Classification(TextProblem):
    """One of several labels.

    Attributes:
        weights: of each label in the loss; empty: all have 1.
    """

    labels: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    kind, answer_key = "classification", "label"
    problem_type = "single_label_classification"

    @classmethod
    def load_task(cls, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load a table. The labels are those of train: numbers in order of size, words in alphabetical order."""
        return load_labeled_table(cls, name, data, head)

    @property
    def num_outputs(self) -> int:
        return len(self.labels)

    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        return np.array(answers, np.int64)

    def format_answer(self, answer: int) -> str:
        return self.labels[answer]

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Return the cross-entropy (B), times the weight of the label."""
        logits_BK = head(x_BLD).float()
        weights_K = logits_BK.new_tensor(self.weights) if self.weights else None
        return F.cross_entropy(logits_BK, batch.targets["answer"], weight=weights_K, reduction="none")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields without the weights, which only training needs."""
        return {name: value for name, value in super().to_dict().items() if name != "weights"}

    def decode(self, examples: Sequence[TextExample], rows: Rows, outputs: Sequence[Outputs]) -> list[Prediction]:
        """Return the most probable label, and the probability of each label."""
        logits_NK = torch.from_numpy(np.stack([output["logits"] for output in outputs]))
        return [
            {"label": self.labels[best], "scores": dict(zip(self.labels, round_scores(scores), strict=True))}
            for best, scores in zip(logits_NK.argmax(-1).tolist(), logits_NK.softmax(-1).tolist(), strict=True)
        ]

    def format_prediction(self, prediction: Prediction, text: str) -> str:
        """Return the label, its probability if the prediction has it, and the text."""
        answer = prediction[self.answer_key]
        score = prediction.get("scores", {}).get(answer)
        return f"{answer}\t{text}" if score is None else f"{answer}\t{score:.3f}\t{text}"

    def compute_metrics(
        self, examples: Sequence[TextExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        indices = {label: number for number, label in enumerate(self.labels)}
        answers = [float(example.answer) for example in examples if isinstance(example.answer, int | float)]
        return compute_metrics(self.metrics, answers, [indices[one["label"]] for one in predictions])

    def _distribution(self, answers: Sequence[int]) -> str:
        return label_shares((self.labels[answer] for answer in answers), len(answers))


class PairClassification(Classification):
    """Classification of pairs of texts, `--kind pair`: a table needs two columns of texts.

    The problem of such a task is a `Classification`.
    """

    @classmethod
    def load_task(cls, name: str, data: DataConfig, head: HeadConfig) -> Task:
        return load_labeled_table(Classification, name, data, head, pairs=True)


def load_labeled_table(
    problem_class: type[Classification],
    name: str,
    data: DataConfig,
    head: HeadConfig,
    *,
    pairs: bool | None = None,
) -> Task:
    """Load the task of a table with one label per row.

    Args:
        pairs: as in `read_table`.
    """
    table = read_table(data, pairs=pairs)
    train = table.splits["train"]
    labels = order_labels([_label(row) for row in train], file_of(train))
    indices = {label: number for number, label in enumerate(labels)}
    metrics = ("accuracy", "macro_f1", *(("matthews",) if len(labels) == 2 else ()))
    problem = problem_class(metrics, head.text, table.has_pairs, labels)
    if data.class_weights:
        weights = class_weights(data.class_weights, Counter(map(_label, train)), labels)
        problem = replace(problem, weights=weights)
        listed = ", ".join(f"{label} {weight:.3g}" for label, weight in zip(labels, weights, strict=True))
        table = replace(table, notes=(*table.notes, f"weights of the labels: {listed}"))
    examples = {split: _examples(rows, indices, split) for split, rows in table.splits.items()}
    return build_table_task(name, problem, examples, table, dev_share=data.dev_share)


def class_weights(settings: Sequence[str], counts: Mapping[str, int], labels: Sequence[str]) -> tuple[float, ...]:
    """Return the weight of each label for `data.class_weights`, as scikit-learn's compute_class_weight.

    Args:
        counts: the number of training rows of each label.

    Raises:
        ConfigError: a setting is not `balanced` or LABEL=WEIGHT, or there is no such label.
    """
    if list(settings) == [BALANCED]:
        return tuple(sum(counts.values()) / (len(labels) * counts[label]) for label in labels)
    weights = dict.fromkeys(labels, 1.0)
    for setting in settings:
        label, equals, text = setting.rpartition("=")
        if not equals:
            raise ConfigError(
                f"data.class_weights: give {BALANCED} or LABEL=WEIGHT for each label, got {setting!r}"
            )
        if label not in weights:
            raise ConfigError(
                f"data.class_weights: there is no label {label!r} in train{did_you_mean(label, list(labels))}"
            )
        try:
            weights[label] = float(text)
        except ValueError:
            weights[label] = math.nan
        if not 0 < weights[label] < math.inf:
            raise ConfigError(f"data.class_weights: the weight of {label} must be a number above 0, got {text!r}")
    return tuple(weights.values())


def _examples(rows: Sequence[TableRow], indices: Mapping[str, int], split: str) -> list[TextExample]:
    """Return the rows as examples. If a row of the test split has no label, no label of that split is used."""
    if split == "test" and not all(row.has_label for row in rows):
        return [row.example(None) for row in rows]
    return [row.example(label_index(_label(row), indices, row.place)) for row in rows]


def _label(row: TableRow) -> str:
    value = row.label
    if not row.has_label or (isinstance(value, float) and math.isnan(value)):
        column = "" if row.label_column is None else f" in column {row.label_column!r}"
        raise DataError(f"{row.place}: the label{column} is missing; fill in or remove this row")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Parquet turns a column of whole numbers with a gap into floats.
    return str(value).strip()
