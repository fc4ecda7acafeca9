"""Two-stage training, which the paper compares with joint training: one network first, then the rest.

    generator: G is trained on L_MLM for a share of the run; D starts from G's weights; D is trained on L_Disc with
               samples of G, which is frozen (paper, section 3.2 and figure 3)
    encoder:   the discriminator's encoder is trained on L_MLM like BERT; then joint training from its weights

Shapes: B batch, L length, N slots a row, n = B × N.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from electra.config import OpenFraction, problems_of
from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead
from electra.objectives.base import Counts, Objective, StepOutput
from electra.objectives.config import ObjectiveParts, Sections
from electra.objectives.generator_objective import (
    DRAWING,
    CorruptedBatch,
    generator_source_problem,
)
from electra.objectives.generators import Generator
from electra.objectives.masking import Masking, max_predictions
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.replaced_token import ReplacedToken, ReplacedTokenConfig


@dataclass(frozen=True)
class TwoStageConfig(ReplacedTokenConfig):
    """Replaced-token detection after a first stage."""

    kind: str = "two-stage"
    first_share: OpenFraction = 0.5
    """Share of the run that the first stage takes."""
    first_stage: Literal["generator", "encoder"] = "generator"
    """generator: the generator is trained alone, then the discriminator with samples of the frozen generator
    (paper, section 3.2). encoder: the discriminator's encoder is trained as a masked language model first, then
    both networks together."""
    hand_over: bool = True
    """For first_stage generator: initialize the discriminator with the generator's weights. The two must have the
    same shape."""

    carries_memory: ClassVar[bool] = False
    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **ReplacedTokenConfig.not_ignored, "first_share": (), "first_stage": (), "hand_over": (),
    }  # fmt: skip

    def build(self, parts: ObjectiveParts) -> Objective:
        return TwoStage(parts, self)

    def second_stage_start(self, steps: int) -> int:
        """The step at which the second stage begins."""
        return math.ceil(self.first_share * steps)

    def stage_starts(self, steps: int) -> list[int]:
        return [0, self.second_stage_start(steps)]

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from generator_source_problem(self)
        if self.frequency_share:
            yield "frequency_share: two stages have a share of their own, first_share; set it to 0"
        if self.first_stage == "encoder" and self.sharing in ("detached", "disentangled"):
            yield (
                f"sharing: {self.sharing} trains the tables with the generator, but the first stage does not "
                "train the generator; set it to embeddings"
            )

    def problems_with(self, sections: Sections) -> Iterator[str]:
        yield from super().problems_with(sections)
        if sections.train.minutes is not None:
            yield "train.minutes: two stages need a fixed number of steps; give train.steps"
        if self.first_stage != "generator":
            return
        if self.sharing != "none":
            yield "objective.sharing: the generator is frozen in the second stage; set it to none"
        if any(problems_of(sections.generator)):  # its shape is unknown
            return
        if self.hand_over and sections.generator.encoder(sections.model) != sections.model:
            yield (
                "objective.hand_over: needs a generator of the discriminator's shape: set generator.width 1, or "
                "objective.hand_over false"
            )


class TwoStage(ReplacedToken):
    """Replaced-token detection after a first stage."""

    config: TwoStageConfig
    has_unused_parameters = True

    def add_heads(self, model: EncoderConfig) -> None:
        super().add_heads(model)
        self.in_first_stage = True
        if self.config.first_stage == "encoder":
            self.first_head = MaskedLanguageModelHead(model)

    def begin_step(self, step: int, steps: int | None) -> None:
        """Set the stage, and copy the generator's weights to the discriminator between the stages."""
        super().begin_step(step, steps)
        assert steps is not None, "a run of two stages has a fixed number of steps"
        second_stage = self.config.second_stage_start(steps)
        self.in_first_stage = step < second_stage
        if step == second_stage and self.config.first_stage == "generator" and self.config.hand_over:
            assert self.generator is not None
            with torch.no_grad():
                for parameter, trained in zip(
                    self.encoder.parameters(), self.generator.encoder.parameters(), strict=True
                ):
                    parameter.copy_(trained)

    def forward(
        self,
        batch: Batch,
        counts: Counts | None = None,
        *,
        masking: Masking | None = None,
        samples_n: Tensor | None = None,
    ) -> StepOutput:
        """`loss` = the loss of the stage: generator_loss, discriminator_loss, or both; encoder_loss in the first
        stage of the discriminator's encoder."""
        if not self.in_first_stage:
            return super().forward(batch, counts, masking=masking, samples_n=samples_n)
        masking = masking or self.draw_masks(batch)
        counts = counts or self.counts(batch, masking)
        learner = self._first_stage_network()
        mask = self.attention_mask(batch)
        total, _ = learner(batch, masking, mask, self.sampling_uniforms(batch, masking))
        loss = total / counts["generator"]
        name = "generator_loss" if self.config.first_stage == "generator" else "encoder_loss"
        return StepOutput(self.config.generator_weight * loss, {name: loss.detach()})

    def corrupt(
        self, batch: Batch, *, masking: Masking | None = None, samples_n: Tensor | None = None
    ) -> CorruptedBatch:
        """As in joint training, but a generator of the first stage is frozen and has no loss."""
        if self.config.first_stage == "encoder":
            return super().corrupt(batch, masking=masking, samples_n=samples_n)
        masking, mask = masking or self.draw_masks(batch), self.attention_mask(batch)
        if samples_n is None:
            samples_n = self.sample(batch, masking, mask)
        return CorruptedBatch(self.replace_tokens(batch, masking, samples_n), masking, mask, None)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """In the first stage the metrics of its masked language model (`eval/encoder_...` for the discriminator's
        encoder), then those of both networks."""
        if not self.in_first_stage:
            return super().evaluate(batches)
        metrics, learner = MaskedLanguageModelMetrics(), self._first_stage_network()
        with evaluation_mode(self):
            for batch, _ in batches:
                masking = self.draw_masks(batch)
                learner.add_metrics(
                    batch, masking, self.attention_mask(batch), self.sampling_uniforms(batch, masking), metrics
                )
        values = metrics.compute()
        if self.config.first_stage == "encoder":
            return {key.replace("eval/", "eval/encoder_"): value for key, value in values.items()}
        return values

    def networks(self, length: int) -> Networks:
        both = super().networks(length)
        if not self.in_first_stage:
            if self.config.first_stage == "encoder":
                return both
            frozen = replace(both["generator"], trained=False)  # its only forward pass gives the samples
            return {name: frozen if name == "generator" else both[name] for name in both if name != DRAWING}
        if self.config.first_stage == "generator":
            return {"generator": both["generator"]}
        share = max_predictions(length, self.masking.share) / length
        return {"encoder": Network.from_config(self.encoder.config, masked_share=share, output_share=share)}

    def _first_stage_network(self) -> Generator:
        """The masked language model of the first stage."""
        if self.config.first_stage == "encoder":
            return Generator(self.encoder, self.first_head)
        assert self.generator is not None
        return self.generator
