"""Attention of tokens that are laid one after another, each to the tokens of its own document.

On an accelerator PyTorch's variable-length attention computes all documents in one call. Elsewhere, and where that
call cannot be used, documents of similar length are padded and computed together.

Shapes: T tokens, D documents, d documents of a group, l length of the longest of them, H heads, K head size, G = 3
for queries, keys and values.
"""

import torch
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
    device, dtype, head_size = packed_TGHK.device, packed_TGHK.dtype, packed_TGHK.shape[-1]
    if documents.direction == "both" and has_variable_length_attention(device, dtype, p, head_size):
        from torch.nn.attention.varlen import varlen_attn  # imports the compiler, which takes seconds

        query, key, value = packed_TGHK.unbind(1)
        window = (reach, reach) if reach else (-1, -1)
        offsets_D, longest = documents.offsets_D, documents.length
        y_THK = varlen_attn(query, key, value, offsets_D, offsets_D, longest, longest, window_size=window)
        assert isinstance(y_THK, Tensor)
        return y_THK

    def attend_group(packed_dlGHK: Tensor, mask_dl: Tensor | None) -> Tensor:
        length = packed_dlGHK.shape[1]
        mask = documents.attention_mask(mask_dl, length)
        if not reach or reach + 1 >= length:
            return attend(None, packed_dlGHK, mask, p)
        if splits_into_windows(length, reach) and documents.direction == "both":
            return attend_locally(packed_dlGHK, mask, reach, p)
        return attend(None, packed_dlGHK, within_window(mask, length, reach, device=packed_dlGHK.device), p)

    return documents.by_group(attend_group, packed_TGHK)


def has_variable_length_attention(device: torch.device, dtype: torch.dtype, p: float, head_size: int) -> bool:
    """Whether `torch.nn.attention.varlen` can compute attention.

    It calls FlashAttention, which has no dropout here. It needs half precision, an NVIDIA GPU of compute
    capability 8.0 (Ampere) or later, and a head size that is a multiple of 8 and at most 256.

    Args:
        p: dropout probability of the attention probabilities.
    """
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16) or p:
        return False
    return head_size % 8 == 0 and head_size <= 256 and torch.cuda.get_device_capability(device) >= (8, 0)
