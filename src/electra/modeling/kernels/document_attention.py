"""Attention of tokens that are laid one after another, each to the tokens of its own document.

Shapes: T tokens, d documents of a group, l length of the longest of them, H heads, K head size, G = 3 for queries,
keys and values.
"""

from torch import Tensor

from electra.modeling.kernels.attention import attend
from electra.modeling.kernels.documents import DocumentMask
from electra.modeling.kernels.local_attention import attend_locally, splits_into_windows, within_window


def attend_documents(packed_TGHK: Tensor, documents: DocumentMask, p: float, *, reach: int = 0) -> Tensor:
    """Return the attention output (T, H, K).

    Args:
        packed_TGHK: queries, keys and values of the tokens of `documents`.
        p: dropout probability of the attention probabilities.
        reach: a token attends to the tokens of its document at most this number of positions away; 0: to all.
    """

    def attend_group(packed_dlGHK: Tensor, mask_dl: Tensor | None) -> Tensor:
        length = packed_dlGHK.shape[1]
        mask = documents.attention_mask(mask_dl, length)
        mask = None if mask is None else mask[:, None]
        if not reach or reach + 1 >= length:
            return attend(None, packed_dlGHK, mask, p)
        if splits_into_windows(length, reach) and documents.direction == "both":
            return attend_locally(packed_dlGHK, mask, reach, p)
        return attend(None, packed_dlGHK, within_window(mask, length, reach, device=packed_dlGHK.device), p)

    return documents.by_group(attend_group, packed_TGHK)
