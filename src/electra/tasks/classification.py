"""A label, several labels or a number for a text or a pair of texts.

Shapes: B batch, L length, K labels, D hidden size.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.modeling.encoders.bert import EncoderConfig
from electra.modeling.task_heads import TextHead
from electra.tasks.base import Facts, InputSpec, Outputs, Prediction, Rows, TaskBatch, build_rows
from electra.tasks.metrics import compute_metrics

TextHeadKind = Literal["linear", "hidden"]


@dataclass(frozen=True)
class TextExample:
    """One or two texts, and what is to be said of them.

    Attributes:
        answer: the number of the label, the numbers of several, or a value; None where it is not known.
    """

    first: str
    second: str | None = None
    answer: float | tuple[int, ...] | None = None

    @property
    def turned(self) -> "TextExample":
        """The same pair in the other order."""
        assert self.second is not None
        return replace(self, first=self.second, second=self.first)


@dataclass(frozen=True)
class _TextProblem(ABC):
    """What the kinds have in common.

    Attributes:
        metrics: names of figures; runs are judged by the first.
        head_kind: one layer (ELECTRA), or two (transformers).
        pair: whether the examples are pairs of texts.
    """

    kind: ClassVar[str]
    says: ClassVar[str]
    metrics: tuple[str, ...]
    head_kind: TextHeadKind = "linear"
    pair: bool = False

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def encode(self, examples: Sequence[TextExample], reading: InputSpec) -> Rows:
        """One row an example; of a pair that is too long the longer text loses tokens at its end."""
        special = special_tokens(reading.tokenizer)
        firsts = _tokenize([example.first for example in examples], reading)
        seconds = iter(_tokenize([example.second for example in examples if example.second is not None], reading))
        pieces: list[tuple[list[int], list[int] | None]] = []
        cut = []
        for number, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            second = None if example.second is None else next(seconds)
            kept = truncate_pair(first, second, reading.max_length)
            if kept != (first, second):
                cut.append(number)
            pieces.append(kept)
        known = [example.answer for example in examples if example.answer is not None]
        targets = {"answer": self.targets(known)} if len(known) == len(examples) else {}
        return build_rows(pieces, (special.classify, special.separate), targets=targets, cut=cut)

    def head(self, config: EncoderConfig) -> TextHead:
        return TextHead(config, self.outputs_count, hidden=self.head_kind == "hidden")

    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        return {"logits": head(x_BLD)}

    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        return logits

    def answers(self, batch: TaskBatch) -> Tensor:
        return torch.tensor(len(batch.lengths_B), device=batch.lengths_B.device)

    def known(self, example: TextExample) -> Facts:
        texts = (
            {"text": example.first} if example.second is None else {"text": example.first, "pair": example.second}
        )
        return {**texts, "gold": self.named(example.answer)}

    def with_tuned_threshold(self, metrics: dict[str, float]) -> Self:
        return self

    def facts(self) -> Facts:
        return {"kind": self.kind, **asdict(self)}

    @property
    @abstractmethod
    def outputs_count(self) -> int:
        """How many logits a text has."""

    @abstractmethod
    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Answers as the loss takes them."""

    @abstractmethod
    def named(self, answer: Any) -> Any:
        """An answer as it stands in files."""


