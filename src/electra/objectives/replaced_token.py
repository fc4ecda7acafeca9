"""ELECTRA: a generator fills masked positions, a discriminator tells which tokens were replaced.

    m      ~ positions, drawn anew at every visit                 masking.py
    x^mask = the text with [MASK] at m
    x̂_m    ~ p_G(. | x^mask)                                      one pass over the logits: loss and sample
    x^cor  = the text with x̂ at m
    loss   = L_MLM(x^mask, G) + λ L_Disc(x^cor, D)                paper, equation 4

No gradient flows from D through the samples. A sample that happens to be the original token is original.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, E embedding size, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoder import Encoder, EncoderConfig, attention_mask
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.kernels import sampled_cross_entropy
from electra.objectives import detection
from electra.objectives.base import Counts, StepOutput, Tower, TowerName
from electra.objectives.config import GeneratorConfig, ObjectiveConfig
from electra.objectives.masking import Masking, MaskingConfig, candidates, chosen, draw_for, inside, slots, write


class ReplacedToken(nn.Module):
    """Joint training of generator and discriminator."""

    def __init__(
        self,
        model: EncoderConfig,
        generator: GeneratorConfig,
        *,
        config: ObjectiveConfig,
        masking: MaskingConfig,
        special: SpecialTokens,
    ) -> None:
        super().__init__()
        self.config, self.masking, self.special = config, masking, special
        self.discriminator = Encoder(model)
        self.discriminator_head = ReplacedTokenHead(model)
        shape = generator.encoder(model)
        if config.sharing == "all":
            assert shape == model, "a network that plays both roles has one shape"
            self.generator = self.discriminator
        else:
            tables = self.discriminator.embeddings if config.sharing == "embeddings" else None
            self.generator = Encoder(shape, tables=tables, share_norm=config.share_norm)
        self.generator_head = MaskedLanguageModelHead(shape)

    def forward(
        self,
        batch: Batch,
        counts: Counts | None = None,
        *,
        masking: Masking | None = None,
        samples_n: Tensor | None = None,
    ) -> StepOutput:
        """`loss` = generator_loss + λ discriminator_loss; both parts are means over their positions.

        Args:
            masking, samples_n: what was drawn elsewhere, in place of what would be drawn here.
        """
        counts = counts or self.counts(batch)
        random = torch.Generator(batch.input_ids_BL.device).manual_seed(batch.seed)
        mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
        masking = masking or self.draw(batch, random)
        uniforms_n = torch.rand(masking.used_BN.numel(), generator=random, device=batch.input_ids_BL.device)

        generator_loss, drawn_n = self._generate(batch, masking, mask_BL, uniforms_n)
        generator_loss = generator_loss / counts["generator"]
        if samples_n is None:
            samples_n = drawn_n
            if self.training and not self.config.sampling_dropout:
                samples_n = self._sample_without_dropout(batch, masking, mask_BL, uniforms_n)

        corrupted_BL = self._corrupt(batch.input_ids_BL, masking, samples_n)
        replaced_BL = corrupted_BL != batch.input_ids_BL
        logits_BL = self.discriminate(corrupted_BL, batch.segment_ids_BL, mask_BL)
        asked_BL = self._asked(batch)
        cross_entropy_BL = F.binary_cross_entropy_with_logits(
            logits_BL.float(), replaced_BL.float(), reduction="none"
        )
        discriminator_loss = (cross_entropy_BL * asked_BL).sum() / counts["discriminator"]

        config = self.config
        loss = config.generator_weight * generator_loss + config.discriminator_weight * discriminator_loss
        parts = {
            "generator_loss": generator_loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            "replaced_share": replaced_BL.sum() / counts["discriminator"],
        }
        seen = {"corrupted_ids": corrupted_BL, "replaced": replaced_BL, "logits": logits_BL.detach()}
        return StepOutput(loss, parts, seen)

    def counts(self, batch: Batch) -> Counts:
        """Chosen positions for the generator; positions that it is asked about for the discriminator."""
        text_BL = candidates(batch.input_ids_BL, self.special)
        chosen_B = chosen(text_BL, batch.lengths_B, self.masking)
        asked = batch.lengths_B.sum() if self.config.discriminator_positions == "all" else text_BL.sum()
        return {"generator": chosen_B.sum().clamp(min=1), "discriminator": asked.clamp(min=1)}

    def discriminate(self, ids_BL: Tensor, segment_ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        """Logits (B, L) of each token having been replaced."""
        return self.discriminator_head(self.discriminator(ids_BL, segment_ids_BL, mask_BL))

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out figures of both networks (docs/concepts.md says what each one means)."""
        generator, fakes, unigram = detection.GeneratorFigures(), detection.Detection(), detection.Detection()
        training = self.training
        self.eval()
        for batch, unigram_batch in batches:
            random = torch.Generator(batch.input_ids_BL.device).manual_seed(batch.seed)
            text_BL = candidates(batch.input_ids_BL, self.special)
            mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
            masking = self.draw(batch, random)
            x_ND = self._at_slots(masking, batch.segment_ids_BL, mask_BL).flatten(0, 1)
            uniforms_N = torch.rand(len(x_ND), generator=random, device=x_ND.device)
            samples_N = generator.add(
                self.generator_head(x_ND),
                self.generator.embeddings.token.weight,
                self.generator_head.bias,
                targets_N=masking.at(batch.input_ids_BL),
                masked_N=masking.masked_BN.flatten(),
                uniforms_N=uniforms_N,
                temperature=self.config.temperature,
                disallow_targets=self.config.disallow_correct,
            )
            corrupted_BL = self._corrupt(batch.input_ids_BL, masking, samples_N)
            for figures, ids_BL in ((fakes, corrupted_BL), (unigram, unigram_batch.input_ids_BL)):
                logits_BL = self.discriminate(ids_BL, batch.segment_ids_BL, mask_BL)
                figures.add(logits_BL[text_BL], (ids_BL != batch.input_ids_BL)[text_BL])
        self.train(training)
        return generator.figures() | fakes.figures() | {"eval/unigram_auc": unigram.auc()}

    def towers(self) -> dict[TowerName, Tower]:
        return {
            "discriminator": Tower(self.discriminator, self.discriminator_head),
            "generator": Tower(self.generator, self.generator_head),
        }

    def output_biases(self) -> list[nn.Parameter]:
        return [self.generator_head.bias]

    def networks(self, length: int) -> Networks:
        share = slots(length, self.masking.share) / length
        generator = Network.of(self.generator.config, masked_share=share, wanted_share=share)
        networks = {
            "generator": generator,
            "discriminator": Network.of(self.discriminator.config, head="replaced-token"),
        }
        if not self.config.sampling_dropout:
            networks["generator, to draw samples"] = replace(generator, trained=False)
        return networks

    def draw(self, batch: Batch, random: torch.Generator) -> Masking:
        """Choose positions and put [MASK] there."""
        return draw_for(batch, self.masking, self.special, random)

    def _generate(
        self, batch: Batch, masking: Masking, mask_BL: Tensor | None, uniforms_n: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The sum of the generator's losses at the used slots, and a sample at every slot."""
        x_BND = self._at_slots(masking, batch.segment_ids_BL, mask_BL)
        return sampled_cross_entropy(
            self.generator_head(x_BND.flatten(0, 1)),
            self.generator.embeddings.token.weight,
            self.generator_head.bias,
            masking.at(batch.input_ids_BL),
            masking.used_BN.flatten().float(),
            uniforms_n,
            temperature=self.config.temperature,
            disallow_targets=self.config.disallow_correct,
        )

    @torch.no_grad()
    def _sample_without_dropout(
        self, batch: Batch, masking: Masking, mask_BL: Tensor | None, uniforms_n: Tensor
    ) -> Tensor:
        self.generator.eval()
        _, samples_n = self._generate(batch, masking, mask_BL, uniforms_n)
        self.generator.train()
        return samples_n

    def _corrupt(self, ids_BL: Tensor, masking: Masking, samples_n: Tensor) -> Tensor:
        if not self.config.sample_unmasked:
            masking = replace(masking, used_BN=masking.masked_BN)
        return write(ids_BL, samples_n, masking, self.masking)

    def _asked(self, batch: Batch) -> Tensor:
        """Where the discriminator's loss counts (B, L)."""
        everywhere = self.config.discriminator_positions == "all"
        return inside(batch) if everywhere else candidates(batch.input_ids_BL, self.special)

    def _at_slots(self, masking: Masking, segment_ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        """The generator's states (B, N, D) at the slots, which are all that its head reads."""
        ids_BL, positions_BN = masking.input_ids_BL, masking.positions_BN
        x_BND: Tensor = self.generator(ids_BL, segment_ids_BL, mask_BL, positions_BN=positions_BN)
        return x_BND
