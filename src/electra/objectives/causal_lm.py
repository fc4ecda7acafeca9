"""Causal language modeling: each token is predicted from the tokens before it (Transformer-XL, Dai et al. 2019).

    loss = mean over the tokens of -log p(token | the tokens before it in its row, and the memory)

In a stream, each row continues the row of the batch before, and its last token predicts the first of the next row.

Shapes: B batch, L length, n = B × L, D hidden size, V vocabulary.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from electra.data.collate import Batch
from electra.modeling.encoders.base import Capability
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.objectives.base import Counts, Objective, StepOutput
from electra.objectives.config import ObjectiveConfig, ObjectiveParts
from electra.objectives.description import ModelDescription
from electra.objectives.language_model import LanguageModel
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.stream_memory import StreamMemory


@dataclass(frozen=True)
class CausalLanguageModelConfig(ObjectiveConfig):
    """Transformer-XL's objective: the next token."""

    kind: str = "causal-lm"

    encoder_needs: ClassVar[frozenset[Capability]] = frozenset({"left-to-right"})
    reads_packed_rows: ClassVar[bool] = False
    carries_memory: ClassVar[bool] = True
    unused_settings: ClassVar[tuple[str, ...]] = ("generator.", "masking.")
    unused_reason: ClassVar[str] = "no generator and no masks"

    def build(self, parts: ObjectiveParts) -> Objective:
        return CausalLanguageModel(parts.model)

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        return ModelDescription(
            title="Left-to-right language model",
            text=(
                "A language model that was pre-trained to predict the next token (Transformer-XL,\n"
                "[Dai et al., ACL 2019](https://arxiv.org/abs/1901.02860)), with relative positions."
            ),
            tag="causal-language-modeling",
            head="language-model",
        )


class CausalLanguageModel(LanguageModel):
    """A left-to-right encoder that predicts the next token."""

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        """`loss` = language_model_loss."""
        counts = counts or self.counts(batch)
        targets_BL, used_BL = next_tokens(batch)
        x_nD = self.states(batch, self.memory)
        loss = self.negative_log_likelihood(x_nD, targets_BL.flatten(), used_BL.flatten()) / counts["words"]
        return StepOutput(loss, {"language_model_loss": loss.detach()})

    def counts(self, batch: Batch) -> Counts:
        """Number of predicted tokens."""
        return {"words": next_tokens(batch)[1].sum().clamp(min=1)}

    def states(self, batch: Batch, memory: StreamMemory) -> Tensor:
        """The encoder's states (n, D). No mask is needed: padding is at the end, and attention goes to the
        left."""
        return memory.encode(self.encoder, batch, batch.input_ids_BL, batch.segment_ids_BL).flatten(0, 1)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Loss per token, perplexity and accuracy."""
        metrics = MaskedLanguageModelMetrics()
        with evaluation_mode(self):
            memory = self.memory.empty_copy()
            for batch, _ in batches:
                targets_BL, used_BL = next_tokens(batch)
                self.add_metrics(metrics, self.states(batch, memory), targets_BL.flatten(), used_BL.flatten())
        loss = metrics.loss / max(metrics.count, 1)
        return {
            "eval/language_model_loss": loss,
            "eval/perplexity": math.exp(min(loss, 700.0)),
            "eval/language_model_accuracy": metrics.correct / max(metrics.count, 1),
        }

    def networks(self, length: int) -> Networks:
        return {"encoder": Network.from_config(self.encoder.config, head="words", masked_share=1.0)}


def next_tokens(batch: Batch) -> tuple[Tensor, Tensor]:
    """The token after each token (B, L), and True where there is one (B, L)."""
    ids_BL = batch.input_ids_BL
    positions_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
    stream = batch.stream_state
    last_B = ids_BL[:, -1] if stream is None else stream.next_ids_B
    used_BL = positions_L + (1 if stream is None else 0) < batch.lengths_B[:, None]
    return torch.cat([ids_BL[:, 1:], last_B[:, None]], 1), used_BL
