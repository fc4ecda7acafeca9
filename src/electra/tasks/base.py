"""Problems and tasks of fine-tuning: examples, rows for the network, head, losses, predictions, metrics.

A *problem* is one kind of prediction: a label for a text, a tag for each word, an answer in a passage. It knows
its labels, but it has no data and no weights, and it is stored with a fine-tuned model. A *task* is a problem
together with the examples of its splits.

To add a problem, write a subclass of `Problem` (or of `TextProblem`, `Classification`, ...) and register it:

    @register_task("my-problem")
    @dataclass(frozen=True)
    class MyProblem(Problem):
        kind, answer_key = "my-problem", "label"
        ...

`electra finetune MODEL --kind my-problem --plugin FILE` then trains it, and `electra predict OUT --plugin FILE`
uses it. Without --plugin, a package announces it as an entry point of the group `electra.tasks`.

Shapes: N rows of a split, B rows of a batch, L length.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.kernels.documents import DocumentMask, padded_length
from electra.modeling.task_heads import TaskHead
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.table_columns import PAIR_COLUMNS, TEXT_COLUMNS

Prediction = dict[str, Any]
"""The prediction for one example, as it is written to a file."""
Outputs = dict[str, NDArray[Any]]
"""Output arrays of the head for one row, by name."""
Text = str | Sequence[str]
"""One input of a fine-tuned model: a text; a pair of texts; the words of a sentence; or a question and a
passage."""

IGNORE_INDEX = -100
"""Target of tokens that are left out of the loss."""
MAX_UNKNOWN_SHARE = 0.1
"""Share of unknown tokens above which little of a text reaches the model."""
UNPADDING_THRESHOLD = 0.1
"""Share of padding from which on a batch is computed without its padding."""


@dataclass(frozen=True)
class InputSpec:
    """How texts become rows.

    Attributes:
        max_length: maximum number of tokens per row, including [CLS] and [SEP].
    """

    tokenizer: Tokenizer
    max_length: int


@dataclass(frozen=True)
class Rows:
    """Encoded examples: rows for the network. An example that does not fit into one row makes several.

    Attributes:
        ids: (tokens,) int32, the token ids of all rows, one row after the other.
        starts: (N + 1,) start of each row in `ids`, and the end of the last one.
        seconds: (N,) position in the row where the second segment starts; the row's length if there is none.
        examples: (N,) number of the example that each row belongs to, in ascending order.
        targets: (N, ...) by name, one per row.
        token_targets: (tokens,) by name, one per token.
        cut: numbers of the examples that were truncated, in order.
        notes: one per row: what the problem needs to interpret the network's outputs.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    seconds: NDArray[np.int64]
    examples: NDArray[np.int64]
    targets: dict[str, NDArray[Any]] = field(default_factory=dict)
    token_targets: dict[str, NDArray[Any]] = field(default_factory=dict)
    cut: Sequence[int] = ()
    notes: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @property
    def labeled(self) -> bool:
        """Whether the examples have their answers."""
        return bool(self.targets) or "labels" in self.token_targets


@dataclass(frozen=True)
class TaskBatch(Batch):
    """A batch of rows, with targets (B, ...) or (B, L) by name, and `documents` if much of it is padding."""

    targets: dict[str, Tensor] = field(default_factory=dict)
    documents: DocumentMask | None = None

    def to(self, device: torch.device) -> "TaskBatch":
        """Return the batch on a device. The copy to an accelerator is asynchronous."""
        if device.type == "cpu":
            return self
        batch = super().to(device)
        targets = {name: x.pin_memory().to(device, non_blocking=True) for name, x in self.targets.items()}
        return TaskBatch(
            batch.input_ids_BL,
            batch.segment_ids_BL,
            batch.lengths_B,
            batch.seed,
            targets=targets,
            documents=None if self.documents is None else self.documents.to(device),
        )


