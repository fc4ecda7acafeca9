"""Masked language modeling at every position, with a gate that can copy the input token (paper, section 3.5).

    x^cor          = the text with sampled tokens at m
    c_t            = sigmoid(w · h_t)                                   probability that the token is original
    p(x_t | x^cor) = c_t [x_t = x^cor_t] + (1 - c_t) softmax(h_t E)_{x_t}
    loss           = L_MLM(x^mask, G) + λ mean over all t of -log p(x_t | x^cor)

It learns from all tokens, like a discriminator, and it learns to generate, like a masked language model.

Shapes: B batch, L length, N positions, D hidden size, E embedding size, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.states import compute_states
from electra.modeling.evaluation_mode import evaluation_mode
from electra.modeling.flops import Network, Networks
from electra.modeling.heads import CopyHead
from electra.modeling.kernels.cross_entropy import cross_entropy
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import ObjectiveParts
from electra.objectives.description import ModelDescription
from electra.objectives.generator_objective import (
    CorruptedBatch,
    GeneratorObjective,
    GeneratorObjectiveConfig,
    describe_restoring,
)
from electra.objectives.masking import Masking
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metrics import MaskedLanguageModelMetrics


@dataclass(frozen=True)
class AllTokensMlmConfig(GeneratorObjectiveConfig):
    """All-Tokens MLM (paper, section 3.5)."""

    kind: str = "all-tokens-mlm"

    def build(self, parts: ObjectiveParts) -> Objective:
        return AllTokensMlm(parts, self)

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        return describe_restoring(self)


class AllTokensMlm(GeneratorObjective):
    """A full-size masked language model (`encoder`, `head`) that predicts every token of a corrupted text."""

    def add_heads(self, model: EncoderConfig) -> None:
        self.head = CopyHead(model)

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        """`loss` = generator_loss + λ encoder_loss, means over the chosen positions and over all tokens of
        text."""
        corrupted = self.corrupt(batch)
        counts = counts or self.counts(batch, corrupted.masking)
        x_BLD = self._states(batch, corrupted)
        x_ND = x_BLD.flatten(0, 1)
        total = copying_loss(
            self.head.words(x_ND),
            self.encoder.embeddings.token.weight,
            self.head.words.bias,
            batch.input_ids_BL.flatten(),
            self.text_mask(batch).flatten().float(),
            gates_N=self.head.gate(x_ND).squeeze(-1).float(),
            is_original_N=(corrupted.ids_BL == batch.input_ids_BL).flatten(),
        )
        encoder_loss = total / counts["text"]
        output = StepOutput(encoder_loss, {"encoder_loss": encoder_loss.detach()})
        output = self.add_generator_loss(output, corrupted, counts)
        return self.add_sentence_loss(output, x_BLD[:, 0], batch, counts)

    def counts(self, batch: Batch, masking: Masking | None = None) -> Counts:
        """Number of chosen positions, and of positions of text."""
        return {
            "generator": self.count_predictions(batch, masking),
            "text": self.text_mask(batch).sum().clamp(min=1),
            **self.sentence_counts(batch),
        }

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        """Held-out metrics of the generator, and of the full-size network's softmax (without the gate) at all
        chosen positions."""
        generator, encoder_metrics = MaskedLanguageModelMetrics(), MaskedLanguageModelMetrics()
        with evaluation_mode(self):
            for batch, _ in batches:
                corrupted = self.corrupt_for_evaluation(batch, generator)
                masking = corrupted.masking
                encoder_metrics.add(
                    self.head.words(masking.gather(self._states(batch, corrupted))),
                    self.encoder.embeddings.token.weight,
                    self.head.words.bias,
                    targets_N=masking.gather(batch.input_ids_BL),
                    masked_N=masking.used_BN.flatten(),
                    uniforms_N=self.sampling_uniforms(batch, masking),
                )
        return generator.compute() | encoder_metrics.compute_restored()

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        return {"encoder": ExportableNetwork(self.encoder, self.head.words), **super().exportable_networks()}

    def output_biases(self) -> list[nn.Parameter]:
        return [*super().output_biases(), self.head.words.bias]

    def networks(self, length: int) -> Networks:
        encoder = Network.from_config(self.encoder.config, head="language-model")
        return {**dict(self.generator_networks(length)), "encoder": encoder}

    def _states(self, batch: Batch, corrupted: CorruptedBatch) -> Tensor:
        x_BLD = compute_states(self.encoder, corrupted.ids_BL, batch.segment_ids_BL, corrupted.mask)
        return x_BLD


def copying_loss(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    *,
    gates_N: Tensor,
    is_original_N: Tensor,
) -> Tensor:
    """The weighted sum of -log(c [is original] + (1 - c) softmax at the target), c the sigmoid of the gate.

    The logits (N, V) are never materialized as a whole. The gradient of the logits is the gradient of a
    cross-entropy weighted by the softmax's share of p; the gradient of the gate is c minus the copy's share of p.
    Both follow from p. Equals `copying_loss_plain` up to rounding.

    Args:
        is_original_N: whether the input token is the target.
    """
    copying_N, generating_N = F.logsigmoid(gates_N.detach()), F.logsigmoid(-gates_N.detach())
    copying_N = torch.where(is_original_N, copying_N, -torch.inf)
    both_N, share_N = torch.zeros_like(copying_N), torch.zeros_like(copying_N)

    def reweigh(rows_n: Tensor, likelihood_n: Tensor) -> Tensor:
        generated_n = generating_N[rows_n] + likelihood_n
        both_N[rows_n] = both_n = torch.logaddexp(copying_N[rows_n], generated_n)
        share_N[rows_n] = share_n = (generated_n - both_n).exp()
        return share_n

    vocabulary = cross_entropy(hidden_NE, table_VE, bias_V, targets_N, weights_N, reweigh=reweigh)
    gates = (weights_N * (gates_N.sigmoid() - (1 - share_N)).detach() * gates_N).sum()
    return -(weights_N * both_N).sum() + (vocabulary - vocabulary.detach()) + (gates - gates.detach())


def copying_loss_plain(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    *,
    gates_N: Tensor,
    is_original_N: Tensor,
) -> Tensor:
    """The same as `copying_loss`, in plain PyTorch: the reference in its tests."""
    probability_N = F.linear(hidden_NE, table_VE, bias_V).softmax(-1).gather(1, targets_N[:, None]).squeeze(1)
    copy_N = gates_N.sigmoid()
    return -(weights_N * (copy_N * is_original_N + (1 - copy_N) * probability_N).log()).sum()
