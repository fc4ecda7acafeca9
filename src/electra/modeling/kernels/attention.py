"""Scaled dot-product attention of several heads.

Shapes: B batch, L length, N query positions, H heads, K head size; G is 3 for queries, keys and
values in one tensor, and 2 for keys and values.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from electra.modeling.kernels.dropout import DropoutMask

MASKED_SCORE = -10_000.0
"""Added to the attention scores of masked keys where a mask is numbers. Not minus infinity, because all keys of a
query at padding can be masked, and the softmax would be NaN."""


def as_key_mask(mask_BL: Tensor | None) -> Tensor | None:
    """Return a mask of keys (B, 1, 1, L), which is the same for all queries."""
    return None if mask_BL is None else mask_BL[:, None, None]


def as_bias(mask_B1NL: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return the numbers (B, N, L) that are added to the scores of each head, on a CPU.

    Args:
        mask_B1NL: True at keys that may be attended to (N may be 1), or such numbers; None: every key.
    """
    if mask_B1NL is None:
        return None
    mask_BNL = mask_B1NL.squeeze(1)
    if mask_BNL.dtype != torch.bool:
        return mask_BNL
    return torch.zeros(mask_BNL.shape, dtype=dtype).masked_fill_(~mask_BNL, -torch.inf)


def attend(query_BNHK: Tensor | None, packed_BLGHK: Tensor, mask_B11L: Tensor | None, p: float) -> Tensor:
    """Return the attention output (B, N, H, K) by the fastest way that the device has.

    Args: as `attend_by_head`.
    """
    by_head = kept_weights(packed_BLGHK.device, packed_BLGHK.dtype, p) and (p or torch.is_grad_enabled())
    if by_head and not torch.compiler.is_compiling():
        return attend_by_head(query_BNHK, packed_BLGHK, mask_B11L, p)
    if query_BNHK is None:
        query_BNHK = packed_BLGHK[:, :, 0]
    query, key, value = (x.transpose(1, 2) for x in (query_BNHK, *packed_BLGHK.unbind(2)[-2:]))
    y_BHNK = F.scaled_dot_product_attention(query, key, value, attn_mask=mask_B11L, dropout_p=p)
    return y_BHNK.transpose(1, 2)


def kept_weights(device: torch.device, dtype: torch.dtype, p: float) -> int:
    """Return how often `attend` keeps the attention weights for the backward pass; 0: it computes them again.

    On a CPU PyTorch has no fused kernel with dropout, and its backward pass in bfloat16 is slow. Heads are then
    computed one at a time, which keeps the weights, and those after dropout.
    """
    if device.type != "cpu" or not (p or dtype == torch.bfloat16):
        return 0
    return 2 if p else 1


def attend_by_head(query_BNHK: Tensor | None, packed_BLGHK: Tensor, mask_B11L: Tensor | None, p: float) -> Tensor:
    """Return the attention output (B, N, H, K), with or without dropout, for training on a CPU.

    It computes one head at a time, so that the matrices of a head stay in the cache. Queries, keys, values and
    their gradients are read and written in the output of the input projection, without a copy for each head.

    Args:
        query_BNHK: None: the queries are the first part of `packed_BLGHK` (G = 3).
        packed_BLGHK: the last two parts are keys and values.
        mask_B11L: True at keys that may be attended to, or (B, 1, N, L) numbers that are added to the scores.
        p: dropout probability of the attention probabilities.

    It equals `attend_plain` if both drop the same elements.
    """
    bias_BNL = as_bias(mask_B11L, packed_BLGHK.dtype)
    y: Tensor = _AttentionByHead.apply(query_BNHK, packed_BLGHK, bias_BNL, p)  # type: ignore[no-untyped-call]
    return y


def attend_plain(
    query_BNHK: Tensor | None, packed_BLGHK: Tensor, mask_B11L: Tensor | None, factors_HBNL: Tensor
) -> Tensor:
    """Compute the same in the plain form, for tests.

    Args:
        factors_HBNL: factors of the attention probabilities: 0, or the scale of dropout.
    """
    query_BNHK = packed_BLGHK[:, :, 0] if query_BNHK is None else query_BNHK
    query_BHNK, key_BHLK, value_BHLK = (
        x.transpose(1, 2) for x in (query_BNHK, packed_BLGHK[:, :, -2], packed_BLGHK[:, :, -1])
    )
    scores_BHNL = query_BHNK @ key_BHLK.mT * query_BHNK.shape[-1] ** -0.5
    if mask_B11L is not None and mask_B11L.dtype == torch.bool:
        scores_BHNL = scores_BHNL.masked_fill(~mask_B11L, -torch.inf)
    elif mask_B11L is not None:
        scores_BHNL = scores_BHNL + mask_B11L
    y_BHNK = (scores_BHNL.softmax(-1) * factors_HBNL.transpose(0, 1)) @ value_BHLK
    return y_BHNK.transpose(1, 2)


