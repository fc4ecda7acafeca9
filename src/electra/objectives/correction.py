"""A loss for restoring the original tokens, added to replaced-token detection (COCO-LM's corrective LM).

    loss = loss of the objective + weight × mean over m of -log softmax(head(h_t) E)_{x_t}

The discriminator's states h predict the original token at each chosen position m, next to their label (Meng et al.
2021, section 3.2). COCO-LM does so at all positions, with a gate that copies the input; here the chosen positions
alone are computed, so the loss costs as much as that of a masked language model, and there is no gate.

Shapes: B batch, L length, n slots of all rows, D hidden size, E embedding size, V vocabulary.
"""

from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.flops import Network
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import cross_entropy
from electra.objectives.base import Counts, StepOutput
from electra.objectives.masking import Masking
from electra.objectives.metrics import MaskedLanguageModelMetrics


class Correction(nn.Module):
    """A head that predicts the original tokens at the chosen positions, and its loss.

    Its output matrix is the discriminator's token table.
    """

    def __init__(self, model: EncoderConfig, *, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.head = MaskedLanguageModelHead(model, activation=model.head_activation)

    def forward(
        self, output: StepOutput, x_BLD: Tensor, table_VE: Tensor, masking: Masking, batch: Batch, counts: Counts
    ) -> StepOutput:
        """Add this loss to the output of an objective.

        Args:
            x_BLD: the discriminator's states for the corrupted text.
            counts: `generator` is the number of chosen positions.
        """
        total = cross_entropy(
            self.head(masking.gather(x_BLD)),
            table_VE,
            self.head.bias,
            masking.gather(batch.input_ids_BL),
            masking.used_BN.flatten().float(),
        )
        loss = total / counts["generator"]
        parts = {**output.parts, "correction_loss": loss.detach()}
        return StepOutput(output.loss + self.weight * loss, parts, output.debug)

    def add_metrics(
        self,
        x_BLD: Tensor,
        table_VE: Tensor,
        masking: Masking,
        batch: Batch,
        uniforms_n: Tensor,
        metrics: MaskedLanguageModelMetrics,
    ) -> None:
        """Add its predictions for a held-out batch to metrics."""
        metrics.add(
            self.head(masking.gather(x_BLD)),
            table_VE,
            self.head.bias,
            targets_N=masking.gather(batch.input_ids_BL),
            masked_N=masking.used_BN.flatten(),
            uniforms_N=uniforms_n,
        )

    def network(self, model: EncoderConfig, share: float) -> Network:
        """The head for FLOP counts, with predictions at a share of the positions."""
        return Network(
            hidden_size=model.hidden_size,
            embedding_size=model.embedding_size,
            vocabulary_size=model.vocabulary_size,
            masked_share=share,
            projects_after_norm=model.head_style.projects_after_norm,
        )
