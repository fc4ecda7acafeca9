"""What fine-tuning knows of a task: examples, rows for the network, a head, a loss, predictions, a score.

A *problem* is one kind of question (a label for a text, a tag for each word, an answer in a passage) with what it
knows of its answers; it holds no data and no weights, and goes with a fine-tuned model. A *task* is a problem with
the data of its splits.

Shapes: N rows of a split, B rows of a batch, L length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.bert import EncoderConfig
from electra.modeling.kernels.unpadding import Unpadding
from electra.modeling.task_heads import TaskHead

Facts = dict[str, Any]
"""What JSON can hold."""
Prediction = dict[str, Any]
"""What is said of one example, as it is written to a file."""
Outputs = dict[str, NDArray[Any]]
"""What the head gave for one row."""

IGNORE_INDEX = -100
"""The target of a token that has none."""
UNPADDING_THRESHOLD = 0.1
"""Share of padding from which on a batch is computed without it."""


@dataclass(frozen=True)
class InputSpec:
    """How texts become rows.

    Attributes:
        max_length: tokens of a row, [CLS] and [SEP] included.
    """

    tokenizer: Tokenizer
    max_length: int


@dataclass(frozen=True)
class Rows:
    """Rows for the network. An example that does not fit into one makes several.

    Attributes:
        ids: (tokens,) int32, of all rows, one behind the other.
        starts: (N + 1,) where each row begins, and the end.
        seconds: (N,) where in its row the second segment begins; the row's length where there is none.
        examples: (N,) the number of the example that a row is of; it never falls.
        targets: by name, (N, ...), one a row; or (tokens,), one a token, those of names in `token_targets`.
        cut: the numbers of examples of which something was left out, in order.
        notes: whatever else the problem has to know of a row to understand the network's outputs.
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


@dataclass(frozen=True)
class TaskBatch(Batch):
    """Rows of a split, with targets (B, ...) or (B, L) by name, and where its tokens stand if much is padding."""

    targets: dict[str, Tensor] = field(default_factory=dict)
    unpadding: Unpadding | None = None

    def to(self, device: torch.device) -> "TaskBatch":
        """The same batch on a device; a copy to an accelerator does not wait for it."""
        if device.type == "cpu":
            return self
        batch = super().to(device)
        targets = {name: x.pin_memory().to(device, non_blocking=True) for name, x in self.targets.items()}
        unpadding = self.unpadding
        if unpadding is not None:
            unpadding = replace(unpadding, places_T=unpadding.places_T.pin_memory().to(device, non_blocking=True))
        return TaskBatch(
            batch.input_ids_BL,
            batch.segment_ids_BL,
            batch.lengths_B,
            batch.seed,
            targets=targets,
            unpadding=unpadding,
        )


