"""Remove the padding of a batch, and put it back.

Only attention needs to know which tokens are in the same row. All other layers of an encoder work on single
tokens, so they need not compute anything at padding.

Shapes: B batch, L length, T tokens of the batch without padding.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Unpadding:
    """Where the tokens of a padded batch are.

    Attributes:
        indices_T: index of each token in the flattened batch: row * length + column.
        batch, length: B and L.
    """

    indices_T: Tensor
    batch: int
    length: int

    def unpad(self, x_BLx: Tensor) -> Tensor:
        """Return the values (T, ...) of the tokens."""
        x_Tx: Tensor = _Unpad.apply(x_BLx.flatten(0, 1), self.indices_T)  # type: ignore[no-untyped-call]
        return x_Tx

    def pad(self, x_Tx: Tensor) -> Tensor:
        """Return the values (B, L, ...) in their rows, with 0 at padding."""
        x: Tensor = _Pad.apply(x_Tx, self.indices_T, self.batch * self.length)  # type: ignore[no-untyped-call]
        return x.unflatten(0, (self.batch, self.length))


def _scatter(x_Tx: Tensor, indices_T: Tensor, count: int) -> Tensor:
    return x_Tx.new_zeros(count, *x_Tx.shape[1:]).index_copy_(0, indices_T, x_Tx)


class _Unpad(torch.autograd.Function):
    """Indexing whose gradient is copied. PyTorch would add it up, because it does not know that indices differ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, indices_T: Tensor) -> Tensor:
        ctx.save_for_backward(indices_T)
        ctx.count = len(x)
        return x.index_select(0, indices_T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (indices_T,) = ctx.saved_tensors
        return _scatter(grad, indices_T, ctx.count), None


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indices_T: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(indices_T)
        return _scatter(x, indices_T, count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (indices_T,) = ctx.saved_tensors
        return grad.index_select(0, indices_T), None, None
