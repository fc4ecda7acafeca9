"""Rows of different lengths without their padding: tokens one behind the other, and back.

Only attention needs to know which tokens make a row; all else in an encoder works on tokens alone, so it need not
work on padding. Shapes: B batch, L length, T tokens of the batch.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Unpadding:
    """Where the tokens of a batch stand.

    Attributes:
        places_T: of each token in the flattened batch, row * length + column.
        batch, length: B and L.
    """

    places_T: Tensor
    batch: int
    length: int

    def tokens(self, x_BLx: Tensor) -> Tensor:
        """The values (T, ...) at the tokens."""
        x_Tx: Tensor = _Tokens.apply(x_BLx.flatten(0, 1), self.places_T)  # type: ignore[no-untyped-call]
        return x_Tx

    def rows(self, x_Tx: Tensor) -> Tensor:
        """The values (B, L, ...) in their rows, 0 at padding."""
        x: Tensor = _Rows.apply(x_Tx, self.places_T, self.batch * self.length)  # type: ignore[no-untyped-call]
        return x.unflatten(0, (self.batch, self.length))


def _placed(x_Tx: Tensor, places_T: Tensor, count: int) -> Tensor:
    return x_Tx.new_zeros(count, *x_Tx.shape[1:]).index_copy_(0, places_T, x_Tx)


class _Tokens(torch.autograd.Function):
    """Its gradient is `_Rows`, where PyTorch, which cannot know that no two places coincide, would add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places_T: Tensor) -> Tensor:
        ctx.save_for_backward(places_T)
        ctx.count = len(x)
        return x.index_select(0, places_T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places_T,) = ctx.saved_tensors
        return _placed(grad, places_T, ctx.count), None


class _Rows(torch.autograd.Function):
    """Its gradient is `_Tokens`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places_T: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(places_T)
        return _placed(x, places_T, count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (places_T,) = ctx.saved_tensors
        return grad.index_select(0, places_T), None, None