class Problem(ABC):
    """One kind of prediction. Subclasses are frozen dataclasses; their fields are stored with a model, as JSON.

    Attributes:
        kind: name in configs and in the files of a model.
        answer_key: key of a prediction that holds the answer.
        metric: name of the metric that runs are compared by; higher is better.
        default_max_length: default of `data.max_length`.
        reads_words: the input is a list of words, and each word has an answer.
        is_extractive: the answer is a span of a passage, and the input is a question and a passage.
        takes_pairs: the input is a pair of texts, or of a question and a passage.
        purpose: one sentence for the model card.
        pipeline_tag: the task's name on the Hugging Face Hub and in transformers.pipeline.
        problem_type: the same in the config of transformers' classes for sequence classification.
        input_example: an input as Python source, for the model card.
        output_names: names of the head's outputs, such as labels; empty if they have none.
        exported_names: names of the same outputs for transformers; two outputs can have one name.
        column_names: usual names of a table's columns for the text and for the second text, in order of
            preference.
    """

    kind: ClassVar[str]
    answer_key: ClassVar[str]
    metric: str
    default_max_length: ClassVar[int] = 128
    reads_words: ClassVar[bool] = False
    is_extractive: ClassVar[bool] = False
    column_names: ClassVar[tuple[Sequence[str], Sequence[str]]] = (TEXT_COLUMNS, PAIR_COLUMNS)

    purpose: ClassVar[str] = "Predicts a label or labels for a text or a pair of texts like its training data."
    pipeline_tag: ClassVar[str] = "text-classification"
    problem_type: ClassVar[str | None] = None

    @property
    def takes_pairs(self) -> bool:
        return False

    @property
    def input_example(self) -> str:
        return '("One text.", "Another text.")' if self.takes_pairs else '"A text."'

    @property
    def output_names(self) -> tuple[str, ...]:
        return getattr(self, "labels", ())

    @property
    def exported_names(self) -> tuple[str, ...]:
        return self.output_names

    @classmethod
    @abstractmethod
    def load_task(cls, name: str, data: DataConfig, head: HeadConfig) -> "Task":
        """Load a task of this kind from the user's own files.

        Raises:
            ElectraError: a setting or a file cannot be used.
        """

    @abstractmethod
    def make_example(self, text: Text, number: int) -> Any:
        """Return a text as an example without an answer, for prediction.

        Args:
            number: number of the text, from 0, for error messages.

        Raises:
            DataError: the text does not have the form that the problem needs.
        """

    @abstractmethod
    def describe_example(self, example: Any) -> dict[str, Any]:
        """Return what is written next to an example's prediction on dev: its text or texts, and `gold`."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], spec: InputSpec) -> Rows:
        """Return the examples as rows, with targets if the examples have answers."""

    @abstractmethod
    def build_head(self, config: EncoderConfig) -> TaskHead:
        """Return a new head for an encoder of this shape. Its `reads_first_only`: it reads nothing but [CLS]."""

    @abstractmethod
    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        """Return the outputs (B, ...) of the head: everything that needs weights.

        An ONNX model computes the same (`electra.export.onnx.heads`).
        """

    @abstractmethod
    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        """Return what `decode` needs of the logits, (B, ...) each."""

    @abstractmethod
    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Return the loss (B) of each row: the sum over its targets."""

    def count_targets(self, batch: TaskBatch) -> Tensor:
        """Return the number of targets in the batch that losses are averaged over: rows, or labeled words."""
        return torch.tensor(len(batch.lengths_B), device=batch.lengths_B.device)

    @abstractmethod
    def decode(self, examples: Sequence[Any], rows: Rows, outputs: Sequence[Outputs]) -> list[Prediction]:
        """Return the prediction for each example, in order."""

    def format_prediction(self, prediction: Prediction, text: str) -> str:
        """Return the line that `electra predict` prints: the answer and the text, separated by a tab.

        Args:
            text: the text, or both texts separated by a tab.
        """
        return f"{prediction[self.answer_key]}\t{text}"

    @abstractmethod
    def compute_metrics(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Return metrics of examples with answers, `metric` among them. Shares and correlations are in [-1, 1]."""

    def with_tuned_threshold(self, metrics: dict[str, float]) -> "Problem":
        """Return the problem with the decision threshold that was best on dev; itself if it has no threshold."""
        return self

    def rescale_outputs(self, head: nn.Module) -> "Problem":
        """Change the weights of a head before its export so that its outputs are in the unit of the data.

        Returns:
            The problem for the changed head.
        """
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for the files of a model. `load_problem` reads them back."""
        return {"kind": self.kind, **asdict(cast(Any, self))}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the problem with these fields."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


@dataclass(frozen=True)
class Task:
    """A problem and the examples of its splits.

    Attributes:
        splits: examples by split. Runs train on `train` and are evaluated on `dev`; other splits are predicted,
            and evaluated if their examples have answers.
        notes: remarks about the data, for the log.
        symmetric: a pair means the same in the other order; runs train on both orders.
        default_epochs: default of `train.epochs`.
    """

    name: str
    problem: Problem
    splits: Mapping[str, Sequence[Any]]
    notes: tuple[str, ...] = ()
    symmetric: bool = False
    default_epochs: float = 3

    def training_examples(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Return training examples as runs use them: with the swapped pairs if the task is symmetric."""
        return [*examples, *(example.swapped for example in examples)] if self.symmetric else examples


def describe_unknown(unknown: int, tokens: int) -> str:
    """Return what to say if more than `MAX_UNKNOWN_SHARE` of the tokens are unknown, else an empty string."""
    if unknown <= MAX_UNKNOWN_SHARE * tokens:
        return ""
    return (
        f"{unknown / tokens:.0%} of the tokens are not in the vocabulary of the model and were read as unknown; "
        "the vocabulary was made for other text"
    )


def build_rows(
    segments: Sequence[tuple[list[int], list[int] | None]],
    special_ids: tuple[int, int],
    *,
    examples: Sequence[int] | None = None,
    **others: Any,
) -> Rows:
    """Return rows [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of token ids that fit.

    Args:
        special_ids: the ids of [CLS] and [SEP].
        examples: the example of each row; None: one row per example.
        others: further fields of `Rows`.
    """
    classify, separate = special_ids
    rows = [
        [classify, *first, separate] if second is None else [classify, *first, separate, *second, separate]
        for first, second in segments
    ]
    lengths = np.array([len(row) for row in rows], np.int64)
    seconds = [
        length if second is None else len(first) + 2
        for (first, second), length in zip(segments, lengths.tolist(), strict=True)
    ]
    return Rows(
        ids=np.fromiter((token for row in rows for token in row), np.int32, count=int(lengths.sum())),
        starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        seconds=np.array(seconds, np.int64),
        examples=np.arange(len(rows)) if examples is None else np.array(examples, np.int64),
        **others,
    )


def collate(rows: Rows, indices: NDArray[np.int64], *, pad: int, seed: int = 0) -> TaskBatch:
    """Return some rows as one batch, padded to the longest of them, or to a few tokens more.

    A CPU keeps a kernel for each new length, so there are few of them.
    """
    starts, lengths_B = rows.starts[indices], rows.lengths[indices]
    columns_L = np.arange(padded_length(int(lengths_B.max()), int(rows.lengths.max())))
    inside_BL = columns_L < lengths_B[:, None]
    positions_BL = np.where(inside_BL, starts[:, None] + columns_L, 0)
    ids_BL = np.where(inside_BL, rows.ids[positions_BL], pad).astype(np.int64)
    segments_BL = (inside_BL & (columns_L >= rows.seconds[indices][:, None])).astype(np.int64)
    targets = {name: torch.from_numpy(values[indices]) for name, values in rows.targets.items()}
    for name, values in rows.token_targets.items():
        targets[name] = torch.from_numpy(np.where(inside_BL, values[positions_BL], IGNORE_INDEX))
    documents = None
    if inside_BL.mean() < 1 - UNPADDING_THRESHOLD:
        documents = DocumentMask.of_rows(lengths_B, inside_BL.shape[1])
    return TaskBatch(
        torch.from_numpy(ids_BL),
        torch.from_numpy(segments_BL),
        torch.from_numpy(lengths_B),
        seed,
        targets=targets,
        documents=documents,
    )
