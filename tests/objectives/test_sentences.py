"""The loss for pairs of segments against the plain loss over the rows that have a pair."""

from dataclasses import replace

import torch
from contract import MODEL, batch
from torch.nn import functional as F

from electra.data.collate import UNPAIRED
from electra.objectives.base import StepOutput
from electra.objectives.sentences import SentenceLoss


def test_rows_with_one_segment_count_neither_in_the_loss_nor_in_the_accuracy() -> None:
    torch.manual_seed(0)
    ours, x_BD = SentenceLoss(MODEL, weight=3.0), torch.randn(6, MODEL.hidden_size, requires_grad=True)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
    labels_B = torch.tensor([1, UNPAIRED, 0, 1, UNPAIRED, 0])
    one = replace(batch(6, seed=0), sentences_B=labels_B)
    before = StepOutput(torch.tensor(2.0), {"generator_loss": torch.tensor(2.0)})
    output = ours(before, x_BD, one, ours.counts(one))
    logits = ours.head(x_BD)[labels_B != UNPAIRED]
    labels = labels_B[labels_B != UNPAIRED]
    loss = F.binary_cross_entropy_with_logits(logits, labels.float())
    torch.testing.assert_close(output.loss, 2.0 + 3.0 * loss)
    torch.testing.assert_close(output.parts["sentence_loss"], loss.detach())
    assert float(output.parts["sentence_accuracy"]) == float(((logits > 0) == (labels == 1)).float().mean())
    output.loss.backward()
    assert x_BD.grad is not None
    assert [bool(gradient_D.any()) for gradient_D in x_BD.grad] == [label != UNPAIRED for label in labels_B]


def test_a_batch_without_pairs_has_no_loss() -> None:
    ours = SentenceLoss(MODEL, weight=3.0)
    one = replace(batch(2, seed=0), sentences_B=torch.full((2,), UNPAIRED))
    output = ours(StepOutput(torch.tensor(2.0), {}), torch.randn(2, MODEL.hidden_size), one, ours.counts(one))
    assert float(output.loss.detach()) == 2.0
