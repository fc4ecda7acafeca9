"""Electric: an energy-based cloze model, trained by noise-contrastive estimation (Clark et al., EMNLP 2020).

    q(x_t | x_\\t) = softmax of a head on [left tower at t − 1 ; right tower at t + 1]      the noise distribution
    x̂_m           ~ q at the chosen positions
    x^noise        = the text with x̂ at m
    z_t            = E(x^noise)_t + log q(x^noise_t | x_\\t) + log(k / (1 − k))             k the masking share
    label_t        = [t was sampled], also where the sample is the original token
    loss           = L_cloze + λ L_noise

The two towers have the generator's size and read the original text: the left tower only the tokens before a
position, the right tower only the tokens after it. No gradient flows through log q. The discriminator's logit E is
an energy: −E(x)_t approximates log p(x_t | all other tokens), for every token in one pass, without the towers.

Shapes: B batch, L length, N slots a row, D hidden size, E embedding size, V vocabulary.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.config import NonNegativeFloat, NonNegativeInt, PositiveFloat
from electra.data.collate import Batch
from electra.modeling.encoders.base import Capability, EncoderConfig, EncoderModule
from electra.modeling.encoders.states import compute_states
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.kernels.attention import MASKED_SCORE
from electra.modeling.kernels.cross_entropy import (
    Sampling,
    cross_entropy,
    log_probabilities,
    sampled_cross_entropy,
)
from electra.modeling.kernels.documents import AttentionMask, DocumentMask
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import (
    ObjectiveConfig,
    ObjectiveParts,
)
from electra.objectives.description import ModelDescription
from electra.objectives.masking import (
    Masking,
    attention_mask_of,
    draw_masks,
    max_predictions,
    non_padding,
    replace_tokens,
    text_mask,
)
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metrics import DetectionMetrics, MaskedLanguageModelMetrics
from electra.objectives.row_rng import Purpose, uniforms


@dataclass(frozen=True)
class ElectricConfig(ObjectiveConfig):
    """Electric (Clark et al. 2020): an energy-based cloze model."""

    kind: str = "electric"
    discriminator_weight: NonNegativeFloat = 50.0
    """The weight of the discriminator's loss."""
    generator_weight: NonNegativeFloat = 1.0
    """The weight of the cloze model's loss."""
    temperature: PositiveFloat = 1.0
    """The cloze model's logits are divided by it before a token is sampled."""
    top_k: NonNegativeInt = 0
    """Sample from the K most likely tokens only. 0: from all."""
    disallow_correct: bool = False
    """Never sample the original token."""
    sharing: Literal["none", "embeddings"] = "embeddings"
    """What discriminator and cloze model share: nothing, or the three embedding tables."""
    share_norm: bool = False
    """Share the LayerNorm of the embeddings together with the tables."""
    discriminator_positions: Literal["text", "all"] = "text"
    """Positions of the discriminator's loss. text: all tokens except special ones. all: also [CLS] and [SEP]."""

    encoder_needs: ClassVar[frozenset[Capability]] = frozenset({"bidirectional", "pair-mask", "shared-tables"})
    scores: ClassVar[Literal["log-odds", "energy"]] = "energy"

    @property
    def has_generator(self) -> bool:
        return True

    def build(self, parts: ObjectiveParts) -> Objective:
        return Electric(parts, self)

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        return ModelDescription(
            title="Electric",
            text=(
                "An energy-based cloze model (Electric, "
                "[Clark et al., EMNLP 2020](https://arxiv.org/abs/2012.08561)): its one logit per\n"
                "token is an energy. The negative energy approximates the log-probability of the token, given all "
                "others. The sum over a\ntext is its pseudo-log-likelihood, in one pass. The cloze model that was "
                "trained with it has two towers and no class in\ntransformers; only the run's checkpoints have it."
            ),
            generator="each tower of the cloze model",
            uses=(
                "To judge words and texts by how likely they are: rescoring the output of speech recognition or "
                "translation.",
            ),
            limits=(
                "Its energies were learned from the samples of one cloze model. As log-probabilities they are\n"
                "  approximate, and they do not add up to 1 over the vocabulary.",
            ),
        )

    def problems(self) -> Iterator[str]:
        if self.share_norm and self.sharing != "embeddings":
            yield "share_norm: needs objective.sharing embeddings"


