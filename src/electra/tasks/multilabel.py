"""Multi-label classification: any number of labels for a text or a pair of texts.

Shapes: N texts, B batch, L length, K labels, D hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.tasks.base import Outputs, Prediction, Rows, Task, TaskBatch
from electra.tasks.config import DataConfig, HeadConfig
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
class Multilabel(TextProblem):
    """Any number of labels."""

    labels: tuple[str, ...] = ()
    kind, answer_key = "multilabel", "labels"
    problem_type = "multi_label_classification"

    @classmethod
    def load_task(cls, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load a table whose label column has lists, or strings with `data.separator` between the labels."""
        table = read_table(data)
        train = table.splits["train"]
        labels = order_labels([label for row in train for label in _labels(row, data.separator)], file_of(train))
        indices = {label: number for number, label in enumerate(labels)}

        def example(row: TableRow) -> TextExample:
            own = _labels(row, data.separator)
            return row.example(tuple(sorted(label_index(label, indices, row.place) for label in own)))

        examples = {split: [example(row) for row in rows] for split, rows in table.splits.items()}
        test = table.splits.get("test", [])
        if test and all(row.label in (None, "") for row in test):  # the labels are unknown
            examples["test"] = [row.example(None) for row in test]
        problem = cls(("micro_f1", "macro_f1", "accuracy"), head.text, table.has_pairs, labels)
        return build_table_task(name, problem, examples, table, dev_share=data.dev_share)

    @property
    def num_outputs(self) -> int:
        return len(self.labels)

    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        targets_NK = np.zeros((len(answers), len(self.labels)), np.float32)
        for row_K, numbers in zip(targets_NK, answers, strict=True):
            row_K[list(numbers)] = 1.0
        return targets_NK

    def format_answer(self, answer: Sequence[int]) -> list[str]:
        return [self.labels[number] for number in answer]

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Return the binary cross-entropy (B), averaged over the labels."""
        logits_BK = head(x_BLD).float()
        return F.binary_cross_entropy_with_logits(logits_BK, batch.targets["answer"], reduction="none").mean(-1)

    def decode(self, examples: Sequence[TextExample], rows: Rows, outputs: Sequence[Outputs]) -> list[Prediction]:
        """Return the labels with a probability above 0.5, and the probability of each label."""
        logits_NK = torch.from_numpy(np.stack([output["logits"] for output in outputs]))
        return [
            {
                "labels": [label for label, score in zip(self.labels, scores, strict=True) if score > 0.5],
                "scores": dict(zip(self.labels, round_scores(scores), strict=True)),
            }
            for scores in logits_NK.sigmoid().tolist()
        ]

    def format_prediction(self, prediction: Prediction, text: str) -> str:
        return f"{', '.join(prediction[self.answer_key]) or '–'}\t{text}"

    def compute_metrics(
        self, examples: Sequence[TextExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Return micro_f1 over all decisions, macro_f1 over the labels, and the share of fully correct texts."""
        answers_NK = self.targets([example.answer for example in examples]) > 0
        predicted_NK = np.array([[label in one["labels"] for label in self.labels] for one in predictions])
        true_K, wrong_K = (answers_NK & predicted_NK).sum(0), (answers_NK != predicted_NK).sum(0)
        f1_K = 2 * true_K / np.maximum(2 * true_K + wrong_K, 1)
        micro = 2 * true_K.sum() / max(2 * true_K.sum() + wrong_K.sum(), 1)
        metrics = {
            "micro_f1": float(micro),
            "macro_f1": float(f1_K.mean()),
            "accuracy": float((answers_NK == predicted_NK).all(-1).mean()),
        }
        return {name: metrics[name] for name in self.metrics}

    def _distribution(self, answers: Sequence[tuple[int, ...]]) -> str:
        return label_shares((self.labels[number] for answer in answers for number in answer), len(answers))


def _labels(row: TableRow, separator: str) -> list[str]:
    value = row.label
    parts = value if isinstance(value, list) else str(value if value is not None else "").split(separator)
    return [str(part).strip() for part in parts if str(part).strip()]
