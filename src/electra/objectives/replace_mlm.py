"""Masked language modeling without [MASK]: replaced tokens are at the chosen positions (paper, section 3.5).

    x^cor = the text with sampled tokens at m
    loss  = L_MLM(x^mask, G) + λ Σ_m -log p(x_m | x^cor)

The full-size network reads the input of a discriminator, but predicts the original tokens at the chosen positions
only. This measures how much of ELECTRA's gain comes from the mismatch of [MASK], which downstream texts do not
have.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.states import compute_states
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import cross_entropy
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import ObjectiveParts
from electra.objectives.description import ModelDescription
from electra.objectives.generator_objective import (
    CorruptedBatch,
    GeneratorObjective,
    GeneratorObjectiveConfig,
    describe_restoring,
)
from electra.objectives.masking import Masking, max_predictions
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.sentences import with_cls_position


@dataclass(frozen=True)
class ReplaceMlmConfig(GeneratorObjectiveConfig):
    """Replace MLM (paper, section 3.5)."""

    kind: str = "replace-mlm"

    def build(self, parts: ObjectiveParts) -> Objective:
        return ReplaceMlm(parts, self)

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        return describe_restoring(self)


class ReplaceMlm(GeneratorObjective):
    """A full-size masked language model (`encoder`, `head`) that reads text with replaced tokens."""

    def add_heads(self, model: EncoderConfig) -> None:
        self.head = MaskedLanguageModelHead(model, activation=model.head_activation)

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        """`loss` = generator_loss + λ encoder_loss, both means over the chosen positions."""
        corrupted = self.corrupt(batch)
        counts = counts or self.counts(batch, corrupted.masking)
        x_nD, x_BD = self._states(batch, corrupted)
        used_n = corrupted.masking.used_BN.flatten().float()
        total = cross_entropy(
            self.head(x_nD),
            self.encoder.embeddings.token.weight,
            self.head.bias,
            corrupted.masking.gather(batch.input_ids_BL),
            used_n,
        )
        encoder_loss = total / counts["generator"]
        output = StepOutput(encoder_loss, {"encoder_loss": encoder_loss.detach()})
        return self.add_sentence_loss(self.add_generator_loss(output, corrupted, counts), x_BD, batch, counts)

    def counts(self, batch: Batch, masking: Masking | None = None) -> Counts:
        """Number of chosen positions, for both networks."""
        return {"generator": self.count_predictions(batch, masking), **self.sentence_counts(batch)}

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out metrics of the generator, and of the full-size network at all chosen positions."""
        generator, encoder_metrics = MaskedLanguageModelMetrics(), MaskedLanguageModelMetrics()
        with evaluation_mode(self):
            for batch, _ in batches:
                corrupted = self.corrupt_for_evaluation(batch, generator)
                encoder_metrics.add(
                    self.head(self._states(batch, corrupted)[0]),
                    self.encoder.embeddings.token.weight,
                    self.head.bias,
                    targets_N=corrupted.masking.gather(batch.input_ids_BL),
                    masked_N=corrupted.masking.used_BN.flatten(),
                    uniforms_N=self.sampling_uniforms(batch, corrupted.masking),
                )
        return generator.compute() | encoder_metrics.compute_restored()

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        return {"encoder": ExportableNetwork(self.encoder, self.head), **super().exportable_networks()}

    def output_biases(self) -> list[nn.Parameter]:
        return [*super().output_biases(), self.head.bias]

    def networks(self, length: int) -> Networks:
        share = max_predictions(length, self.masking.share) / length
        encoder = Network.from_config(self.encoder.config, masked_share=share, output_share=share)
        return {**dict(self.generator_networks(length)), "encoder": encoder}

    def _states(self, batch: Batch, corrupted: CorruptedBatch) -> tuple[Tensor, Tensor]:
        """Return the encoder's states (n, D) at the slots, and (B, D) at [CLS] if there is a sentence loss."""
        positions_BN = corrupted.masking.positions_BN
        x_BND = compute_states(
            self.encoder, corrupted.ids_BL, batch.segment_ids_BL, corrupted.mask,
            positions_BN=positions_BN if self.sentences is None else with_cls_position(positions_BN),
        )  # fmt: skip
        return x_BND[:, : positions_BN.shape[1]].flatten(0, 1), x_BND[:, -1]
