"""Attention within a window: a token attends to the tokens at most `reach` positions away.

Queries are grouped into blocks of consecutive tokens. A block attends to itself and to its two neighbors, so
memory and time grow linearly with the length.

Shapes: B batch, L length, N blocks, Q tokens of a block, W = 3 Q keys of a window, G parts, H heads, K head size.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from electra.modeling.kernels.attention import MASKED_SCORE, attend


def splits_into_windows(length: int, reach: int) -> bool:
    """Whether windows cost less than all pairs of a row."""
    return length > 3 * reach


def within_window(mask_B1xL: Tensor | None, length: int, reach: int, *, device: torch.device) -> Tensor:
    """Return the mask of all pairs of a query and a key at most `reach` positions apart, for short rows.

    Args:
        mask_B1xL: True at keys that may be attended to (B, 1, 1, L); None: all. Or numbers (B, 1, L, L) that are
            added to the scores.

    Returns:
        (1 or B, 1, L, L), True at the pairs, or the numbers with `MASKED_SCORE` at other pairs.
    """
    positions_L = torch.arange(length, device=device)
    near_LL = (positions_L[:, None] - positions_L).abs() <= reach
    if mask_B1xL is None:
        return near_LL[None, None]
    if mask_B1xL.dtype != torch.bool:
        return mask_B1xL.masked_fill(~near_LL, MASKED_SCORE)
    return (near_LL & mask_B1xL) | torch.eye(length, dtype=torch.bool, device=device)


def attend_locally(packed_BLGHK: Tensor, mask_B11L: Tensor | None, reach: int, p: float) -> Tensor:
    """Return the attention output (B, L, H, K) of tokens that attend to those at most `reach` positions away.

    Args:
        packed_BLGHK: queries, keys and values.
        mask_B11L: True at tokens, False at padding; None: there is no padding.
        p: dropout probability of the attention probabilities.
    """
    B, L = packed_BLGHK.shape[:2]
    mask_BL = None if mask_B11L is None else mask_B11L.view(B, L)
    query_NQHK, windows_NWGHK = split_windows(packed_BLGHK, reach)
    masks_N1QW = window_masks(mask_BL, B, L, reach, device=packed_BLGHK.device)
    return join_blocks(attend(query_NQHK, windows_NWGHK, masks_N1QW, p), B, L)


def split_windows(packed_BLGHK: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Return the queries of each block (B × N, Q, H, K), and keys and values of its window (B × N, W, 2, H, K).

    Args:
        packed_BLGHK: queries, keys and values. Their length is padded with zeros to a multiple of Q = `reach`.
    """
    rest = -packed_BLGHK.shape[1] % reach
    if rest:
        packed_BLGHK = F.pad(packed_BLGHK, (0, 0, 0, 0, 0, 0, 0, rest))
    blocks: tuple[Tensor, Tensor] = _SplitWindows.apply(packed_BLGHK, reach)  # type: ignore[no-untyped-call]
    return blocks


class _SplitWindows(torch.autograd.Function):
    """Copies each block into the windows that it is part of; the gradient adds up the copies.

    PyTorch's `unfold` would do the same, but its gradient is slow.
    """

    @staticmethod
    def forward(ctx: Any, packed_BLGHK: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        ctx.shape = packed_BLGHK.shape
        blocks_BNQGHK = packed_BLGHK.unflatten(1, (-1, reach))
        keys_values = blocks_BNQGHK[:, :, :, 1:]
        B, N, Q, G, H, K = keys_values.shape
        windows = packed_BLGHK.new_empty(B, N, 3, Q, G, H, K)
        windows[:, 0, 0], windows[:, -1, 2] = 0, 0
        windows[:, 1:, 0], windows[:, :, 1], windows[:, :-1, 2] = (
            keys_values[:, :-1],
            keys_values,
            keys_values[:, 1:],
        )
        return blocks_BNQGHK[:, :, :, 0].flatten(0, 1), windows.view(B * N, 3 * Q, G, H, K)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_query_NQHK: Tensor, grad_windows_NWGHK: Tensor) -> tuple[Tensor, None]:
        B, Q = ctx.shape[0], grad_query_NQHK.shape[1]
        grad = grad_query_NQHK.new_empty(ctx.shape)
        blocks_BNQGHK = grad.unflatten(1, (-1, Q))
        blocks_BNQGHK[:, :, :, 0] = grad_query_NQHK.unflatten(0, (B, -1))
        windows = grad_windows_NWGHK.unflatten(1, (3, Q)).unflatten(0, (B, -1))
        keys_values = blocks_BNQGHK[:, :, :, 1:]
        keys_values.copy_(windows[:, :, 1])
        keys_values[:, :-1] += windows[:, 1:, 0]
        keys_values[:, 1:] += windows[:, :-1, 2]
        return grad, None


def window_masks(mask_BL: Tensor | None, batch: int, length: int, reach: int, *, device: torch.device) -> Tensor:
    """Return True at the keys of each block's window that a query may attend to (B × N, 1, Q, W).

    Args:
        mask_BL: True at tokens, False at padding; None: there is no padding.
    """
    blocks = -(-length // reach)
    in_text = torch.ones(1, length, dtype=torch.bool, device=device) if mask_BL is None else mask_BL
    in_text = F.pad(in_text, (reach, blocks * reach - length + reach))
    keys_BNW = in_text.unfold(1, 3 * reach, reach)
    distances_QW = torch.arange(3 * reach, device=device) - torch.arange(reach, device=device)[:, None] - reach
    near_QW = distances_QW.abs() <= reach
    masks = (keys_BNW[:, :, None] & near_QW) | (distances_QW == 0)  # padding attends to itself, so no row is empty
    return masks.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]


def join_blocks(y_NQHK: Tensor, batch: int, length: int) -> Tensor:
    """Return the outputs of blocks (B × N, Q, H, K) as rows (B, L, H, K)."""
    return y_NQHK.unflatten(0, (batch, -1)).flatten(1, 2)[:, :length]
