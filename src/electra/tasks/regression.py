"""Regression: a number for a text or a pair of texts.

Shapes: B batch, L length, D hidden size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from electra.errors import DataError
from electra.modeling.task_heads import TextHead
from electra.tasks.base import Outputs, Prediction, Rows, Task, TaskBatch
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.metrics import compute_metrics
from electra.tasks.tabular import TableRow, build_table_task, file_of, read_table
from electra.tasks.texts import TextExample, TextProblem


@dataclass(frozen=True)
class Regression(TextProblem):
    """A number. The network learns (value - low) / (high - low), so that its first predictions are not far off."""

    low: float = 0.0
    high: float = 1.0
    kind, answer_key = "regression", "value"
    num_outputs, output_names = 1, ("value",)
    problem_type = "regression"
    purpose = "Predicts a value for a text or a pair of texts, in the unit of its training data."

    @classmethod
    def load_task(cls, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load a table whose label column has numbers."""
        table = read_table(data)
        train = table.splits["train"]
        values = [_value(row) for row in train]
        low, high = min(values), max(values)
        if low == high:
            raise DataError(f"{file_of(train)}: every value is {low:g}; nothing can be learned")
        examples = {
            split: [
                row.example(None if split == "test" and row.label in (None, "") else _value(row)) for row in rows
            ]
            for split, rows in table.splits.items()
        }
        problem = cls(("spearman", "pearson", "error"), head.text, table.has_pairs, low, high)
        return build_table_task(name, problem, examples, table, dev_share=data.dev_share)

    @torch.no_grad()
    def rescale_outputs(self, head: nn.Module) -> "Regression":
        assert isinstance(head, TextHead)
        width = self.high - self.low
        head.prediction.weight.mul_(width)
        head.prediction.bias.mul_(width).add_(self.low)
        return replace(self, low=0.0, high=1.0)

    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        return ((np.array(answers, np.float64) - self.low) / (self.high - self.low)).astype(np.float32)

    def format_answer(self, answer: float) -> float:
        return answer

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Return the squared error (B)."""
        return (head(x_BLD).float().squeeze(-1) - batch.targets["answer"]) ** 2

    def decode(self, examples: Sequence[TextExample], rows: Rows, outputs: Sequence[Outputs]) -> list[Prediction]:
        """Return the value, in the unit of the data."""
        values = [float(output["logits"][0]) for output in outputs]
        return [{"value": round(self.low + value * (self.high - self.low), 6)} for value in values]

    def format_prediction(self, prediction: Prediction, text: str) -> str:
        return f"{prediction[self.answer_key]:.3f}\t{text}"

    def compute_metrics(
        self, examples: Sequence[TextExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        answers = [float(example.answer) for example in examples if isinstance(example.answer, int | float)]
        return compute_metrics(self.metrics, answers, [prediction["value"] for prediction in predictions])

    def _distribution(self, answers: Sequence[float]) -> str:
        values = np.array(answers, np.float64)
        return f", mean {values.mean():.3g}, from {values.min():.3g} to {values.max():.3g}"


def _value(row: TableRow) -> float:
    try:
        value = float(row.label)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{row.place}: the value should be a number, got {row.label!r}; fix or remove this row")
    return value
