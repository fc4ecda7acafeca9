"""Classification: one label for a text or a pair of texts.

Shapes: N texts, B batch, L length, K labels, D hidden size.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.errors import DataError
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


@dataclass(frozen=True)
class Classification(TextProblem):
    """One of several labels."""

    labels: tuple[str, ...] = ()
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
        """Return the cross-entropy (B)."""
        return F.cross_entropy(head(x_BLD).float(), batch.targets["answer"], reduction="none")

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
    problem_class: type[Classification], name: str, data: DataConfig, head: HeadConfig, *, pairs: bool = False
) -> Task:
    """Load the task of a table with one label per row.

    Args:
        pairs: the rows have two texts, even if no column is named for the second one.
    """
    table = read_table(data, pairs=pairs)
    train = table.splits["train"]
    labels = order_labels([_label(row) for row in train], file_of(train))
    indices = {label: number for number, label in enumerate(labels)}
    metrics = ("accuracy", "macro_f1", *(("matthews",) if len(labels) == 2 else ()))
    problem = problem_class(metrics, head.text, table.has_pairs, labels)
    examples = {split: _examples(rows, indices, split) for split, rows in table.splits.items()}
    return build_table_task(name, problem, examples, table, dev_share=data.dev_share)


def _examples(rows: Sequence[TableRow], indices: Mapping[str, int], split: str) -> list[TextExample]:
    """Return the rows as examples. If a row of the test split has no label, no label of that split is used."""
    if split == "test" and not all(row.has_label for row in rows):
        return [row.example(None) for row in rows]
    return [row.example(label_index(_label(row), indices, row.place)) for row in rows]


def _label(row: TableRow) -> str:
    value = row.label
    if not row.has_label or (isinstance(value, float) and math.isnan(value)):
        raise DataError(f"{row.place}: the label is missing; fill in or remove this row")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Parquet turns a column of whole numbers with a gap into floats.
    return str(value).strip()
