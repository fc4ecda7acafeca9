"""Dropout whose random numbers are cheap on a CPU.

PyTorch draws a Bernoulli number for every element, about 7 ns each, which was a sixth of a training step. Eight
random bits do as well, and NumPy's SFC64 fills memory with bits in a twentieth of that time. What is kept is then
written as 0 or 1 in the type of the numbers it multiplies, since products with booleans are slow. On other devices
it is PyTorch's own dropout.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_NUMBERS = 2**8  # that a byte can show


class Dropout(nn.Module):
    """Zero a share of the elements while training, and scale the others up, so that the mean stays.

    On a CPU the share of one call is a multiple of 1/256: of the two that lie next to the wanted one, one is drawn
    so that the mean over the calls is what is wanted (255/256 is the most). The scale is always that of the share
    that was drawn.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        """x with elements dropped (all kept while evaluating), added to another tensor if one is given."""
        if not self.training or self.share == 0.0:
            return x if to is None else to + x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            dropped = F.dropout(x, self.share)
            return dropped if to is None else to + dropped
        y: Tensor = _Dropout.apply(x, to, self.share)  # type: ignore[no-untyped-call]
        return y


class DropoutMask:
    """Which elements are kept, drawn as a byte for each: those that are not below a threshold.

    Attributes:
        bytes: uint8, in the shape of what is dropped from; memory that nothing else uses.
        threshold: how many of the 256 values of a byte are dropped.
    """

    def __init__(self, bytes: Tensor, threshold: int) -> None:
        self.bytes, self.threshold = bytes, threshold

    @classmethod
    def draw(cls, shape: tuple[int, ...], share: float) -> "DropoutMask":
        """PyTorch's generator gives the seed."""
        count, seed = math.prod(shape), int(torch.empty((), dtype=torch.int64).random_())
        words = np.random.SFC64(seed).random_raw(-(-count // 8) + 1)
        bytes = torch.from_numpy(words.view(np.uint8))[:count].view(shape)
        uniform = (int(words[-1]) >> 11) / 2**53
        return cls(bytes, min(math.floor(share * _NUMBERS + uniform), _NUMBERS - 1))

    def __getitem__(self, index: int) -> "DropoutMask":
        return DropoutMask(self.bytes[index], self.threshold)

    @property
    def scale(self) -> float:
        """What makes up for the dropped elements."""
        return _NUMBERS / (_NUMBERS - self.threshold)

    def write(self, out: Tensor) -> Tensor:
        """1 at kept elements and 0 at dropped ones, in `out`, which comes back."""
        return torch.ge(self.bytes, self.threshold, out=out)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, to: Tensor | None, share: float) -> Tensor:
        kept = DropoutMask.draw(x.shape, share)
        ctx.threshold = kept.threshold
        ctx.save_for_backward(kept.bytes)
        ones = kept.write(torch.empty_like(x))
        return ones.mul_(x).mul_(kept.scale) if to is None else torch.addcmul(to, x, ones, value=kept.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (bytes,) = ctx.saved_tensors
        kept = DropoutMask(bytes, ctx.threshold)
        grad_x = kept.write(torch.empty_like(grad)).mul_(grad).mul_(kept.scale)
        return grad_x, grad if ctx.needs_input_grad[1] else None, None
