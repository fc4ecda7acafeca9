"""A plugin of pytest for scripts/disturbed_tests.py: linear layers round differently for each number of rows.

So do the matrix products of some CPUs, where a row in a batch and the same row alone differ in the last digit.
"""

import torch
from torch import Tensor
from torch.nn import functional

STEP = 6e-8
"""Half of the spacing of float32 at 1. The result is multiplied by 1 plus -3 to 3 of it."""

exact_linear = functional.linear


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`, with a small relative change that depends on the number of rows."""
    output = exact_linear(input, weight, bias)
    if output.dtype is not torch.float32 or torch.compiler.is_compiling():
        return output
    rows = input.numel() // max(input.shape[-1], 1)
    return output * (1 + (rows * 2654435761 % 7 - 3) * STEP)  # a multiplicative hash: Knuth, volume 3, 6.4


functional.linear = linear
