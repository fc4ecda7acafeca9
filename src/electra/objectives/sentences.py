"""A loss for pairs of segments, added to another objective: next sentence (BERT), sentence order (ALBERT).

    loss = loss of the objective + weight × mean over the rows with two segments of -log p(label | state at [CLS])

data/collate.py makes the pairs and labels. Shapes: B batch, D hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import UNPAIRED, Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.heads import SentencePairHead
from electra.objectives.base import Counts, StepOutput


class SentenceLoss(nn.Module):
    """A head on the state at [CLS] that classifies pairs of segments, and its loss."""

    def __init__(self, model: EncoderConfig, *, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.head = SentencePairHead(model)

    def counts(self, batch: Batch) -> Counts:
        """Number of rows with two segments."""
        return {"sentences": _has_pair(batch).sum().clamp(min=1)}

    def forward(self, output: StepOutput, x_BD: Tensor, batch: Batch, counts: Counts) -> StepOutput:
        """Add this loss to the output of an objective.

        Args:
            x_BD: the states at [CLS].
        """
        assert batch.sentences_B is not None
        paired_B = _has_pair(batch)
        logits_B = self.head(x_BD).float()
        labels_B = batch.sentences_B.clamp(min=0).float()
        losses_B = F.binary_cross_entropy_with_logits(logits_B, labels_B, reduction="none")
        loss = (losses_B * paired_B).sum() / counts["sentences"]
        accuracy = (((logits_B > 0) == (labels_B > 0)) & paired_B).sum() / counts["sentences"]
        parts = {**output.parts, "sentence_loss": loss.detach(), "sentence_accuracy": accuracy}
        return StepOutput(output.loss + self.weight * loss, parts, output.debug)


def with_cls_position(positions_BN: Tensor) -> Tensor:
    """The positions, followed by the position of [CLS] (B, N + 1)."""
    return torch.cat([positions_BN, torch.zeros_like(positions_BN[:, :1])], 1)


def _has_pair(batch: Batch) -> Tensor:
    assert batch.sentences_B is not None, "a sentence loss needs labels: collate(sentences=...)"
    return batch.sentences_B != UNPAIRED
