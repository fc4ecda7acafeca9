"""One network alone first, then the rest: the training algorithms that joint training is compared with.

    generator: G learns L_MLM for a share of the run; D takes over G's weights; D learns L_Disc on the fakes of G,
               which stays as it is (paper, section 3.2 and figure 3)
    encoder:   the discriminator's network learns L_MLM as BERT does; then joint training from what it has learnt

Shapes: B batch, L length, N slots a row, n = B × N.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from electra.data.collate import Batch
from electra.modeling.encoders.bert import EncoderConfig
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import MaskedLanguageModelHead
from electra.objectives.base import Counts, StepOutput
from electra.objectives.generator_objective import CorruptedBatch
from electra.objectives.generators import Generator
from electra.objectives.masking import Masking, slots
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.replaced_token import ReplacedToken


def change_of(first_share: float, steps: int) -> int:
    """The step at which the second stage begins."""
    return math.ceil(first_share * steps)


class TwoStage(ReplacedToken):
    """Replaced-token detection behind a first stage.

    Attributes:
        in_stages: a step does not use every parameter, which those who sum gradients must know.
    """

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
        change = change_of(self.config.first_share, steps)
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
        return {"encoder": Network.of(self.encoder.config, masked_share=share, wanted_share=share)}

    def _learner(self) -> Generator:
        """The masked language model of the first stage."""
        if self.config.first_stage == "encoder":
            return Generator(self.encoder, self.first_head)
        assert self.generator is not None
        return self.generator
