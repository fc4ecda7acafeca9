"""ELECTRA: a generator fills masked positions, a discriminator tells which tokens were replaced.

    m      ~ positions, drawn anew at every visit                 masking.py
    x^mask = the text with [MASK] at m
    x̂_m    ~ p_G(. | x^mask)                                      one pass over the logits: loss and sample
    x^cor  = the text with x̂ at m
    loss   = L_MLM(x^mask, G) + λ L_Disc(x^cor, D)                paper, equation 4

No gradient flows from D through the samples. A sample that happens to be the original token is original.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, E embedding size, V vocabulary.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoder import Encoder, EncoderConfig, attention_mask
from electra.modeling.flops import encoder_flops, masked_language_model_flops, replaced_token_flops
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.kernels import sampled_cross_entropy
from electra.objectives import detection
from electra.objectives.base import Counts, StepOutput, Tower, TowerName
from electra.objectives.masking import Masking, MaskingConfig, candidates, draw, slots


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator's shape, where it differs from the discriminator's (paper, section 3.2)."""

    hidden_size: int = 64
    """Width of the states; a quarter to a half of the discriminator's works best."""
    layers: int = 0
    """Transformer blocks; 0: as many as the discriminator."""
    feed_forward_size: int = 0
    """Inner width of the feed-forward layers; 0: 4 × hidden_size."""
    heads: int = 0
    """Attention heads; 0: one for every 64 of hidden_size, at least one."""

    def encoder(self, discriminator: EncoderConfig) -> EncoderConfig:
        """The generator's full shape beside a discriminator's; everything not named here is the same."""
        return replace(
            discriminator,
            hidden_size=self.hidden_size,
            layers=self.layers or discriminator.layers,
            feed_forward_size=self.feed_forward_size or 4 * self.hidden_size,
            heads=self.heads or max(1, self.hidden_size // 64),
        )

    def problems(self) -> Iterator[str]:
        for name in ("layers", "feed_forward_size", "heads"):
            if getattr(self, name) < 0:
                yield f"{name}: must not be negative, got {getattr(self, name)}"
        if self.hidden_size < 1:
            yield f"hidden_size: must be at least 1, got {self.hidden_size}"
        elif self.hidden_size % (self.heads or max(1, self.hidden_size // 64)):
            yield f"heads: cannot share a hidden_size of {self.hidden_size} evenly"


@dataclass(frozen=True)
class ReplacedTokenConfig:
    """How generator and discriminator are trained together."""

    discriminator_weight: float = 50.0
    """λ, the weight of the discriminator's loss (paper, equation 4)."""
    temperature: float = 1.0
    """The generator's logits are divided by it before a token is drawn."""
    sharing: Literal["none", "embeddings", "all"] = "embeddings"
    """What the two networks have in common: nothing, the three embedding tables, or the whole encoder."""

    def problems(self) -> Iterator[str]:
        if not self.temperature > 0:
            yield f"temperature: must be above 0, got {self.temperature}"
        if not self.discriminator_weight >= 0:
            yield f"discriminator_weight: must not be negative, got {self.discriminator_weight}"


class ReplacedToken(nn.Module):
    """Joint training of generator and discriminator."""

    def __init__(
        self,
        model: EncoderConfig,
        generator: GeneratorConfig,
        *,
        config: ReplacedTokenConfig,
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
            self.generator = Encoder(shape, tables=tables)
        self.generator_head = MaskedLanguageModelHead(shape)

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        """`loss` = generator_loss + λ discriminator_loss; both parts are means over their positions."""
        counts = counts or self.counts(batch)
        random = torch.Generator(batch.input_ids_BL.device).manual_seed(batch.seed)
        text_BL = candidates(batch.input_ids_BL, self.special)
        mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
        masking = self._draw(batch.input_ids_BL, text_BL, random)

        x_BND = self._at_slots(masking, batch.segment_ids_BL, mask_BL)
        uniforms_n = torch.rand(masking.used_BN.numel(), generator=random, device=x_BND.device)
        negative_log_likelihood, samples_n = sampled_cross_entropy(
            self.generator_head(x_BND.flatten(0, 1)),
            self.generator.embeddings.token.weight,
            self.generator_head.bias,
            masking.at(batch.input_ids_BL),
            masking.used_BN.flatten().float(),
            uniforms_n,
            temperature=self.config.temperature,
        )
        generator_loss = negative_log_likelihood / counts["generator"]

        corrupted_BL = corrupt(batch.input_ids_BL, masking, samples_n)
        replaced_BL = corrupted_BL != batch.input_ids_BL
        logits_BL = self.discriminate(corrupted_BL, batch.segment_ids_BL, mask_BL)
        cross_entropy_BL = F.binary_cross_entropy_with_logits(
            logits_BL.float(), replaced_BL.float(), reduction="none"
        )
        discriminator_loss = (cross_entropy_BL * text_BL).sum() / counts["discriminator"]

        parts = {
            "generator_loss": generator_loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            "replaced_share": replaced_BL.sum() / counts["discriminator"],
        }
        return StepOutput(generator_loss + self.config.discriminator_weight * discriminator_loss, parts)

    def counts(self, batch: Batch) -> Counts:
        """Chosen positions for the generator; tokens of text for the discriminator (at least 1 each)."""
        text_B = candidates(batch.input_ids_BL, self.special).sum(1)
        N = slots(batch.input_ids_BL.shape[1], self.masking.share)
        chosen_B = torch.minimum((text_B * self.masking.share).round().long().clamp(1, N), text_B)
        return {"generator": chosen_B.sum().clamp(min=1), "discriminator": text_B.sum().clamp(min=1)}

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
            masking = self._draw(batch.input_ids_BL, text_BL, random)
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
            )
            corrupted_BL = corrupt(batch.input_ids_BL, masking, samples_N)
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

    def flops_per_token(self, length: int) -> float:
        chosen = slots(length, self.masking.share) / length
        generator, discriminator = self.generator.config, self.discriminator.config
        forward = (
            encoder_flops(generator, length, wanted=chosen)
            + chosen * masked_language_model_flops(generator)
            + encoder_flops(discriminator, length)
            + replaced_token_flops(discriminator)
        )
        return 3.0 * forward

    def _at_slots(self, masking: Masking, segment_ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        """The generator's states (B, N, D) at the slots, which are all that its head reads."""
        ids_BL, positions_BN = masking.input_ids_BL, masking.positions_BN
        x_BND: Tensor = self.generator(ids_BL, segment_ids_BL, mask_BL, positions_BN=positions_BN)
        return x_BND

    def _draw(self, input_ids_BL: Tensor, text_BL: Tensor, random: torch.Generator) -> Masking:
        return draw(input_ids_BL, text_BL, self.masking, mask_id=self.special.mask, generator=random)


def corrupt(input_ids_BL: Tensor, masking: Masking, samples_n: Tensor) -> Tensor:
    """The text with the samples at the used slots (positions of a row are distinct, so none is lost)."""
    original_BN = input_ids_BL.gather(1, masking.positions_BN)
    new_BN = torch.where(masking.used_BN, samples_n.view_as(original_BN), original_BN)
    return input_ids_BL.scatter(1, masking.positions_BN, new_BN)
