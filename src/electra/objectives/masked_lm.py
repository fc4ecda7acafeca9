"""BERT's objective with ELECTRA's masking: one network predicts the chosen tokens (Devlin et al. 2019).

    loss = L_MLM(x^mask, G)

There is no discriminator; the masks are those of masking.py, so a chosen position shows [MASK] or its own token,
never another word.

Shapes: B batch, L length, N slots a row, D hidden size, V vocabulary.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoder import Encoder, EncoderConfig, attention_mask
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels import sampled_cross_entropy
from electra.objectives import detection
from electra.objectives.base import Counts, StepOutput, Tower, TowerName
from electra.objectives.masking import Masking, MaskingConfig, candidates, chosen, draw_for, slots


class MaskedLanguageModel(nn.Module):
    """One encoder of the discriminator's shape that learns to fill masks."""

    def __init__(
        self, model: EncoderConfig, *, weight: float, masking: MaskingConfig, special: SpecialTokens
    ) -> None:
        super().__init__()
        self.weight, self.masking, self.special = weight, masking, special
        self.encoder = Encoder(model)
        # As transformers' Bert classes have it, and for embeddings of another width its Electra classes.
        self.head = MaskedLanguageModelHead(model, activation=model.activation if model.square else "gelu")

    def forward(self, batch: Batch, counts: Counts | None = None, *, masking: Masking | None = None) -> StepOutput:
        """`loss` = generator_loss, the mean over the chosen positions (under this name in every objective)."""
        counts = counts or self.counts(batch)
        random = torch.Generator(batch.input_ids_BL.device).manual_seed(batch.seed)
        masking = masking or self.draw(batch, random)
        used_n = masking.used_BN.flatten().float()
        negative_log_likelihood, _ = sampled_cross_entropy(
            self.head(self.states(batch, masking).flatten(0, 1)),
            self.encoder.embeddings.token.weight,
            self.head.bias,
            masking.at(batch.input_ids_BL),
            used_n,
            torch.zeros_like(used_n),
        )
        generator_loss = negative_log_likelihood / counts["generator"]
        return StepOutput(self.weight * generator_loss, {"generator_loss": generator_loss.detach()})

    def counts(self, batch: Batch) -> Counts:
        """The chosen positions."""
        text_BL = candidates(batch.input_ids_BL, self.special)
        return {"generator": chosen(text_BL, batch.lengths_B, self.masking).sum().clamp(min=1)}

    def draw(self, batch: Batch, random: torch.Generator) -> Masking:
        """Choose positions and put [MASK] there."""
        return draw_for(batch, self.masking, self.special, random)

    def states(self, batch: Batch, masking: Masking) -> Tensor:
        """The encoder's states (B, N, D) at the slots."""
        mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
        x_BND: Tensor = self.encoder(
            masking.input_ids_BL, batch.segment_ids_BL, mask_BL, positions_BN=masking.positions_BN
        )
        return x_BND

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """The generator's held-out figures (docs/concepts.md)."""
        figures = detection.GeneratorFigures()
        training = self.training
        self.eval()
        for batch, _ in batches:
            random = torch.Generator(batch.input_ids_BL.device).manual_seed(batch.seed)
            masking = self.draw(batch, random)
            figures.add(
                self.head(self.states(batch, masking).flatten(0, 1)),
                self.encoder.embeddings.token.weight,
                self.head.bias,
                targets_N=masking.at(batch.input_ids_BL),
                masked_N=masking.masked_BN.flatten(),
                uniforms_N=torch.rand(masking.used_BN.numel(), generator=random, device=batch.input_ids_BL.device),
                temperature=1.0,
            )
        self.train(training)
        return figures.figures()

    def towers(self) -> dict[TowerName, Tower]:
        return {"encoder": Tower(self.encoder, self.head)}

    def output_biases(self) -> list[nn.Parameter]:
        return [self.head.bias]

    def networks(self, length: int) -> Networks:
        share = slots(length, self.masking.share) / length
        return {"encoder": Network.of(self.encoder.config, masked_share=share, wanted_share=share)}