class _AttentionByHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_BNHK: Tensor | None, packed_BLGHK: Tensor, bias_BNL: Tensor | None, p: float
    ) -> Tensor:
        query_BNHK = packed_BLGHK[:, :, 0] if query_BNHK is None else query_BNHK
        key_BLHK, value_BLHK = packed_BLGHK[:, :, -2], packed_BLGHK[:, :, -1]
        (B, N, H, K), L = query_BNHK.shape, key_BLHK.shape[1]
        dropout_mask_HBNL = DropoutMask.draw((H, B, N, L), p) if p else None
        weights_HBNL = dropped_HBNL = packed_BLGHK.new_empty(H, B, N, L)
        if dropout_mask_HBNL is not None:
            dropped_HBNL = torch.empty_like(weights_HBNL)
        ctx.scale = 1.0 if dropout_mask_HBNL is None else dropout_mask_HBNL.scale
        y_BNHK = packed_BLGHK.new_empty(B, N, H, K)
        for head in range(H):
            weights_BNL, dropped_BNL = weights_HBNL[head], dropped_HBNL[head]
            keys_BKL = key_BLHK[:, :, head].mT
            torch.baddbmm(weights_BNL, query_BNHK[:, :, head], keys_BKL, beta=0, alpha=K**-0.5, out=weights_BNL)
            if bias_BNL is not None:
                weights_BNL += bias_BNL
            torch.softmax(weights_BNL, -1, out=weights_BNL)
            if dropout_mask_HBNL is not None:
                dropout_mask_HBNL[head].write(dropped_BNL).mul_(weights_BNL)
            torch.mul(torch.bmm(dropped_BNL, value_BLHK[:, :, head]), ctx.scale, out=y_BNHK[:, :, head])
        ctx.save_for_backward(query_BNHK, packed_BLGHK, weights_HBNL, dropped_HBNL, y_BNHK)
        return y_BNHK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BNHK: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        query_BNHK, packed_BLGHK, weights_HBNL, dropped_HBNL, y_BNHK = ctx.saved_tensors
        key_BLHK, value_BLHK = packed_BLGHK[:, :, -2], packed_BLGHK[:, :, -1]
        grad_packed_BLGHK = torch.empty_like(packed_BLGHK)
        packed = packed_BLGHK.shape[2] == 3
        grad_query_BNHK = grad_packed_BLGHK[:, :, 0] if packed else torch.empty_like(query_BNHK)
        # The gradient of the softmax subtracts the weighted mean of the incoming gradient. This mean equals the
        # sum of output times its gradient (Dao et al. 2022, "FlashAttention", appendix B), which needs less memory
        # traffic.
        mean_BNH = (y_BNHK * grad_BNHK).sum(-1)
        scale = query_BNHK.shape[-1] ** -0.5
        for head in range(query_BNHK.shape[2]):
            dropped_BNL, y_BNK = dropped_HBNL[head], grad_BNHK[:, :, head] * ctx.scale
            grad_packed_BLGHK[:, :, -1, head] = torch.bmm(dropped_BNL.mT, y_BNK)
            grad_BNL = torch.bmm(y_BNK, value_BLHK[:, :, head].mT).mul_(dropped_BNL)
            grad_BNL.addcmul_(weights_HBNL[head], mean_BNH[:, :, head, None], value=-1)
            torch.mul(torch.bmm(grad_BNL, key_BLHK[:, :, head]), scale, out=grad_query_BNHK[:, :, head])
            grad_keys_BLK = torch.bmm(grad_BNL.mT, query_BNHK[:, :, head])
            torch.mul(grad_keys_BLK, scale, out=grad_packed_BLGHK[:, :, -2, head])
        return None if packed else grad_query_BNHK, grad_packed_BLGHK, None, None
