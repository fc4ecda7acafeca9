"""BERT's objective with ELECTRA's masking: one network predicts the chosen tokens (Devlin et al. 2019).

    loss = L_MLM(x^mask, G)

There is no discriminator. [masking] says what a chosen position shows: [MASK] or its own token, as in the ELECTRA
paper (85/15), or also a random token, as in the BERT paper (80/10/10).

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from electra.config import NonNegativeFloat
from electra.data.collate import Batch
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import cross_entropy
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import ObjectiveParts, SentenceLossConfig
from electra.objectives.description import ModelDescription
from electra.objectives.masking import Masking, attention_mask_of, draw_masks, max_predictions
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.sentences import SentenceLoss, with_cls_position
from electra.objectives.stream_memory import StreamMemory


@dataclass(frozen=True)
class MaskedLanguageModelConfig(SentenceLossConfig):
    """BERT's objective."""

    kind: str = "masked-lm"
    generator_weight: NonNegativeFloat = 1.0
    """The weight of the loss."""

    carries_memory: ClassVar[bool] = True

    def build(self, parts: ObjectiveParts) -> Objective:
        return MaskedLanguageModel(parts, self)

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        shown = "[MASK], its own token or a random token" if masking.random_share else "[MASK] or its own token"
        pairs = "It has no sentence-level objective."
        if self.sentence_loss != "none":
            pairs = "Pairs of segments had a loss of their own."
        return ModelDescription(
            title="Masked language model",
            text=(
                "A text encoder that was pre-trained to fill masks\n([Devlin et al., NAACL 2019]"
                f"(https://arxiv.org/abs/1810.04805)): a chosen position shows {shown}.\n{pairs}"
            ),
            tag="masked-language-modeling",
            head="generator",
            fills_masks=True,
        )


class MaskedLanguageModel(Objective):
    """One encoder of the shape in [model], trained as a masked language model."""

    def __init__(self, parts: ObjectiveParts, config: MaskedLanguageModelConfig) -> None:
        super().__init__()
        model = parts.model
        self.sentences: SentenceLoss | None = None
        if config.sentence_loss != "none":
            self.sentences = SentenceLoss(model, weight=config.sentence_weight)
        self.config, self.masking, self.vocabulary = config, parts.masking, parts.vocabulary
        self.encoder = model.build()
        self.memory = StreamMemory(model)
        self.head = MaskedLanguageModelHead(model, activation=model.head_activation)

    def forward(self, batch: Batch, counts: Counts | None = None, *, masking: Masking | None = None) -> StepOutput:
        """`loss` = generator_loss, the mean over the chosen positions (the same name in every objective)."""
        masking = masking or self.draw_masks(batch)
        counts = counts or self.counts(batch, masking)
        x_nD, x_BD = self.states(batch, masking, self.memory)
        used_n = masking.used_BN.flatten().float()
        negative_log_likelihood = cross_entropy(
            self.head(x_nD),
            self.encoder.embeddings.token.weight,
            self.head.bias,
            masking.gather(batch.input_ids_BL),
            used_n,
        )
        generator_loss = negative_log_likelihood / counts["generator"]
        output = StepOutput(
            self.config.generator_weight * generator_loss, {"generator_loss": generator_loss.detach()}
        )
        return output if self.sentences is None else self.sentences(output, x_BD, batch, counts)

    def counts(self, batch: Batch, masking: Masking | None = None) -> Counts:
        """Number of chosen positions."""
        predictions = (masking or self.draw_masks(batch)).used_BN.sum().clamp(min=1)
        return {"generator": predictions, **({} if self.sentences is None else self.sentences.counts(batch))}

    def draw_masks(self, batch: Batch) -> Masking:
        """Choose positions and put [MASK] there."""
        return draw_masks(batch, self.masking, self.vocabulary)

    def states(self, batch: Batch, masking: Masking, memory: StreamMemory) -> tuple[Tensor, Tensor]:
        """Return the encoder's states (n, D) at the slots, and (B, D) at [CLS] if there is a sentence loss."""
        mask = attention_mask_of(batch)
        positions_BN = masking.positions_BN if self.sentences is None else with_cls_position(masking.positions_BN)
        x_BND = memory.encode(
            self.encoder, batch, masking.input_ids_BL, batch.segment_ids_BL, mask, positions_BN=positions_BN
        )
        return x_BND[:, : masking.positions_BN.shape[1]].flatten(0, 1), x_BND[:, -1]

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out metrics of the masked language model (docs/concepts/pretraining.md explains each)."""
        metrics = MaskedLanguageModelMetrics()
        with evaluation_mode(self):
            memory = self.memory.empty_copy()
            for batch, _ in batches:
                masking = self.draw_masks(batch)
                metrics.add(
                    self.head(self.states(batch, masking, memory)[0]),
                    self.encoder.embeddings.token.weight,
                    self.head.bias,
                    targets_N=masking.gather(batch.input_ids_BL),
                    masked_N=masking.masked_BN.flatten(),
                    uniforms_N=uniforms(batch.row_seeds, Purpose.SAMPLES, masking.used_BN.shape[1]).flatten(),
                )
        return metrics.compute()

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        return {
            "encoder": ExportableNetwork(
                self.encoder, self.head, None if self.sentences is None else self.sentences.head
            )
        }

    def output_biases(self) -> list[nn.Parameter]:
        return [self.head.bias]

    def networks(self, length: int) -> Networks:
        share = max_predictions(length, self.masking.share) / length
        first = 0 if self.sentences is None else 1 / length  # [CLS]
        network = Network.from_config(self.encoder.config, masked_share=share, output_share=share + first)
        return {"encoder": network}
