"""ELECTRA: a generator fills masked positions, a discriminator predicts which tokens were replaced.

    m      ~ positions, drawn again in every epoch                masking.py
    x^mask = the text with [MASK] at m
    x̂_m    ~ p_G(. | x^mask)                                      one pass over the logits: loss and sample
    x^cor  = the text with x̂ at m
    loss   = L_MLM(x^mask, G) + λ L_Disc(x^cor, D)                paper, equation 4
             + a loss for restoring x_m, if it is set             correction.py

No gradient flows from D through the samples. A sample that is the original token has the label "original".

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.config import NonNegativeFloat, NonNegativeInt, Range
from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import ReplacedTokenHead
from electra.modeling.kernels.documents import AttentionMask
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import ObjectiveParts, Sections
from electra.objectives.correction import Correction
from electra.objectives.description import ELECTRA_PAPER, ModelDescription
from electra.objectives.generator_objective import (
    CorruptedBatch,
    GeneratorObjective,
    GeneratorObjectiveConfig,
)
from electra.objectives.masking import (
    Masking,
    max_predictions,
    non_padding,
    replaced_labels,
    top_positions,
)
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metrics import DetectionMetrics, MaskedLanguageModelMetrics
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.stream_memory import StreamMemory


@dataclass(frozen=True)
class ReplacedTokenConfig(GeneratorObjectiveConfig):
    """ELECTRA: replaced-token detection."""

    kind: str = "replaced-token"
    discriminator_positions: Literal["text", "all", "masked", "random"] = "text"
    """Positions of the discriminator's loss. text: all tokens except special ones. all: also [CLS] and [SEP],
    which are never replaced (as in the original code). masked: the chosen positions only (ELECTRA 15%). random:
    as many positions of text, drawn independently of the masks."""
    correction_weight: NonNegativeFloat = 0.0
    """Weight of a loss for restoring the original tokens at the chosen positions, from the discriminator's states
    (the corrective LM of COCO-LM). It costs as much as the head of a masked language model. 0: none."""
    correction_negatives: NonNegativeInt = 0
    """Compare the original token with this number of tokens in place of the whole vocabulary. They are drawn by
    frequency for each row. The head then costs very little. 0: the whole vocabulary."""
    correction_negatives_share: Annotated[float, Range(gt=0, le=1)] = 1.0
    """Share of the run (of both stages together), at its start, in which correction_negatives are used; after it
    the whole vocabulary. With negatives alone the head predicts badly over it."""
    keep_masked_share: Annotated[float, Range(ge=0, lt=1)] = 0.0
    """Share of the samples in whose place the discriminator reads [MASK]. Such a position has no label, and only
    the loss for restoring tokens, which is that of a masked language model there. Without a generator, the network
    is then also exported as a masked language model, in `encoder`."""

    carries_memory: ClassVar[bool] = True
    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **GeneratorObjectiveConfig.not_ignored, "discriminator_positions": ("all",), "correction_weight": (),
        "correction_negatives": (), "correction_negatives_share": (), "keep_masked_share": (),
    }  # fmt: skip

    @property
    def exports_masked_lm(self) -> bool:
        return self.keep_masked_share > 0 and not self.has_generator

    def build(self, parts: ObjectiveParts) -> Objective:
        return ReplacedToken(parts, self)

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        replaced = (
            "a generator replaces some of the words of a text"
            if self.has_generator
            else ("some of the words of a text are replaced")
        )
        source = "of its generator" if self.has_generator else "that no network chose"
        return ModelDescription(
            title="ELECTRA discriminator",
            text=(
                "A text encoder that was pre-trained as a discriminator (ELECTRA,\n"
                f"{ELECTRA_PAPER}): {replaced},\n"
                "and this network predicts for each token whether it is the original one. What it learns in this "
                "way helps in\nfine-tuning."
            ),
            generator="generator" if self.has_generator else None,
            uses=("To find words that do not fit their context, such as slips and errors of speech recognition.",),
            limits=(
                f"It was trained on replacements {source}: its probabilities say whether a word looks\n"
                "  *sampled*. They do not measure grammar, truth or authorship.",
            ),
        )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.correction_negatives and not self.correction_weight:
            yield "correction_negatives: there is no correction; set correction_weight, or leave it out"
        if self.correction_negatives_share < 1 and not self.correction_negatives:
            yield "correction_negatives_share: there are no negatives; set correction_negatives, or leave it out"
        if self.keep_masked_share and not self.correction_weight:
            yield "keep_masked_share: nothing is learned at [MASK] without a correction; set correction_weight"

    def problems_with(self, sections: Sections) -> Iterator[str]:
        yield from super().problems_with(sections)
        if sections.masking.replacement and self.discriminator_positions in ("masked", "random"):
            yield "masking.replacement: must be false where objective.discriminator_positions is masked or random"
        quirks = [name for name in ("replacement", "spare_first_position") if getattr(sections.masking, name)]
        if self.keep_masked_share and quirks:
            yield f"masking.{quirks[0]}: must be false with objective.keep_masked_share"
        if self.keep_masked_share and self.discriminator_positions != "text":
            yield "objective.discriminator_positions: must be text with keep_masked_share"


class ReplacedToken(GeneratorObjective):
    """A discriminator (`encoder`, `head`), trained on tokens sampled from a generator or by frequency."""

    config: ReplacedTokenConfig

    def add_heads(self, model: EncoderConfig) -> None:
        self.head = ReplacedTokenHead(model)
        self.correction: Correction | None = None
        if self.config.correction_weight:
            self.correction = Correction(
                model,
                self.vocabulary,
                weight=self.config.correction_weight,
                negatives=self.config.correction_negatives,
            )

    def begin_step(self, step: int, steps: int | None) -> None:
        super().begin_step(step, steps)
        if self.correction is not None:
            # The number of steps is unknown at the start of a run of train.minutes.
            in_first_part = steps is None or step < self.config.correction_negatives_share * steps
            self.correction.uses_negatives = self.config.correction_negatives > 0 and in_first_part

    def forward(
        self,
        batch: Batch,
        counts: Counts | None = None,
        *,
        masking: Masking | None = None,
        samples_n: Tensor | None = None,
    ) -> StepOutput:
        """`loss` = generator_loss + λ discriminator_loss + the weighted correction_loss, if there is one; all are
        means over their positions.

        Args:
            masking, samples_n: fixed masks and samples; None: they are drawn here.
        """
        corrupted = self.corrupt(batch, masking=masking, samples_n=samples_n)
        counts = counts or self.counts(batch, corrupted.masking)
        x_BLD = self.discriminator_states(batch, corrupted.ids_BL, corrupted.mask, self.memory)
        output = self.output(batch, corrupted, self.head(x_BLD), counts)
        if self.correction is not None:
            table_VE = self.encoder.embeddings.token.weight
            output = self.correction(output, x_BLD, table_VE, corrupted.masking, batch, counts)
        return self.add_sentence_loss(output, x_BLD[:, 0], batch, counts)

    def output(self, batch: Batch, corrupted: CorruptedBatch, logits_BL: Tensor, counts: Counts) -> StepOutput:
        """Compute the losses from the discriminator's logits."""
        replaced_BL = replaced_labels(corrupted.ids_BL, batch.input_ids_BL)
        if self.config.keep_masked_share:
            replaced_BL = replaced_BL & self._labeled(batch, corrupted.masking)
        losses_BL = F.binary_cross_entropy_with_logits(logits_BL.float(), replaced_BL.float(), reduction="none")
        discriminator_loss = (losses_BL * self.loss_mask(batch, corrupted.masking)).sum() / counts["discriminator"]
        parts = {
            "discriminator_loss": discriminator_loss.detach(),
            "replaced_share": replaced_BL.sum() / counts["text"],
        }
        debug = {"corrupted_ids": corrupted.ids_BL, "replaced": replaced_BL, "logits": logits_BL.detach()}
        return self.add_generator_loss(StepOutput(discriminator_loss, parts, debug), corrupted, counts)

    def replace_tokens(self, batch: Batch, masking: Masking, samples_n: Tensor) -> Tensor:
        """The text with sampled tokens, or [MASK] in some of their places, at the used slots (B, L)."""
        if self.config.keep_masked_share:
            kept_n = self._keeps_mask(batch, masking).flatten()
            samples_n = samples_n.masked_fill(kept_n, self.vocabulary.special.mask)
        return super().replace_tokens(batch, masking, samples_n)

    def _keeps_mask(self, batch: Batch, masking: Masking) -> Tensor:
        """True at the slots whose position the discriminator reads as [MASK] (B, N)."""
        uniforms_BN = uniforms(batch.row_seeds, Purpose.KEEP_MASKED, masking.positions_BN.shape[1])
        kept_BN = masking.used_BN & (uniforms_BN < self.config.keep_masked_share)
        return kept_BN if self.config.sample_unmasked else kept_BN & masking.masked_BN

    def _labeled(self, batch: Batch, masking: Masking) -> Tensor:
        """True at tokens of text where the discriminator does not read a [MASK] that was kept (B, L)."""
        text_BL = self.text_mask(batch)
        if not self.config.keep_masked_share:
            return text_BL
        kept_BN = self._keeps_mask(batch, masking).long()
        return text_BL & (torch.zeros_like(batch.input_ids_BL).scatter_add_(1, masking.positions_BN, kept_BN) == 0)

    def counts(self, batch: Batch, masking: Masking | None = None) -> Counts:
        """Number of positions: of the generator's loss, of the discriminator's loss, and of text with a label."""
        masking = masking or self.draw_masks(batch)
        return {
            "generator": self.count_predictions(batch, masking),
            "discriminator": self.loss_mask(batch, masking).sum().clamp(min=1),
            "text": self._labeled(batch, masking).sum().clamp(min=1),
            **self.sentence_counts(batch),
        }

    def loss_mask(self, batch: Batch, masking: Masking) -> Tensor:
        """True at the positions of the discriminator's loss (B, L)."""
        text_BL = self._labeled(batch, masking)
        match self.config.discriminator_positions:
            case "text":
                return text_BL
            case "all":
                return non_padding(batch)
            case "masked":
                positions_BN, used_BN = masking.positions_BN, masking.used_BN
            case "random":
                order_BL = uniforms(batch.row_seeds, Purpose.RANDOM_POSITIONS, text_BL.shape[1])
                order_BL = order_BL.masked_fill(~text_BL, -torch.inf)
                count = masking.used_BN.shape[1]
                positions_BN, used_BN = top_positions(order_BL, masking.used_BN.sum(1), count)
        return torch.zeros_like(batch.input_ids_BL).scatter_add_(1, positions_BN, used_BN.long()) > 0

    def discriminator_states(
        self, batch: Batch, ids_BL: Tensor, mask: AttentionMask, memory: StreamMemory
    ) -> Tensor:
        """The discriminator's states (B, L, D) for a batch, with these ids instead of its own."""
        return memory.encode(self.encoder, batch, ids_BL, batch.segment_ids_BL, mask)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out metrics of both networks (docs/concepts/pretraining.md explains each)."""
        generator, corrections, filled = (MaskedLanguageModelMetrics() for _ in range(3))
        samples, unigram = DetectionMetrics(), DetectionMetrics()
        with evaluation_mode(self):
            memories = self.memory.empty_copy(), self.memory.empty_copy()
            generator_memory = None if self.generator is None else self.generator.memory.empty_copy()
            for batch, unigram_batch in batches:
                corrupted = self.corrupt_for_evaluation(batch, generator, generator_memory)
                texts = (
                    (samples, corrupted.ids_BL, self._labeled(batch, corrupted.masking)),
                    (unigram, unigram_batch.input_ids_BL, self.text_mask(batch)),
                )
                for (metrics, ids_BL, labeled_BL), memory in zip(texts, memories, strict=True):
                    x_BLD = self.discriminator_states(batch, ids_BL, corrupted.mask, memory)
                    replaced_BL = replaced_labels(ids_BL, batch.input_ids_BL)
                    metrics.add(self.head(x_BLD)[labeled_BL], replaced_BL[labeled_BL])
                    if self.correction is not None and metrics is samples:
                        self._add_restored(x_BLD, corrupted.masking, batch, corrections, filled)
        restored = {} if self.correction is None else corrections.compute_restored() | filled.compute_filled()
        return generator.compute() | samples.compute() | {"eval/unigram_auc": unigram.auc()} | restored

    def _add_restored(
        self,
        x_BLD: Tensor,
        masking: Masking,
        batch: Batch,
        restored: MaskedLanguageModelMetrics,
        filled: MaskedLanguageModelMetrics,
    ) -> None:
        """Add the predictions at all chosen positions of a held-out batch, and those at [MASK]."""
        assert self.correction is not None
        slots = [(restored, masking.used_BN)]
        if self.config.keep_masked_share:
            slots.append((filled, self._keeps_mask(batch, masking)))
        uniforms_n, table_VE = self.sampling_uniforms(batch, masking), self.encoder.embeddings.token.weight
        for metrics, slots_BN in slots:
            self.correction.add_metrics(x_BLD, table_VE, masking, batch, uniforms_n, metrics, slots_BN=slots_BN)

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        networks = {"discriminator": ExportableNetwork(self.encoder, self.head), **super().exportable_networks()}
        if self.config.exports_masked_lm:
            assert self.correction is not None
            networks["encoder"] = ExportableNetwork(self.encoder, self.correction.head)
        return networks

    def networks(self, length: int) -> Networks:
        discriminator = Network.from_config(self.encoder.config, head="replaced-token")
        networks = {**dict(self.generator_networks(length)), "discriminator": discriminator}
        if self.correction is not None:
            share = max_predictions(length, self.masking.share) / length
            networks["correction head"] = self.correction.network(self.encoder.config, share)
        return networks

    def output_biases(self) -> list[nn.Parameter]:
        return [*super().output_biases(), *([] if self.correction is None else [self.correction.head.bias])]
