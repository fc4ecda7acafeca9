"""Rotary position embeddings (Su et al. 2021): queries and keys are rotated by angles that grow with the position.

The two numbers of a pair are half a head apart, as in GPT-NeoX and ModernBERT: (0, K/2), (1, K/2 + 1), ...

Shapes: B batch, L length, G parts (queries and keys), H heads, K head size, P = K / 2 pairs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def rotary_angles(positions_L: Tensor, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return the factors of the numbers of a head, and of the other numbers of their pairs (L, K), in fp32.

    These are the cosines and sines of the angles of each position. They are for whole heads, because half a head
    is too short for the vectors of a CPU in bfloat16.

    Args:
        positions_L: positions of the tokens, also of the shape (B, L).
        theta: base of the frequencies; pair i has the frequency theta ** (-2 i / K).
    """
    exponents_P = torch.arange(0, head_size, 2, device=positions_L.device, dtype=torch.float32) / head_size
    angles_LP = positions_L[..., None].float() * (1.0 / theta**exponents_P)
    cos_LP, sin_LP = angles_LP.cos(), angles_LP.sin()
    return torch.cat([cos_LP, cos_LP], -1), torch.cat([-sin_LP, sin_LP], -1)


def rotate(x_BLGHK: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
    """Return queries and keys rotated by the angles of their positions.

    Args:
        x_BLGHK: queries and keys, of any number of parts G.
        cos_LK, sin_LK: `rotary_angles`, (L, K) or (B, L, K).
    """
    cos, sin = (x.to(x_BLGHK.dtype)[..., None, None, :] for x in (cos_LK, sin_LK))
    if torch.compiler.is_compiling():  # which needs neither buffers nor a gradient of its own
        return x_BLGHK * cos + _swap_halves(x_BLGHK) * sin
    y: Tensor = _Rotate.apply(x_BLGHK, cos, sin)  # type: ignore[no-untyped-call]
    return y


def rotate_in_place(product_BLX: Tensor, heads: int, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
    """Return queries, keys and values (B, L, 3, H, K), with queries and keys rotated where they are in memory.

    Args:
        product_BLX: the output of the input projections, X = 3 × H × K, which nothing else needs.
        heads: H.
        cos_LK, sin_LK: `rotary_angles`, (L, K) or (B, L, K); or (T, K) for a product (T, X).
    """
    shape = (3, heads, product_BLX.shape[-1] // (3 * heads))
    if torch.compiler.is_compiling():
        packed_BLGHK = product_BLX.unflatten(-1, shape)
        rotated_BLGHK = rotate(packed_BLGHK.narrow(-3, 0, 2), cos_LK, sin_LK)
        return torch.cat([rotated_BLGHK, packed_BLGHK.narrow(-3, 2, 1)], -3)
    cos, sin = (x.to(product_BLX.dtype)[..., None, None, :] for x in (cos_LK, sin_LK))
    rotated: Tensor = _RotateInPlace.apply(product_BLX, shape, cos, sin)  # type: ignore[no-untyped-call]
    return rotated.unflatten(-1, shape)


def _swap_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([second, first], -1)


class _RotateInPlace(torch.autograd.Function):
    """The gradient is rotated back, into a new tensor."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, shape: tuple[int, int, int], cos: Tensor, sin: Tensor) -> Tensor:
        ctx.mark_dirty(product)
        ctx.save_for_backward(cos, sin)
        ctx.shape = shape
        x = product.unflatten(-1, shape).narrow(-3, 0, 2)
        swapped = _swap_halves(x)
        x.mul_(cos).addcmul_(swapped, sin)
        return product

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        result = torch.empty_like(grad)
        grad_parts, parts = (x.unflatten(-1, ctx.shape) for x in (grad, result))
        grad_x = grad_parts.narrow(-3, 0, 2)
        torch.mul(grad_x, cos, out=parts.narrow(-3, 0, 2)).addcmul_(_swap_halves(grad_x), sin, value=-1)
        parts.narrow(-3, 2, 1).copy_(grad_parts.narrow(-3, 2, 1))
        return result, None, None, None


class _Rotate(torch.autograd.Function):
    """The gradient is rotated back; nothing of the input is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return torch.mul(x, cos).addcmul_(_swap_halves(x), sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return torch.mul(grad, cos).addcmul_(_swap_halves(grad), sin, value=-1), None, None
