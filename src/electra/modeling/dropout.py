"""Dropout whose random numbers are cheap on a CPU.

PyTorch draws a Bernoulli number for every element, about 7 ns each, which was a sixth of a training step. Sixteen
random bits do as well, and filling memory with bits costs a tenth of that. On other devices it is PyTorch's own
dropout.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_BITS = 16
_LEAST, _NUMBERS = -(2 ** (_BITS - 1)), 2**_BITS


class Dropout(nn.Module):
    """Zero a share of the elements while training, and scale the others up, so that the mean stays.

    On a CPU the share is rounded to a multiple of 2^-16, and the scale is that of the rounded share.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """x with elements dropped; x itself while evaluating."""
        if not self.training or self.share == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        y: Tensor = _Dropout.apply(x, self.share)  # type: ignore[no-untyped-call]
        return y


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        dropped = round(share * _NUMBERS)
        kept = _random_bits(x.numel())[: x.numel()].view(x.shape) >= _LEAST + dropped
        ctx.scale = _NUMBERS / (_NUMBERS - dropped)
        ctx.save_for_backward(kept)
        return torch.where(kept, x, 0.0).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return torch.where(kept, gradients[0], 0.0).mul_(ctx.scale), None


def _random_bits(count: int) -> Tensor:
    """At least `count` numbers of 16 random bits, from PyTorch's generator, so that its seed decides."""
    words = torch.empty(-(-count * _BITS // 64), dtype=torch.int64)
    # Without a lower end, the top bit of every word would be 0.
    return words.random_(-(2**63), None).view(torch.int16)
