"""Attention within a window: a token attends to the tokens at most `reach` positions away.

Queries are grouped into blocks of consecutive tokens. A block attends to itself and to its two neighbors, so
memory and time grow linearly with the length.

Shapes: B batch, L length, N blocks, Q tokens of a block, W = 3 Q keys of a window, G parts, H heads, K head size.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def window_mask(length: int, reach: int, *, device: torch.device) -> Tensor:
    """Return True where the distance of a query and a key is at most `reach` (1, 1, L, L), for short rows."""
    positions_L = torch.arange(length, device=device)
    return ((positions_L[:, None] - positions_L).abs() <= reach)[None, None]


def split_windows(packed_BLGHK: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Return the queries of each block (B × N, Q, H, K), and keys and values of its window (B × N, W, 2, H, K).

    Args:
        packed_BLGHK: queries, keys and values. Their length is padded with zeros to a multiple of Q = `reach`.
    """
    rest = -packed_BLGHK.shape[1] % reach
    query_BLHK = F.pad(packed_BLGHK[:, :, 0], (0, 0, 0, 0, 0, rest))
    keys_values_BLGHK = F.pad(packed_BLGHK[:, :, 1:], (0, 0, 0, 0, 0, 0, reach, reach + rest))
    windows = keys_values_BLGHK.unfold(1, 3 * reach, reach)  # (B, N, 2, H, K, W)
    windows = windows.permute(0, 1, 5, 2, 3, 4).flatten(0, 1)
    return query_BLHK.unflatten(1, (-1, reach)).flatten(0, 1), windows


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
