"""A plugin of pytest for scripts/disturbed_tests.py: the rounding in linear layers depends on the number of rows.

So it does in the matrix products of some CPUs: a row in a batch and the same row alone differ in the last digit.
"""

import random

import torch
from torch import Tensor
from torch.nn import functional

STEP = 2**-23
"""The spacing of float32 above 1. The result is multiplied by 1 plus -3 to 3 of it."""

exact_linear = functional.linear


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`, with a small relative change that depends on the number of rows."""
    output = exact_linear(input, weight, bias)
    if output.dtype is not torch.float32 or torch.compiler.is_compiling():
        return output
    rows = input.numel() // max(input.shape[-1], 1)
    return output * (1 + random.Random(rows).randint(-3, 3) * STEP)  # the same for the same number of rows


functional.linear = linear