class Problem(Protocol):
    """One kind of question. Implementations are frozen dataclasses, one kind a file."""

    @property
    def kind(self) -> str:
        """Its name in configs and in the files of a model."""
        ...

    @property
    def metric(self) -> str:
        """The name of the figure that runs are judged by; the higher, the better."""
        ...

    @property
    def says(self) -> str:
        """The key of a prediction under which its answer stands."""
        ...

    def encode(self, examples: Sequence[Any], reading: InputSpec) -> Rows:
        """Examples as rows, with targets where the examples have them."""
        ...

    def head(self, config: EncoderConfig) -> TaskHead:
        """A new head for an encoder of this shape. Its `reads_first_only` says whether [CLS] is all it reads."""
        ...

    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        """What the head makes of states, (B, ...) each: all for which weights are needed, and so what a network
        gives that went out as ONNX (`electra.export.onnx.heads`)."""
        ...

    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        """What `predictions` needs of it, (B, ...) each."""
        ...

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """The loss (B) of each row, the sum of those of its answers."""
        ...

    def answers(self, batch: TaskBatch) -> Tensor:
        """How many answers the batch holds, over which losses are averaged: its rows, or its tagged words."""
        ...

    def predictions(self, examples: Sequence[Any], rows: Rows, outputs: Sequence[Outputs]) -> list[Prediction]:
        """One for each example, in order."""
        ...

    def score(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Figures of examples that have their answers, `metric` among them. Shares and correlations, 0 to 1."""
        ...

    def known(self, example: Any) -> Facts:
        """What stands beside an example's prediction in the file of dev: its text or texts, and what is right."""
        ...

    def with_tuned_threshold(self, metrics: dict[str, float]) -> "Problem":
        """The problem with what was found on dev, such as a threshold."""
        ...

    def facts(self) -> Facts:
        """What `electra.tasks.problems.problem_from_dict` needs to make the problem again."""
        ...


@dataclass(frozen=True)
class Task:
    """A problem and its data.

    Attributes:
        splits: examples by name. Runs learn from `train` and are judged on `dev`; those whose examples have no
            answers are predicted.
        notes: what was found in the data, for a person to read.
        symmetric: whether a pair in the other order means the same; both orders are learnt then.
    """

    name: str
    problem: Problem
    splits: Mapping[str, Sequence[Any]]
    notes: tuple[str, ...] = ()
    symmetric: bool = False

    def learnt(self, examples: Sequence[Any]) -> Sequence[Any]:
        """What is trained on where these are the training examples."""
        return [*examples, *(example.turned for example in examples)] if self.symmetric else examples


def build_rows(
    pieces: Sequence[tuple[list[int], list[int] | None]],
    reading_tokens: tuple[int, int],
    *,
    examples: Sequence[int] | None = None,
    **others: Any,
) -> Rows:
    """Rows [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of pieces that fit.

    Args:
        reading_tokens: the ids of [CLS] and [SEP].
        examples: the example of each row; None: one row an example.
        others: further fields of `Rows`.
    """
    classify, separate = reading_tokens
    rows = [
        [classify, *first, separate] if second is None else [classify, *first, separate, *second, separate]
        for first, second in pieces
    ]
    lengths = np.array([len(row) for row in rows], np.int64)
    seconds = [
        length if second is None else len(first) + 2
        for (first, second), length in zip(pieces, lengths.tolist(), strict=True)
    ]
    return Rows(
        ids=np.fromiter((token for row in rows for token in row), np.int32, count=int(lengths.sum())),
        starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        seconds=np.array(seconds, np.int64),
        examples=np.arange(len(rows)) if examples is None else np.array(examples, np.int64),
        **others,
    )


def collate(rows: Rows, chosen: NDArray[np.int64], *, pad: int, seed: int = 0) -> TaskBatch:
    """The chosen rows as one batch, as wide as the longest of them."""
    starts, lengths_B = rows.starts[chosen], rows.lengths[chosen]
    columns_L = np.arange(int(lengths_B.max()))
    inside_BL = columns_L < lengths_B[:, None]
    places_BL = np.where(inside_BL, starts[:, None] + columns_L, 0)
    ids_BL = np.where(inside_BL, rows.ids[places_BL], pad).astype(np.int64)
    segments_BL = (inside_BL & (columns_L >= rows.seconds[chosen][:, None])).astype(np.int64)
    targets = {name: torch.from_numpy(values[chosen]) for name, values in rows.targets.items()}
    for name, values in rows.token_targets.items():
        targets[name] = torch.from_numpy(np.where(inside_BL, values[places_BL], IGNORE_INDEX))
    unpadding = None
    if inside_BL.mean() < 1 - UNPADDING_THRESHOLD:
        unpadding = Unpadding(torch.from_numpy(np.flatnonzero(inside_BL)), *inside_BL.shape)
    return TaskBatch(
        torch.from_numpy(ids_BL),
        torch.from_numpy(segments_BL),
        torch.from_numpy(lengths_B),
        seed,
        targets=targets,
        unpadding=unpadding,
    )
