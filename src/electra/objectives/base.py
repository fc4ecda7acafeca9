"""The interface of an objective: a module that turns a batch into a loss, its parts and its counts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.flops import Networks
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead, SentencePairHead

Counts = dict[str, Tensor]
NetworkName = Literal["discriminator", "generator", "encoder"]
"""Folder of an exported network. encoder: a full-size language model, alone or together with a generator; beside a
discriminator it is the same network with another head."""


@dataclass(frozen=True)
class StepOutput:
    """The result of one forward pass.

    Attributes:
        loss: the scalar to minimize, with a gradient.
        parts: scalars without a gradient, by their names in metrics.jsonl.
        debug: tensors that the loss was computed from, for tests (replaced ids, labels, logits).
    """

    loss: Tensor
    parts: dict[str, Tensor]
    debug: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportableNetwork:
    """A network that is exported separately.

    Attributes:
        pairs: the head that classifies pairs of segments (next sentence, sentence order), if there is one.
    """

    encoder: EncoderModule
    head: MaskedLanguageModelHead | ReplacedTokenHead | LanguageModelHead
    pairs: SentencePairHead | None = None


class TrainableModule(nn.Module, ABC):
    """A module that the trainer can train: an objective of pre-training, or the model of a fine-tuning task.

    Attributes:
        has_unused_parameters: whether a step leaves some parameters without a gradient. DistributedDataParallel
            must know this (`find_unused_parameters`).
    """

    has_unused_parameters = False

    @abstractmethod
    def forward(self, batch: Any, counts: Counts | None = None) -> StepOutput:
        """Return the loss of a batch, divided by `counts` (None: the counts of this batch)."""

    @abstractmethod
    def counts(self, batch: Any) -> Counts:
        """Return the number of positions that each part of the loss is averaged over, before the forward pass.

        The trainer adds these up over micro-batches, so that gradient accumulation gives the same mean as one
        large batch.
        """

    @abstractmethod
    def networks(self, length: int) -> Networks:
        """Return the networks that the current step computes over inputs of `length` tokens, to count FLOPs."""

    def begin_step(self, step: int, steps: int | None) -> None:
        """Called before every step with the number of steps done and their total (None while it is measured).

        Its effect may depend on these numbers and the weights only, because a run can be resumed at any step.
        """


class Objective(TrainableModule):
    """A pre-training objective. Each one has a file of its own."""

    @abstractmethod
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Return held-out metrics; their keys start with `eval/`.

        Each batch comes with a copy in which some tokens are replaced by tokens drawn by frequency (same rows,
        same layout, always the same replacements).
        """

    @abstractmethod
    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        """Return the networks to export, by the name of their folder."""

    def output_biases(self) -> list[nn.Parameter]:
        """Return the biases (V) of logits over the vocabulary (see init.output_bias)."""
        return []
