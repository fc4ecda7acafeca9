"""Rotary position embeddings (Su et al. 2021): queries and keys are rotated by angles that grow with the position.

The two numbers of a pair are half a head apart, as in GPT-NeoX and ModernBERT: (0, K/2), (1, K/2 + 1), ...

Shapes: B batch, L length, G parts (queries and keys), H heads, K head size, P = K / 2 pairs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def rotary_angles(positions_L: Tensor, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of the angles of each position (L, P) in fp32.

    Args:
        positions_L: positions of the tokens, also of the shape (B, L).
        theta: base of the frequencies; pair i has the frequency theta ** (-2 i / K).
    """
    exponents_P = torch.arange(0, head_size, 2, device=positions_L.device, dtype=torch.float32) / head_size
    angles_LP = positions_L[..., None].float() * (1.0 / theta**exponents_P)
    return angles_LP.cos(), angles_LP.sin()


def rotate(x_BLGHK: Tensor, cos_LP: Tensor, sin_LP: Tensor) -> Tensor:
    """Return queries and keys rotated by the angles of their positions.

    Args:
        x_BLGHK: queries and keys, of any number of parts G.
        cos_LP, sin_LP: `rotary_angles`, (L, P) or (B, L, P).
    """
    cos, sin = (x.to(x_BLGHK.dtype)[..., None, None, :] for x in (cos_LP, sin_LP))
    if torch.compiler.is_compiling():
        return _rotate(x_BLGHK, cos, sin)
    y: Tensor = _Rotate.apply(x_BLGHK, cos, sin)  # type: ignore[no-untyped-call]
    return y


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    y = torch.empty_like(x)
    y_first, y_second = y.chunk(2, -1)
    torch.mul(first, cos, out=y_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=y_second).addcmul_(first, sin)
    return y


class _Rotate(torch.autograd.Function):
    """The gradient is rotated back; nothing of the input is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotate(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotate(grad, cos, -sin), None, None
