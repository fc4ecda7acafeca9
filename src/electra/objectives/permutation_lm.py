"""Permutation language modeling: targets are predicted in a random order (XLNet, Yang et al. 2019, sections 2.2
and 2.3).

    c      = the context: tokens that are not predicted; every position attends to them, they attend to c only
    z      ~ a random order of the targets (partial prediction: the context comes first in the order)
    loss   = mean over t of -log p(x_{z_t} | c, x_{z_1}, ..., x_{z_{t-1}}, and the memory)

The query stream makes the predictions: its states depend on a target's position, but not on its token. [masking]
chooses the targets, but nothing is masked. Predicting one token in K is a masking.share of 1 / K.

Shapes: B batch, L length, N targets a row, n = B × N, D hidden size, V vocabulary.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from electra.data.collate import Batch
from electra.modeling.encoders.base import Capability
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.objectives.base import Counts, Objective, StepOutput
from electra.objectives.config import ObjectiveConfig, ObjectiveParts, Sections
from electra.objectives.description import ModelDescription
from electra.objectives.language_model import LanguageModel
from electra.objectives.masking import Masking, attention_mask_of, draw_masks, max_predictions
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.stream_memory import StreamMemory


@dataclass(frozen=True)
class PermutationLanguageModelConfig(ObjectiveConfig):
    """XLNet's objective: targets in a random order."""

    kind: str = "permutation-lm"

    encoder_needs: ClassVar[frozenset[Capability]] = frozenset({"bidirectional", "two-streams"})
    reads_packed_rows: ClassVar[bool] = False
    carries_memory: ClassVar[bool] = True
    unused_settings: ClassVar[tuple[str, ...]] = ("generator.", "masking.mask_share", "masking.random_share")
    unused_reason: ClassVar[str] = "no generator"

    def build(self, parts: ObjectiveParts) -> Objective:
        return PermutationLanguageModel(parts)

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        return ModelDescription(
            title="Permutation language model",
            text=(
                "A text encoder that was pre-trained to predict tokens in a random order (XLNet,\n"
                "[Yang et al., NeurIPS 2019](https://arxiv.org/abs/1906.08237)), with relative positions."
            ),
            tag="permutation-language-modeling",
            head="language-model",
        )

    def problems_with(self, sections: Sections) -> Iterator[str]:
        if sections.masking.replacement:
            yield "masking.replacement: must be false for permutation-lm: a target has one place in the order"


class PermutationLanguageModel(LanguageModel):
    """One encoder with two streams of states, content and query."""

    def __init__(self, parts: ObjectiveParts) -> None:
        super().__init__(parts.model, query_stream=True)
        self.masking, self.vocabulary = parts.masking, parts.vocabulary

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        """`loss` = permutation_lm_loss, the mean over the targets."""
        masking = self.draw_masks(batch)
        counts = counts or self.counts(batch, masking)
        x_nD, targets_n = self.states(batch, masking, self.memory), masking.gather(batch.input_ids_BL)
        loss = self.negative_log_likelihood(x_nD, targets_n, masking.used_BN.flatten()) / counts["targets"]
        return StepOutput(loss, {"permutation_lm_loss": loss.detach()})

    def counts(self, batch: Batch, masking: Masking | None = None) -> Counts:
        """Number of targets."""
        return {"targets": (masking or self.draw_masks(batch)).used_BN.sum().clamp(min=1)}

    def draw_masks(self, batch: Batch) -> Masking:
        """Choose the targets."""
        return draw_masks(batch, self.masking, self.vocabulary)

    def states(self, batch: Batch, masking: Masking, memory: StreamMemory) -> Tensor:
        """The query states of the targets (n, D)."""
        return memory.encode(
            self.encoder,
            batch,
            batch.input_ids_BL,
            batch.segment_ids_BL,
            attention_mask_of(batch),
            positions_BN=masking.positions_BN[:, :0],
            permutation_BLL=permutation_mask(batch, masking),
            targets_BN=masking.positions_BN,
        ).flatten(0, 1)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Loss per target and accuracy."""
        metrics = MaskedLanguageModelMetrics()
        with evaluation_mode(self):
            memory = self.memory.empty_copy()
            for batch, _ in batches:
                masking = self.draw_masks(batch)
                x_nD, targets_n = self.states(batch, masking, memory), masking.gather(batch.input_ids_BL)
                self.add_metrics(metrics, x_nD, targets_n, masking.used_BN.flatten())
        return {
            "eval/permutation_lm_loss": metrics.loss / max(metrics.count, 1),
            "eval/permutation_lm_accuracy": metrics.correct / max(metrics.count, 1),
        }

    def networks(self, length: int) -> Networks:
        share = max_predictions(length, self.masking.share) / length
        network = Network.from_config(
            self.encoder.config, head="words", masked_share=share, output_share=0.0, target_share=share
        )
        return {"encoder": network}


def permutation_mask(batch: Batch, masking: Masking) -> Tensor:
    """True where the first position may attend to the second (B, L, L).

    Every position attends to the context; a target also attends to the targets before it in the order.
    """
    order_BN = 1 + uniforms(batch.row_seeds, Purpose.ORDER, masking.positions_BN.shape[1])
    zeros_BL = torch.zeros(batch.input_ids_BL.shape, device=order_BN.device)
    # 0 at the context; unused slots add 0.
    order_BL = zeros_BL.scatter_add(1, masking.positions_BN, order_BN * masking.used_BN)
    return (order_BL[:, None] == 0) | (order_BL[:, :, None] > order_BL[:, None])
