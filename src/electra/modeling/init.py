"""Every weight initialisation, in one place."""

from torch import nn


def initialize(module: nn.Module, deviation: float, *, linear_range: float) -> None:
    """Start every embedding table and linear layer of `module` afresh.

    Weights come from a normal distribution cut at two standard deviations, as in BERT: `deviation` for
    embedding tables, `linear_range` for linear layers; biases start at 0, LayerNorm at the identity.
    """
    for layer in module.modules():
        match layer:
            case nn.Embedding():
                nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            case nn.Linear():
                nn.init.trunc_normal_(layer.weight, std=linear_range, a=-2 * linear_range, b=2 * linear_range)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            case nn.LayerNorm():
                nn.init.ones_(layer.weight)
                nn.init.zeros_(layer.bias)
