"""Every weight initialisation, in one place.

Shapes: L positions, E embedding size, D hidden size, H heads, K head size.
"""

from torch import nn

from electra.modeling.kernels.relative_attention import RelativeAttention


def initialize(module: nn.Module, deviation: float, *, linear_range: float) -> None:
    """Start every embedding table and linear layer of `module` afresh.

    Weights come from a normal distribution cut at two standard deviations, as in BERT: `deviation` for embedding
    tables; for linear layers `linear_range`, or one over the root of their inputs where that is 0. Biases start at
    0, LayerNorm at the identity. What relative attention adds to queries, and its vectors of segments, start as
    tables do (as in XLNet).
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
                nn.init.zeros_(layer.bias)
            case RelativeAttention():
                for own in layer.parameters(recurse=False):
                    nn.init.trunc_normal_(own, std=deviation, a=-2 * deviation, b=2 * deviation)