@dataclass(frozen=True)
class Classification(_TextProblem):
    """One of several labels."""

    labels: tuple[str, ...] = ()
    kind, says = "classification", "label"

    @property
    def outputs_count(self) -> int:
        return len(self.labels)

    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        return np.array(answers, np.int64)

    def named(self, answer: int) -> str:
        return self.labels[answer]

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Cross-entropy (B)."""
        return F.cross_entropy(head(x_BLD).float(), batch.targets["answer"], reduction="none")

    def predictions(
        self, examples: Sequence[TextExample], rows: Rows, outputs: Sequence[Outputs]
    ) -> list[Prediction]:
        """The likeliest label, and the probability of each."""
        logits_NK = torch.from_numpy(np.stack([output["logits"] for output in outputs]))
        return [
            {"label": self.labels[best], "scores": dict(zip(self.labels, _round_scores(scores), strict=True))}
            for best, scores in zip(logits_NK.argmax(-1).tolist(), logits_NK.softmax(-1).tolist(), strict=True)
        ]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        answers = [float(example.answer) for example in examples if isinstance(example.answer, int | float)]
        return compute_metrics(self.metrics, answers, [numbers[prediction["label"]] for prediction in predictions])


@dataclass(frozen=True)
class Multilabel(_TextProblem):
    """Any number of labels."""

    labels: tuple[str, ...] = ()
    kind, says = "multilabel", "labels"

    @property
    def outputs_count(self) -> int:
        return len(self.labels)

    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        targets_NK = np.zeros((len(answers), len(self.labels)), np.float32)
        for row_K, numbers in zip(targets_NK, answers, strict=True):
            row_K[list(numbers)] = 1.0
        return targets_NK

    def named(self, answer: Sequence[int]) -> list[str]:
        return [self.labels[number] for number in answer]

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Binary cross-entropy (B), the mean over the labels."""
        logits_BK = head(x_BLD).float()
        return F.binary_cross_entropy_with_logits(logits_BK, batch.targets["answer"], reduction="none").mean(-1)

    def predictions(
        self, examples: Sequence[TextExample], rows: Rows, outputs: Sequence[Outputs]
    ) -> list[Prediction]:
        """The labels that are likelier than not, and the probability of each."""
        logits_NK = torch.from_numpy(np.stack([output["logits"] for output in outputs]))
        return [
            {
                "labels": [label for label, score in zip(self.labels, scores, strict=True) if score > 0.5],
                "scores": dict(zip(self.labels, _round_scores(scores), strict=True)),
            }
            for scores in logits_NK.sigmoid().tolist()
        ]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """micro_f1 over all decisions, macro_f1 over the labels, and the share of texts with all labels right."""
        answers_NK = self.targets([example.answer for example in examples]) > 0
        found_NK = np.array([[label in p["labels"] for label in self.labels] for p in predictions])
        true_K, wrong_K = (answers_NK & found_NK).sum(0), (answers_NK != found_NK).sum(0)
        each_K = 2 * true_K / np.maximum(2 * true_K + wrong_K, 1)
        micro = 2 * true_K.sum() / max(2 * true_K.sum() + wrong_K.sum(), 1)
        known = {
            "micro_f1": float(micro),
            "macro_f1": float(each_K.mean()),
            "accuracy": float((answers_NK == found_NK).all(-1).mean()),
        }
        return {name: known[name] for name in self.metrics}


@dataclass(frozen=True)
class Regression(_TextProblem):
    """A number. The network learns (value - low) / (high - low), so that its first guesses are not far off."""

    low: float = 0.0
    high: float = 1.0
    kind, says = "regression", "value"
    outputs_count = 1

    def targets(self, answers: Sequence[Any]) -> np.ndarray[Any, Any]:
        return ((np.array(answers, np.float64) - self.low) / (self.high - self.low)).astype(np.float32)

    def named(self, answer: float) -> float:
        return answer

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Squared error (B)."""
        return (head(x_BLD).float().squeeze(-1) - batch.targets["answer"]) ** 2

    def predictions(
        self, examples: Sequence[TextExample], rows: Rows, outputs: Sequence[Outputs]
    ) -> list[Prediction]:
        """The value, in the unit of the data."""
        values = [float(output["logits"][0]) for output in outputs]
        return [{"value": round(self.low + value * (self.high - self.low), 6)} for value in values]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        answers = [float(example.answer) for example in examples if isinstance(example.answer, int | float)]
        return compute_metrics(self.metrics, answers, [prediction["value"] for prediction in predictions])


def truncate_pair(
    first: list[int], second: list[int] | None, max_length: int
) -> tuple[list[int], list[int] | None]:
    """What of one or two texts fits into a row: the longer one loses a token at its end until they do."""
    if second is None:
        return first[: max_length - 2], None
    room = max_length - 3
    if len(first) + len(second) <= room:
        return first, second
    shorter = min(len(first), len(second), room // 2)
    if len(first) > len(second):
        return first[: room - shorter], second[:shorter]
    return first[:shorter], second[: room - shorter]


def _tokenize(texts: Sequence[str], reading: InputSpec) -> list[list[int]]:
    encodings = reading.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def _round_scores(scores: Sequence[float]) -> list[float]:
    return [round(score, 6) for score in scores]


TextProblem = Classification | Multilabel | Regression
