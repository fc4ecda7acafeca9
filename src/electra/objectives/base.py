"""What the trainer asks of an objective: a module that turns a batch into a loss, its parts and counts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.flops import Networks
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead, SentencePairHead

Counts = dict[str, Tensor]
NetworkName = Literal["discriminator", "generator", "encoder"]
"""Folder of an export. encoder: a full-size language model, alone or together with a generator."""


@dataclass(frozen=True)
class StepOutput:
    """One forward pass.

    Attributes:
        loss: a scalar with a gradient: what is minimized.
        parts: scalars without a gradient, by the name that they have in metrics.jsonl.
        debug: what the loss was computed from, for tests (replaced ids, labels, logits).
    """

    loss: Tensor
    parts: dict[str, Tensor]
    debug: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportableNetwork:
    """A network that is exported on its own.

    Attributes:
        pairs: the head that tells whether two segments belong together, if there is one.
    """

    encoder: EncoderModule
    head: MaskedLanguageModelHead | ReplacedTokenHead | LanguageModelHead
    pairs: SentencePairHead | None = None


class Objective(nn.Module, ABC):
    """One way to train encoders. Implementations have 40 to 150 lines, one a file.

    Attributes:
        in_stages: whether a step leaves some parameters without a gradient, which DistributedDataParallel must
        know.
    """

    in_stages = False

    @abstractmethod
    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        """The loss of a batch, divided by `counts` (the batch's own where None)."""

    @abstractmethod
    def counts(self, batch: Batch) -> Counts:
        """Number of positions that each part of the loss is averaged over, known before the forward pass.

        The trainer adds these up over micro-batches, so that an accumulated step has the same mean as one large
        batch.
        """

    @abstractmethod
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out metrics; their keys start with `eval/`.

        Each batch comes twice: as it is, and as its fixed copy with replacements drawn by frequency (same rows,
        same layout).
        """

    @abstractmethod
    def networks(self, length: int) -> Networks:
        """What the step that has begun computes over inputs of `length` tokens, for the counting of FLOPs."""

    @abstractmethod
    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        """The networks to export, by the name of their folder."""

    def begin_step(self, step: int, steps: int | None) -> None:
        """Called before every step with the number of steps done, and their total (None while it is measured).

        What it changes must follow from these numbers and the weights alone, since a run may be resumed here.
        """

    def output_biases(self) -> list[nn.Parameter]:
        """The biases (V) of logits over the vocabulary, which may start at the tokens' frequencies."""
        return []
