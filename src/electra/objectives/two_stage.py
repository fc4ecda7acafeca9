"""One network alone first, then the rest: the training algorithms that joint training is compared with.

    generator: G learns L_MLM for a share of the run; D takes over G's weights; D learns L_Disc on the fakes of G,
               which stays as it is (paper, section 3.2 and figure 3)
    encoder:   the discriminator's network learns L_MLM as BERT does; then joint training from what it has learnt

Shapes: B batch, L length, N slots a row, n = B × N.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from electra.config import OpenFraction
from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead
from electra.objectives.base import Counts, Objective, StepOutput
from electra.objectives.config import ObjectiveParts, Sections
from electra.objectives.generator_objective import (
    CorruptedBatch,
    trains_its_own_generator,
)
from electra.objectives.generators import Generator
from electra.objectives.masking import Masking, slots
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.replaced_token import ReplacedToken, ReplacedTokenConfig


@dataclass(frozen=True)
class TwoStageConfig(ReplacedTokenConfig):
    """Replaced-token detection after a first stage."""

    kind: str = "two-stage"
    first_share: OpenFraction = 0.5
    """Share of the run that the first stage takes."""
    first_stage: Literal["generator", "encoder"] = "generator"
    """generator: it is trained alone, then the discriminator on its frozen fakes (paper, section 3.2). encoder:
    the discriminator's network learns as a masked language model first, then both are trained together."""
    hand_over: bool = True
    """For first_stage generator: initialize the discriminator with the generator's weights; the two must have the
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
        yield from trains_its_own_generator(self)
        if self.first_stage == "encoder" and self.sharing in ("detached", "disentangled"):
            yield f"sharing: {self.sharing} leaves the tables to a generator that is not trained at first"

    def problems_with(self, sections: Sections) -> Iterator[str]:
        yield from super().problems_with(sections)
        if sections.train.minutes is not None:
            yield "train.minutes: a run of two stages is as long as train.steps says; give that"
        if self.first_stage != "generator":
            return
        if self.sharing != "none":
            yield "objective.sharing: the generator of a first stage stays as it is in the second; set it to none"
        if self.hand_over and sections.generator.encoder(sections.model) != sections.model:
            yield (
                "objective.hand_over: needs a generator of the discriminator's shape: set generator.width 1, or "
                "objective.hand_over false"
            )


class TwoStage(ReplacedToken):
    """Replaced-token detection behind a first stage.

    Attributes:
        in_stages: a step does not use every parameter, which those who sum gradients must know.
    """

    config: TwoStageConfig
    in_stages = True

    def add_heads(self, model: EncoderConfig) -> None:
        super().add_heads(model)
        self.first = True
        if self.config.first_stage == "encoder":
            self.first_head = MaskedLanguageModelHead(model)

    def begin_step(self, step: int, steps: int | None) -> None:
        """Know the stage, and hand the weights over between the two."""
        super().begin_step(step, steps)
        assert steps is not None, "the length of a run of two stages is given in steps"
        change = self.config.second_stage_start(steps)
        self.first = step < change
        if step == change and self.config.first_stage == "generator" and self.config.hand_over:
            assert self.generator is not None
            with torch.no_grad():
                for mine, theirs in zip(
                    self.encoder.parameters(), self.generator.encoder.parameters(), strict=True
                ):
                    mine.copy_(theirs)

    def forward(
        self,
        batch: Batch,
        counts: Counts | None = None,
        *,
        masking: Masking | None = None,
        samples_n: Tensor | None = None,
    ) -> StepOutput:
        """The loss of the stage: generator_loss, discriminator_loss, or both."""
        if not self.first:
            return super().forward(batch, counts, masking=masking, samples_n=samples_n)
        masking = masking or self.draw(batch)
        counts = counts or self.counts(batch, masking)
        learner = self._learner()
        mask_BL = self.attention_mask(batch)
        total, _ = learner(batch, masking, mask_BL, self.uniforms(batch, masking))
        loss = total / counts["generator"]
        return StepOutput(self.config.generator_weight * loss, {"generator_loss": loss.detach()})

    def corrupt(
        self, batch: Batch, *, masking: Masking | None = None, samples_n: Tensor | None = None
    ) -> CorruptedBatch:
        """The fakes of a generator that has learnt in the first stage are its last word."""
        if self.config.first_stage == "encoder":
            return super().corrupt(batch, masking=masking, samples_n=samples_n)
        masking, mask_BL = masking or self.draw(batch), self.attention_mask(batch)
        if samples_n is None:
            samples_n = self.fakes(batch, masking, mask_BL)
        return CorruptedBatch(self.replace_tokens(batch, masking, samples_n), masking, mask_BL, None)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """In the first stage the figures of its masked language model, those of the large network by names of
        their own; then those of both networks."""
        if not self.first:
            return super().evaluate(batches)
        figures, learner = MaskedLanguageModelMetrics(), self._learner()
        training = self.training
        self.eval()
        for batch, _ in batches:
            masking = self.draw(batch)
            learner.evaluated(batch, masking, self.attention_mask(batch), self.uniforms(batch, masking), figures)
        self.train(training)
        found = figures.figures()
        if self.config.first_stage == "encoder":
            return {key.replace("eval/", "eval/encoder_"): value for key, value in found.items()}
        return found

    def networks(self, length: int) -> Networks:
        both = super().networks(length)
        if not self.first:
            if self.config.first_stage == "encoder":
                return both
            frozen = replace(both["generator"], trained=False)  # and its fakes come from that pass
            return {"generator": frozen, "discriminator": both["discriminator"]}
        if self.config.first_stage == "generator":
            return {"generator": both["generator"]}
        share = slots(length, self.masking.share) / length
        return {"encoder": Network.of(self.encoder.config, masked_share=share, output_share=share)}

    def _learner(self) -> Generator:
        """The masked language model of the first stage."""
        if self.config.first_stage == "encoder":
            return Generator(self.encoder, self.first_head)
        assert self.generator is not None
        return self.generator
