"""The base class of language models: one encoder with a memory, and a head without a hidden layer.

Shapes: n positions, D hidden size.
"""

import torch
from torch import Tensor, nn

from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.heads import LanguageModelHead
from electra.modeling.kernels.cross_entropy import cross_entropy
from electra.objectives.base import ExportableNetwork, NetworkName, Objective
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.stream_memory import StreamMemory


class LanguageModel(Objective):
    """An encoder, its head and its memory; subclasses choose the targets and the states that predict them."""

    def __init__(self, model: EncoderConfig, *, query_stream: bool = False) -> None:
        super().__init__()
        self.encoder = model.build(query_stream=query_stream)
        self.head = LanguageModelHead(model)
        self.memory = StreamMemory(model)

    def negative_log_likelihood(self, x_nD: Tensor, targets_n: Tensor, used_n: Tensor) -> Tensor:
        """The sum of negative log-likelihoods over the used positions."""
        table_VD = self.encoder.embeddings.token.weight
        return cross_entropy(x_nD, table_VD, self.head.bias, targets_n, used_n.float())

    def add_metrics(
        self, metrics: MaskedLanguageModelMetrics, x_nD: Tensor, targets_n: Tensor, used_n: Tensor
    ) -> None:
        """Add the used positions to held-out metrics."""
        metrics.add(
            x_nD,
            self.encoder.embeddings.token.weight,
            self.head.bias,
            targets_N=targets_n,
            masked_N=used_n,
            uniforms_N=torch.zeros_like(used_n, dtype=torch.float32),
        )

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        return {"encoder": ExportableNetwork(self.encoder, self.head)}

    def output_biases(self) -> list[nn.Parameter]:
        return [self.head.bias]
