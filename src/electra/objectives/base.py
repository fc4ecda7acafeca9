"""What the trainer knows of an objective: a module that turns a batch into a loss, its parts and counts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.build import AnyEncoder
from electra.modeling.flops import Networks
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead, SentencePairHead

Counts = dict[str, Tensor]
NetworkName = Literal["discriminator", "generator", "encoder"]
"""An encoder is a full-size masked language model; a generator may stand beside it."""


@dataclass(frozen=True)
class StepOutput:
    """One forward pass.

    Attributes:
        loss: a scalar with a gradient: what is minimised.
        parts: scalars without a gradient, by the name that they have in metrics.jsonl.
        debug: what the loss was computed from, where an objective tells (ids that were put in, labels, logits).
    """

    loss: Tensor
    parts: dict[str, Tensor]
    debug: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportableNetwork:
    """A network that is exported on its own.

    Attributes:
        pairs: what tells whether two segments belong together, where that is learnt beside.
    """

    encoder: AnyEncoder
    head: MaskedLanguageModelHead | ReplacedTokenHead | LanguageModelHead
    pairs: SentencePairHead | None = None


class Objective(Protocol):
    """One way to train encoders. Implementations are `nn.Module`s of 40 to 150 lines, one a file."""

    def begin_step(self, step: int, steps: int | None) -> None:
        """Told before every step how many are done, of how many (None while the length is being measured).

        What it changes must follow from these numbers and the weights alone, since a run may be resumed here.
        """
        ...

    def counts(self, batch: Batch) -> Counts:
        """How many positions each part of the loss is averaged over, known before the forward pass.

        The trainer adds these up over micro-batches, so that an accumulated step is the same
        mean as one large batch.
        """
        ...

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        """The loss of a batch, divided by `counts` (the batch's own where None)."""
        ...

    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out figures; their keys start with `eval/` (docs/concepts/pretraining.md names the known ones).

        Each batch comes twice: as it is, and as its fixed unigram-corrupted copy (same rows, same layout).
        """
        ...

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        """What is exported, by the name of its folder."""
        ...

    def output_biases(self) -> list[nn.Parameter]:
        """The biases (V) of logits over the vocabulary, which may start at the tokens' frequencies."""
        ...

    def networks(self, length: int) -> Networks:
        """What the step that has begun computes over inputs of `length` tokens, for the counting of operations."""
        ...
