"""A loss for restoring the original tokens, added to replaced-token detection (COCO-LM's corrective LM).

    loss = loss of the objective + weight × mean over m of -log softmax(head(h_t) E)_{x_t}

The discriminator's states h predict the original token at each chosen position m, next to their label (Meng et al.
2021, section 3.2). COCO-LM does so at all positions, with a gate that copies the input; here the chosen positions
alone are computed, so the loss costs as much as that of a masked language model, and there is no gate.

With *negatives* the softmax is over the original token and K tokens that are drawn by frequency for each row, in
place of the vocabulary. log(K q) is subtracted from each logit, q being the probability of the draw (Jean et al.
2015, section 3). For a small network this head then costs next to nothing, whatever the size of the vocabulary.

Shapes: B batch, L length, N slots of a row, n = B × N, K negatives, D hidden size, E embedding size, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.flops import Network
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import cross_entropy
from electra.objectives.base import Counts, StepOutput
from electra.objectives.frequency_sampler import FrequencySampler
from electra.objectives.masking import Masking
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.vocabulary import Vocabulary


class Correction(nn.Module):
    """A head that predicts the original tokens at the chosen positions, and its loss.

    Its output matrix is the discriminator's token table.

    Attributes:
        uses_negatives: whether the current step compares targets with negatives, not with the whole vocabulary.

    Args:
        negatives: number of tokens that a target is compared with; 0: the whole vocabulary.
    """

    log_expected_V: Tensor
    """(V,): the logarithm of how often each token is expected among the negatives of a row."""

    def __init__(self, model: EncoderConfig, vocabulary: Vocabulary, *, weight: float, negatives: int = 0) -> None:
        super().__init__()
        self.weight, self.negatives = weight, negatives
        self.uses_negatives = negatives > 0
        self.sampler: FrequencySampler | None = None
        if negatives and vocabulary.can_sample("unigram"):
            assert vocabulary.counts_V is not None
            # Every possible target must be a negative, [UNK] too: no other loss lowers its logit.
            text_n = vocabulary.text_n
            self.sampler = FrequencySampler("unigram", vocabulary, power=1.0, ids_n=text_n)
            weights_V = vocabulary.counts_V.double() + 1
            shares_V = weights_V / weights_V[text_n].sum()
            self.register_buffer("log_expected_V", (negatives * shares_V).log().float(), persistent=False)
        self.head = MaskedLanguageModelHead(model, activation=model.head_activation)

    def forward(
        self, output: StepOutput, x_BLD: Tensor, table_VE: Tensor, masking: Masking, batch: Batch, counts: Counts
    ) -> StepOutput:
        """Add this loss to the output of an objective.

        Args:
            x_BLD: the discriminator's states for the corrupted text.
            counts: `generator` is the number of chosen positions.
        """
        x_nE, targets_n = self.head(masking.gather(x_BLD)), masking.gather(batch.input_ids_BL)
        used_n = masking.used_BN.flatten().float()
        if self.uses_negatives:
            total = self._sampled_cross_entropy(x_nE, table_VE, targets_n, used_n, batch.row_seeds)
        else:
            total = cross_entropy(x_nE, table_VE, self.head.bias, targets_n, used_n)
        loss = total / counts["generator"]
        parts = {**output.parts, "correction_loss": loss.detach()}
        return StepOutput(output.loss + self.weight * loss, parts, output.debug)

    def _sampled_cross_entropy(
        self, x_nE: Tensor, table_VE: Tensor, targets_n: Tensor, used_n: Tensor, row_seeds: Tensor
    ) -> Tensor:
        """The sum of the cross-entropies at the used slots, against the negatives of each row."""
        assert self.sampler is not None, "objective.correction_negatives needs the counts of tokens"
        B, K = len(row_seeds), self.negatives
        uniforms_k = uniforms(row_seeds, Purpose.NEGATIVES, K).flatten()
        negatives_BK = self.sampler.sample(torch.zeros_like(uniforms_k, dtype=torch.long), uniforms_k).view(B, K)
        offsets_V = self.head.bias - self.log_expected_V
        negative_BKE = F.embedding(negatives_BK, table_VE)  # its gradient takes less time than that of indexing
        negative_BNK = torch.einsum("bne,bke->bnk", x_nE.view(B, -1, x_nE.shape[1]), negative_BKE)
        negative_BNK = negative_BNK.float() + offsets_V[negatives_BK][:, None]
        hits_BNK = negatives_BK[:, None] == targets_n.view(B, -1, 1)
        negative_nK = negative_BNK.masked_fill(hits_BNK, -torch.inf).flatten(0, 1)
        target_n = (x_nE * table_VE[targets_n]).sum(1).float() + offsets_V[targets_n]
        logits_nK = torch.cat([target_n[:, None], negative_nK], dim=1)
        return ((logits_nK.logsumexp(1) - target_n) * used_n).sum()

    def add_metrics(
        self,
        x_BLD: Tensor,
        table_VE: Tensor,
        masking: Masking,
        batch: Batch,
        uniforms_n: Tensor,
        metrics: MaskedLanguageModelMetrics,
        *,
        slots_BN: Tensor,
    ) -> None:
        """Add its predictions at some slots of a held-out batch to metrics."""
        slots_n = slots_BN.flatten()
        targets_N = masking.gather(batch.input_ids_BL)[slots_n]
        if len(targets_N):
            metrics.add(
                self.head(masking.gather(x_BLD)[slots_n]),
                table_VE,
                self.head.bias,
                targets_N=targets_N,
                masked_N=torch.ones_like(targets_N, dtype=torch.bool),
                uniforms_N=uniforms_n[slots_n],
            )

    def network(self, model: EncoderConfig, share: float) -> Network:
        """The head for FLOP counts, with predictions at a share of the positions."""
        return Network(
            hidden_size=model.hidden_size,
            embedding_size=model.embedding_size,
            vocabulary_size=self.negatives + 1 if self.uses_negatives else model.vocabulary_size,
            masked_share=share,
            projects_after_norm=model.head_style.projects_after_norm,
        )
