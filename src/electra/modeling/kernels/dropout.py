"""Dropout whose random numbers are cheap on a CPU.

PyTorch draws one Bernoulli number per element, which takes about 7 ns each and was a sixth of a training step.
Eight random bits per element are enough, and NumPy's SFC64 generates them in a twentieth of that time. The mask is
written as 0 or 1 in the dtype of the tensor that it multiplies, because products with booleans are slow. On other
devices PyTorch's own dropout is used.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_BYTE_VALUES = 256


class Dropout(nn.Module):
    """Set elements to zero with probability p during training, and scale the others so that the mean stays.

    On a CPU the probability of one call is a multiple of 1/256, at most 255/256. It is drawn from the two
    multiples next to `p`, so that its mean over the calls is `p`. The scale always fits the probability that was
    drawn.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, *, residual: Tensor | None = None) -> Tensor:
        """Return x with elements dropped (none in evaluation mode), added to `residual` if it is given."""
        if not self.training or self.p == 0.0:
            return x if residual is None else residual + x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            dropped = F.dropout(x, self.p)
            return dropped if residual is None else residual + dropped
        y: Tensor = _Dropout.apply(x, residual, self.p)  # type: ignore[no-untyped-call]
        return y


class DropoutMask:
    """Which elements are kept: each has a random byte and is dropped if the byte is below a threshold.

    Attributes:
        bytes: uint8, in the shape of the tensor that elements are dropped from; nothing else uses its memory.
        threshold: how many of the 256 values of a byte are dropped.
    """

    def __init__(self, bytes: Tensor, threshold: int) -> None:
        self.bytes, self.threshold = bytes, threshold

    @classmethod
    def draw(cls, shape: tuple[int, ...], p: float) -> "DropoutMask":
        """Return a random mask; the seed comes from PyTorch's global generator."""
        count, seed = math.prod(shape), int(torch.empty((), dtype=torch.int64).random_())
        words = np.random.SFC64(seed).random_raw(-(-count // 8) + 1)
        bytes = torch.from_numpy(words.view(np.uint8))[:count].view(shape)
        uniform = (int(words[-1]) >> 11) / 2**53
        return cls(bytes, min(math.floor(p * _BYTE_VALUES + uniform), _BYTE_VALUES - 1))

    def __getitem__(self, index: int) -> "DropoutMask":
        return DropoutMask(self.bytes[index], self.threshold)

    @property
    def scale(self) -> float:
        """The factor of the elements that are kept."""
        return _BYTE_VALUES / (_BYTE_VALUES - self.threshold)

    def write(self, out: Tensor) -> Tensor:
        """Write 1 for kept elements and 0 for dropped elements into `out`, and return it."""
        return torch.ge(self.bytes, self.threshold, out=out)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, p: float) -> Tensor:
        mask = DropoutMask.draw(x.shape, p)
        ctx.threshold = mask.threshold
        ctx.save_for_backward(mask.bytes)
        kept = mask.write(torch.empty_like(x))
        if residual is None:
            return kept.mul_(x).mul_(mask.scale)
        return torch.addcmul(residual, x, kept, value=mask.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (bytes,) = ctx.saved_tensors
        mask = DropoutMask(bytes, ctx.threshold)
        grad_x = mask.write(torch.empty_like(grad)).mul_(grad).mul_(mask.scale)
        return grad_x, grad if ctx.needs_input_grad[1] else None, None