class Electric(Objective):
    """Joint training of the two-tower cloze model and the energy network."""

    def __init__(self, parts: ObjectiveParts, config: ElectricConfig) -> None:
        super().__init__()
        self.config, self.masking, self.vocabulary = config, parts.masking, parts.vocabulary
        self.sampling = Sampling(
            config.temperature, config.disallow_correct, config.top_k, parts.vocabulary.sampled_entries
        )
        self.encoder = parts.model.build()
        self.head = ReplacedTokenHead(parts.model)
        shape = parts.generator.encoder(parts.model)
        self.left, self.right = self._build_tower(shape), self._build_tower(shape)
        self.cloze_head = MaskedLanguageModelHead(replace(shape, hidden_size=2 * shape.hidden_size))

    def _build_tower(self, shape: EncoderConfig) -> EncoderModule:
        """Build one of the two towers of the cloze model, which may share the discriminator's tables."""
        if self.config.sharing == "none":
            return shape.build()
        return shape.build_sharing(self.encoder.embeddings, share_norm=self.config.share_norm)

    def forward(
        self,
        batch: Batch,
        counts: Counts | None = None,
        *,
        masking: Masking | None = None,
        samples_n: Tensor | None = None,
    ) -> StepOutput:
        """`loss` = generator_loss + λ discriminator_loss.

        Args:
            masking, samples_n: fixed masks and samples; None: they are drawn here.
        """
        counts = counts or self.counts(batch)
        ids_BL = batch.input_ids_BL
        masking = masking or self.draw_masks(batch)
        uniforms_n = _uniforms(batch, masking)

        mask = attention_mask_of(batch)
        hidden_BLE = self.cloze(batch, mask)
        table_VE, bias_V = self.left.embeddings.token.weight, self.cloze_head.bias
        text_BL = self._text_mask(ids_BL)
        negative_log_likelihood = cross_entropy(
            hidden_BLE.flatten(0, 1), table_VE, bias_V, ids_BL.flatten(), text_BL.flatten().float()
        )
        generator_loss = negative_log_likelihood / counts["generator"]
        if samples_n is None:
            samples_n = self._sample(masking, hidden_BLE, ids_BL, uniforms_n)

        corrupted_BL = replace_tokens(ids_BL, samples_n, masking, self.masking)
        sampled_BL = torch.zeros_like(ids_BL).scatter_add_(1, masking.positions_BN, masking.used_BN.long()) > 0
        energies_BL = self.energies(corrupted_BL, batch, mask)
        logits_BL = energies_BL.float() + self._noise_log_odds(corrupted_BL, hidden_BLE)
        cross_entropy_BL = F.binary_cross_entropy_with_logits(logits_BL, sampled_BL.float(), reduction="none")
        discriminator_loss = (cross_entropy_BL * self._loss_mask(batch)).sum() / counts["discriminator"]

        config = self.config
        loss = config.generator_weight * generator_loss + config.discriminator_weight * discriminator_loss
        parts = {
            "generator_loss": generator_loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            "replaced_share": (corrupted_BL != ids_BL).sum() / counts["discriminator"],
        }
        debug = {"corrupted_ids": corrupted_BL, "replaced": sampled_BL, "logits": logits_BL.detach()}
        return StepOutput(loss, parts, debug)

    def counts(self, batch: Batch) -> Counts:
        """Number of positions: all tokens of text for the cloze model, and those of the discriminator's loss."""
        text = self._text_mask(batch.input_ids_BL).sum().clamp(min=1)
        return {"generator": text, "discriminator": self._loss_mask(batch).sum().clamp(min=1)}

    def draw_masks(self, batch: Batch) -> Masking:
        """Choose positions. Nothing is replaced by [MASK]: the towers cannot see the token that they predict."""
        masking = draw_masks(batch, self.masking, self.vocabulary)
        return replace(masking, masked_BN=masking.used_BN, input_ids_BL=batch.input_ids_BL)

    def cloze(self, batch: Batch, mask: AttentionMask) -> Tensor:
        """The output of the cloze head for both towers at every position (B, L, E).

        The first and last tokens of a row or document have no neighbor on one side; a state of its other end takes
        the place, without a meaning.
        """
        ids_BL, segments_BL = batch.input_ids_BL, batch.segment_ids_BL
        if isinstance(mask, DocumentMask):
            left_BLD = compute_states(self.left, ids_BL, segments_BL, replace(mask, direction="left"))
            right_BLD = compute_states(self.right, ids_BL, segments_BL, replace(mask, direction="right"))
            return self._join_towers(mask.roll(left_BLD, 1), mask.roll(right_BLD, -1))
        L = ids_BL.shape[1]
        causal_LL = torch.ones(L, L, dtype=torch.bool, device=ids_BL.device).tril()
        is_token_B1L = non_padding(batch)[:, None]
        left_BLD = self.left(ids_BL, segments_BL, _attention_bias(causal_LL & is_token_B1L))
        right_BLD = self.right(ids_BL, segments_BL, _attention_bias(causal_LL.T & is_token_B1L))
        return self._join_towers(left_BLD.roll(1, 1), right_BLD.roll(-1, 1))

    def _join_towers(self, before_BLD: Tensor, after_BLD: Tensor) -> Tensor:
        """Return the output of the cloze head for the states before and after each position."""
        hidden_BLE: Tensor = self.cloze_head(torch.cat([before_BLD, after_BLD], dim=-1))
        return hidden_BLE

    def energies(self, ids_BL: Tensor, batch: Batch, mask: AttentionMask) -> Tensor:
        """The discriminator's energies (B, L)."""
        states_BLD = compute_states(self.encoder, ids_BL, batch.segment_ids_BL, mask)
        energies_BL: Tensor = self.head(states_BLD)
        return energies_BL

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out metrics of both networks; a token counts as replaced if it differs from the original one."""
        cloze, samples, unigram = MaskedLanguageModelMetrics(), DetectionMetrics(), DetectionMetrics()
        with evaluation_mode(self):
            for batch, unigram_batch in batches:
                ids_BL = batch.input_ids_BL
                text_BL, masking = self._text_mask(ids_BL), self.draw_masks(batch)
                mask = attention_mask_of(batch)
                hidden_BLE = self.cloze(batch, mask)
                samples_N = cloze.add(
                    masking.gather(hidden_BLE),
                    self.left.embeddings.token.weight,
                    self.cloze_head.bias,
                    targets_N=masking.gather(ids_BL),
                    masked_N=masking.used_BN.flatten(),
                    uniforms_N=_uniforms(batch, masking),
                    sampling=self.sampling,
                )
                corrupted_BL = replace_tokens(ids_BL, samples_N, masking, self.masking)
                z_BL = self.energies(corrupted_BL, batch, mask) + self._noise_log_odds(corrupted_BL, hidden_BLE)
                samples.add(z_BL[text_BL], (corrupted_BL != ids_BL)[text_BL])
                # With the energy only, because the exported network has no log q.
                unigram_BL = unigram_batch.input_ids_BL
                unigram.add(self.energies(unigram_BL, batch, mask)[text_BL], (unigram_BL != ids_BL)[text_BL])
        return cloze.compute() | samples.compute() | {"eval/unigram_auc": unigram.auc()}

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        return {"discriminator": ExportableNetwork(self.encoder, self.head)}

    def output_biases(self) -> list[nn.Parameter]:
        return [self.cloze_head.bias]

    def networks(self, length: int) -> Networks:
        tower = Network.from_config(self.left.config, head="none")
        head = replace(tower, layers=0, hidden_size=2 * tower.hidden_size, head="language-model")
        logits = replace(head, hidden_size=0, trained=False)  # computed again from the same states
        share = max_predictions(length, self.masking.share) / length
        return {
            "left tower": tower,
            "right tower": tower,
            "cloze head": head,
            "cloze logits, for samples": replace(logits, head="masked-lm", masked_share=share),
            "cloze logits, for log q": logits,
            "discriminator": Network.from_config(self.encoder.config, head="replaced-token"),
        }

    def _sample(self, masking: Masking, hidden_BLE: Tensor, ids_BL: Tensor, uniforms_n: Tensor) -> Tensor:
        _, samples_n = sampled_cross_entropy(
            masking.gather(hidden_BLE).detach(),
            self.left.embeddings.token.weight.detach(),
            self.cloze_head.bias.detach(),
            masking.gather(ids_BL),
            masking.used_BN.flatten().float(),
            uniforms_n,
            sampling=self.sampling,
        )
        return samples_n

    def _noise_log_odds(self, ids_BL: Tensor, hidden_BLE: Tensor) -> Tensor:
        """log q of these tokens plus the log-odds of being sampled (B, L), without a gradient."""
        table_VE, bias_V = self.left.embeddings.token.weight, self.cloze_head.bias
        log_q_n = log_probabilities(hidden_BLE.flatten(0, 1), table_VE, bias_V, ids_BL.flatten())
        share = self.masking.share
        return log_q_n.view_as(ids_BL) + math.log(share / (1 - share))

    def _text_mask(self, ids_BL: Tensor) -> Tensor:
        return text_mask(ids_BL, self.vocabulary.special)

    def _loss_mask(self, batch: Batch) -> Tensor:
        """True at the positions of the discriminator's loss (B, L)."""
        everywhere = self.config.discriminator_positions == "all"
        return non_padding(batch) if everywhere else self._text_mask(batch.input_ids_BL)


def _uniforms(batch: Batch, masking: Masking) -> Tensor:
    """Uniform random numbers that the samples are drawn with (B × N)."""
    return uniforms(batch.row_seeds, Purpose.SAMPLES, masking.positions_BN.shape[1]).flatten()


def _attention_bias(visible_BLL: Tensor) -> Tensor:
    """An additive attention mask (B, L, L) from a boolean one."""
    return torch.where(visible_BLL, 0.0, MASKED_SCORE)
