"""A loss for pairs of segments, added to any objective: next sentence (BERT), sentence order (ALBERT).

    loss = loss of the objective + weight × mean over the rows with two segments of -log p(label | state at [CLS])

The pairs are made in data/collate.py. Shapes: B batch, D hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import UNPAIRED, Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.heads import SentencePairHead
from electra.objectives.base import Counts, StepOutput


class SentenceLoss(nn.Module):
    """How badly a head tells whether the two segments of a row belong together as they stand."""

    def __init__(self, model: EncoderConfig, *, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.head = SentencePairHead(model)

    def counts(self, batch: Batch) -> Counts:
        """Rows with two segments."""
        return {"sentences": _paired(batch).sum().clamp(min=1)}

    def forward(self, output: StepOutput, x_BD: Tensor, batch: Batch, counts: Counts) -> StepOutput:
        """What an objective gave, and this loss with it.

        Args:
            x_BD: the states at [CLS].
        """
        assert batch.sentences_B is not None
        paired_B = _paired(batch)
        logits_B = self.head(x_BD).float()
        labels_B = batch.sentences_B.clamp(min=0).float()
        losses_B = F.binary_cross_entropy_with_logits(logits_B, labels_B, reduction="none")
        loss = (losses_B * paired_B).sum() / counts["sentences"]
        right = (((logits_B > 0) == (labels_B > 0)) & paired_B).sum() / counts["sentences"]
        parts = {**output.parts, "sentence_loss": loss.detach(), "sentence_accuracy": right}
        return StepOutput(output.loss + self.weight * loss, parts, output.debug)


def with_cls_position(positions_BN: Tensor) -> Tensor:
    """The positions, and [CLS] behind them (B, N + 1)."""
    return torch.cat([positions_BN, torch.zeros_like(positions_BN[:, :1])], 1)


def _paired(batch: Batch) -> Tensor:
    assert batch.sentences_B is not None, "pairs of segments are asked about: collate(sentences=...)"
    return batch.sentences_B != UNPAIRED
