"""Shuffled-token detection, as a plugin: some tokens of a text change places, and the network finds them.

    m     ~ positions of the text                                  [masking] chooses them
    x^shu = the text with the tokens at m in another order
    loss  = mean over the text of the cross-entropy of "another token stands here" (Panda et al. 2021)

It needs no generator, so a step costs only the network itself.

    electra pretrain FILE.toml --plugin examples/plugins/shuffled_token.py --data DATA --out RUN

with `[objective] kind = "shuffled-token"` in FILE.toml. docs/guides/your-own-objective-and-encoder.md explains it.

Shapes: B batch, L length, N chosen positions a row.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from electra import register_objective
from electra.data.collate import Batch
from electra.modeling.encoders.states import compute_states
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import ReplacedTokenHead
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import ObjectiveConfig, ObjectiveParts
from electra.objectives.masking import attention_mask_of, draw_masks, text_mask
from electra.objectives.metrics import DetectionMetrics
from electra.objectives.row_rng import Purpose, uniforms


@register_objective("shuffled-token")
@dataclass(frozen=True)
class ShuffledTokenConfig(ObjectiveConfig):
    """The settings of the objective: it has none besides its kind."""

    kind: str = "shuffled-token"

    unused_settings = ("generator.",)
    unused_reason = "no generator"

    def build(self, parts: ObjectiveParts) -> "ShuffledToken":
        return ShuffledToken(parts)


class ShuffledToken(Objective):
    """One encoder and a head that finds tokens that changed places."""

    def __init__(self, parts: ObjectiveParts) -> None:
        super().__init__()
        self.masking, self.vocabulary = parts.masking, parts.vocabulary
        self.encoder = parts.model.build()
        self.head = ReplacedTokenHead(parts.model)

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        counts = counts or self.counts(batch)
        shuffled_BL = self.shuffle(batch)
        moved_BL = shuffled_BL != batch.input_ids_BL
        logits_BL = self.logits(shuffled_BL, batch)
        losses_BL = F.binary_cross_entropy_with_logits(logits_BL.float(), moved_BL.float(), reduction="none")
        loss = (losses_BL * self.is_text(batch)).sum() / counts["text"]
        parts = {"discriminator_loss": loss.detach(), "replaced_share": moved_BL.sum() / counts["text"]}
        return StepOutput(loss, parts)

    def counts(self, batch: Batch) -> Counts:
        """Positions that the loss is averaged over; the trainer sums them over micro-batches and processes."""
        return {"text": self.is_text(batch).sum().clamp(min=1)}

    def shuffle(self, batch: Batch) -> Tensor:
        """The ids with the tokens at the chosen positions moved on by one chosen position (B, L).

        The positions of a row are put into a random order first. Every random number is a function of the row's
        seed, so a resumed run draws the same.
        """
        masking = draw_masks(batch, self.masking, self.vocabulary)
        used_BN = masking.used_BN
        order_BN = uniforms(batch.row_seeds, Purpose.ORDER, used_BN.shape[1])
        order_BN = order_BN.masked_fill(~used_BN, 2.0).argsort(1)  # unused ones go to the end
        positions_BN = masking.positions_BN.gather(1, order_BN)
        ids_BN = batch.input_ids_BL.gather(1, positions_BN)
        columns_N = torch.arange(used_BN.shape[1], device=ids_BN.device)
        from_BN = (columns_N - 1) % used_BN.sum(1, keepdim=True).clamp(min=1)
        moved_BN = torch.where(used_BN.gather(1, order_BN), ids_BN.gather(1, from_BN), ids_BN)
        return batch.input_ids_BL.scatter(1, positions_BN, moved_BN)

    def logits(self, ids_BL: Tensor, batch: Batch) -> Tensor:
        """The log-odds that a token is not the original one (B, L)."""
        mask_BL = attention_mask_of(batch)
        logits_BL: Tensor = self.head(compute_states(self.encoder, ids_BL, batch.segment_ids_BL, mask_BL))
        return logits_BL

    def is_text(self, batch: Batch) -> Tensor:
        """True at tokens that are not special (B, L)."""
        return text_mask(batch.input_ids_BL, self.vocabulary.special)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out metrics: of its own shuffles, and of replacements drawn by frequency."""
        shuffles, unigram = DetectionMetrics(), DetectionMetrics()
        training = self.training
        self.eval()
        for batch, unigram_batch in batches:
            text_BL = self.is_text(batch)
            for metrics, ids_BL in ((shuffles, self.shuffle(batch)), (unigram, unigram_batch.input_ids_BL)):
                metrics.add(self.logits(ids_BL, batch)[text_BL], (ids_BL != batch.input_ids_BL)[text_BL])
        self.train(training)
        return {**shuffles.compute(), "eval/unigram_auc": unigram.auc()}

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        return {"discriminator": ExportableNetwork(self.encoder, self.head)}

    def networks(self, length: int) -> Networks:
        return {"discriminator": Network.from_config(self.encoder.config, head="replaced-token")}
