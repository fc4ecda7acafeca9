"""Adversarial training: the generator is trained to fool the discriminator (paper, section 3.2 and appendix F).

REINFORCE: the reward of a sample is the discriminator's loss at its position,

    loss_G = -Σ_m (R_t - b_t) log p_G(x̂_t | x^mask)          R_t = L_Disc at t
    b_t = -log sigmoid(w · h_G(x^mask)_t)                     the baseline; the sigmoid is trained to predict
                                                              exp(-R_t), D's probability of the true class

so G samples tokens that D misclassifies more often. Gumbel: samples are soft,

    y_t = softmax((logits_t + noise_t) / temperature),         D reads Σ_v y_tv e_v instead of one embedding,

and the gradient of D's loss flows through y into G with reversed sign. Straight-through: D reads the embedding of
the largest entry, with the gradient of the soft sample.

With `anneal`, the generator starts with maximum likelihood, and the share α of the adversarial loss grows:
loss_G = (1 - α) L_MLM + α loss_adversarial.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, E embedding size, V vocabulary.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.modeling.encoders.base import Capability, EncoderConfig, gather_positions
from electra.modeling.encoders.states import compute_states
from electra.modeling.flops import Network, Networks
from electra.modeling.init import initialize
from electra.modeling.kernels.cross_entropy import cross_entropy
from electra.modeling.kernels.documents import AttentionMask
from electra.objectives.base import Counts, Objective, StepOutput
from electra.objectives.config import ObjectiveParts, Sections
from electra.objectives.generator_objective import (
    CorruptedBatch,
    generator_source_problem,
)
from electra.objectives.masking import Masking, max_predictions, replaced_labels
from electra.objectives.replaced_token import ReplacedToken, ReplacedTokenConfig
from electra.objectives.row_rng import Purpose, uniforms


@dataclass(frozen=True)
class AdversarialConfig(ReplacedTokenConfig):
    """A generator that is trained to fool the discriminator."""

    kind: str = "adversarial"
    adversary: Literal["reinforce", "gumbel", "gumbel-straight"] = "reinforce"
    """How the generator learns from the discriminator. reinforce: by the reward of its samples minus a learned
    baseline (paper, appendix F). gumbel: through soft samples, which are mixtures of embeddings. gumbel-straight:
    through hard samples, with the gradient of soft ones."""
    anneal: Literal["none", "linear", "cosine"] = "none"
    """Schedule from maximum likelihood to the adversarial loss over the run. none: the adversarial loss from the
    start."""

    carries_memory: ClassVar[bool] = False
    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **ReplacedTokenConfig.not_ignored, "adversary": (), "anneal": (),
    }  # fmt: skip

    @property
    def encoder_capabilities(self) -> frozenset[Capability]:
        soft: tuple[Capability, ...] = () if self.adversary == "reinforce" else ("input-embeddings",)
        return self.encoder_needs.union(soft)

    def build(self, parts: ObjectiveParts) -> Objective:
        return Adversarial(parts, self)

    def problems(self) -> Iterator[str]:
        yield from (one for one in super().problems() if not one.startswith("keep_masked_share"))
        if self.keep_masked_share:
            yield "keep_masked_share: is not possible with adversarial; set it to 0"
        yield from generator_source_problem(self)
        if self.adversary != "reinforce" and self.sentence_loss != "none":
            yield "sentence_loss: its gradient would reach the generator through soft samples; use reinforce"
        for name in ("correction_weight", "correction_negatives", "frequency_share"):
            if getattr(self, name):
                yield f"{name}: has no effect on adversarial; set it to 0"
        required: dict[str, float] = {
            "sampling_dropout": True, "sample_unmasked": True, "top_k": 0, "disallow_correct": False,
        }  # fmt: skip
        if self.adversary == "reinforce":
            required |= {"temperature": 1.0, "final_temperature": 0.0}
        for name, value in required.items():
            if getattr(self, name) != value:
                yield f"{name}: the generator of adversarial learns from unmodified samples; set it to {value}"
        if self.sharing == "all":
            yield "sharing: with all, one network would be trained to fool itself; set it to embeddings"

    def problems_with(self, sections: Sections) -> Iterator[str]:
        yield from super().problems_with(sections)
        if sections.masking.replacement:
            yield "masking.replacement: must be false for adversarial, where every sample has a reward"


class Adversarial(ReplacedToken):
    """A discriminator, and a generator whose reward is the discriminator's loss."""

    config: AdversarialConfig

    def add_heads(self, model: EncoderConfig) -> None:
        super().add_heads(model)
        assert self.generator is not None
        shape = self.generator.encoder.config
        self.adversarial_share = float(self.config.anneal == "none")
        if self.config.adversary == "reinforce":
            self.baseline = nn.Linear(shape.hidden_size, 1)
            initialize(self.baseline, shape.initializer_range, linear_range=shape.linear_initializer_range)

    def begin_step(self, step: int, steps: int | None) -> None:
        """Set the share of the adversarial loss in this step."""
        super().begin_step(step, steps)
        done = min(1.0, step / steps) if steps else 0.0
        match self.config.anneal:
            case "linear":
                self.adversarial_share = done
            case "cosine":
                self.adversarial_share = (1 - math.cos(math.pi * done)) / 2

    def forward(  # type: ignore[override]
        self, batch: Batch, counts: Counts | None = None, *, masking: Masking | None = None
    ) -> StepOutput:
        """`loss` = (1 - α) generator_loss + α adversarial_loss + λ discriminator_loss + baseline_loss."""
        assert self.generator is not None
        masking = masking or self.draw_masks(batch)
        counts = counts or self.counts(batch, masking)
        mask = self.attention_mask(batch)
        x_nD = self.generator.states(batch, masking, mask)
        share = self.adversarial_share
        with torch.set_grad_enabled(torch.is_grad_enabled() and share < 1):  # at 1 it is only a metric
            likelihood, samples_n = self.generator.predict(
                x_nD, batch, masking, self.sampling_uniforms(batch, masking)
            )
        if self.config.adversary == "reinforce":
            corrupted = CorruptedBatch(
                self.replace_tokens(batch, masking, samples_n), masking, mask, (1 - share) * likelihood
            )
            x_BLD = compute_states(self.encoder, corrupted.ids_BL, batch.segment_ids_BL, mask)
            logits_BL = self.head(x_BLD)
            output = self.output(batch, corrupted, logits_BL, counts)
            more, parts = self._reinforce_losses(batch, corrupted, logits_BL, x_nD, samples_n)
            loss = output.loss + self.config.generator_weight * more / counts["generator"]
            parts = {name: value / counts["generator"] for name, value in parts.items()}
        else:
            corrupted, x_BLD = self._corrupt_softly(batch, masking, mask, x_nD, (1 - share) * likelihood, counts)
            output = self.output(batch, corrupted, self.head(x_BLD), counts)
            loss, parts = output.loss, {}
        parts = {**output.parts, "generator_loss": likelihood.detach() / counts["generator"], **parts}
        return self.add_sentence_loss(StepOutput(loss, parts, output.debug), x_BLD[:, 0], batch, counts)

    def networks(self, length: int) -> Networks:
        assert self.generator is not None
        shape = self.generator.encoder.config
        share = max_predictions(length, self.masking.share) / length
        once_more = Network(
            embedding_size=shape.embedding_size, vocabulary_size=shape.vocabulary_size, masked_share=share
        )
        likelihood = replace(once_more, trained=self.adversarial_share < 1)
        more = {"generator's logits, for the likelihood": likelihood}
        if self.config.adversary != "reinforce":
            more["mixtures of embeddings"] = once_more  # a product of the same size
        return {**super().networks(length), **more}

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """The metrics of any discriminator. The argmax of noisy logits is an ordinary sample at any
        temperature."""
        assert self.generator is not None
        sampling = self.generator.sampling
        if self.config.adversary != "reinforce":
            self.generator.sampling = replace(sampling, temperature=1.0)
        try:
            return super().evaluate(batches)
        finally:
            self.generator.sampling = sampling

    def _reinforce_losses(
        self, batch: Batch, corrupted: CorruptedBatch, logits_BL: Tensor, x_nD: Tensor, samples_n: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the terms to add to the generator's summed loss (α × the REINFORCE loss + the baseline's loss),
        and their sums as metrics."""
        assert self.generator is not None
        used_n = corrupted.masking.used_BN.flatten()
        replaced_BL = replaced_labels(corrupted.ids_BL, batch.input_ids_BL).float()
        losses_BL = F.binary_cross_entropy_with_logits(logits_BL.detach().float(), replaced_BL, reduction="none")
        reward_n = corrupted.masking.gather(losses_BL)
        sure_n = self.baseline(x_nD.detach()).squeeze(-1).float()
        advantage_n = (reward_n - F.softplus(-sure_n.detach())) * used_n
        by_reward = cross_entropy(
            self.generator.head(x_nD), self.generator.table_VE, self.generator.head.bias, samples_n, advantage_n
        )
        losses_n = F.binary_cross_entropy_with_logits(sure_n, (-reward_n).exp(), reduction="none")
        baseline_loss = (losses_n * used_n).sum()
        parts = {
            "reward": (reward_n * used_n).sum(), "adversarial_loss": by_reward.detach(),
            "baseline_loss": baseline_loss.detach(),
        }  # fmt: skip
        return self.adversarial_share * by_reward + baseline_loss, parts

    def _corrupt_softly(
        self, batch: Batch, masking: Masking, mask: AttentionMask, x_nD: Tensor, loss: Tensor, counts: Counts
    ) -> tuple[CorruptedBatch, Tensor]:
        """Return the batch with the argmax of the noisy logits, and the states of D, which reads the soft
        samples."""
        assert self.generator is not None
        N = masking.positions_BN.shape[1]
        V = self.vocabulary.size
        noise_nV = uniforms(batch.row_seeds, Purpose.NOISE, N * V).view(-1, V)
        noise_nV = -(-noise_nV.clamp(min=1e-7).log()).clamp(min=1e-7).log()
        logits_nV = self.generator.head.logits(x_nD, self.generator.table_VE).float() + noise_nV
        if self.vocabulary.sampled_entries:  # the other rows pad the table
            logits_nV[:, self.vocabulary.entries :] = -torch.inf
        soft_nV = (logits_nV / self.generator.sampling.temperature).softmax(-1)
        samples_n = logits_nV.argmax(-1)
        if self.config.adversary == "gumbel-straight":
            soft_nV = F.one_hot(samples_n, V) + soft_nV - soft_nV.detach()
        # Scale the gradient as for REINFORCE: a mean over the chosen positions, with the generator's weight.
        weight = self.config.generator_weight / max(self.config.discriminator_weight, 1e-12)
        scale = self.adversarial_share * weight * counts["discriminator"] / counts["generator"]
        soft_nV = _ReverseGradient.apply(soft_nV, scale)  # type: ignore[no-untyped-call]
        ids_BL = self.replace_tokens(batch, masking, samples_n)
        table_VE = self.encoder.embeddings.token.weight
        mixed_BNE = (soft_nV.to(table_VE.dtype) @ table_VE).view(*masking.positions_BN.shape, -1)
        inputs_embeds_BLE = self.encoder.embeddings.token(ids_BL)
        # Positions are distinct, so adding the difference replaces the embedding by the mixture. At unused slots
        # the difference is 0.
        now_BNE = gather_positions(inputs_embeds_BLE, masking.positions_BN)
        change_BNE = (mixed_BNE.to(now_BNE.dtype) - now_BNE) * masking.used_BN[..., None]
        inputs_embeds_BLE = inputs_embeds_BLE.scatter_add(
            1, masking.positions_BN[..., None].expand_as(change_BNE), change_BNE
        )
        x_BLD = compute_states(
            self.encoder, ids_BL, batch.segment_ids_BL, mask, inputs_embeds_BLE=inputs_embeds_BLE
        )
        return CorruptedBatch(ids_BL, masking, mask, loss), x_BLD


class _ReverseGradient(torch.autograd.Function):
    """The identity; its gradient is multiplied by -scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (scale,) = ctx.saved_tensors
        return -scale * grads[0], None
