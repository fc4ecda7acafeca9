"""Initialization of weights."""

from torch import nn

from electra.modeling.kernels.relative_attention import RelativeAttention


def initialize(module: nn.Module, deviation: float, *, linear_range: float) -> None:
    """Initialize all embedding tables, linear layers and LayerNorms of `module`.

    Weights are drawn from a normal distribution truncated at two standard deviations, as in BERT. The standard
    deviation is `deviation` for embedding tables; for linear layers it is `linear_range`, or 1 / sqrt(inputs) if
    that is 0. Biases are 0, LayerNorm is the identity. The biases of queries and the segment vectors of relative
    attention are initialized like tables, as in XLNet.
    """
    for layer in module.modules():
        match layer:
            case nn.Embedding():
                nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            case nn.Linear():
                std = linear_range or layer.in_features**-0.5
                nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            case nn.LayerNorm():
                nn.init.ones_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            case RelativeAttention():
                for parameter in layer.parameters(recurse=False):
                    nn.init.trunc_normal_(parameter, std=deviation, a=-2 * deviation, b=2 * deviation)
