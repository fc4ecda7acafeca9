"""The convolution of DeBERTa-v2, beside the first block.

Shapes: B batch, L length, D hidden size.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from electra.modeling.kernels.documents import AttentionMask, DocumentMask
from electra.modeling.kernels.dropout import Dropout


class Convolution(nn.Module):
    """A convolution over the embeddings, added to the output of the first block.

    Args:
        norm_epsilon: number added to the variance in the LayerNorm of the sum.
        deviation: standard deviation of the initial weights.
    """

    def __init__(
        self,
        size: int,
        width: int,
        *,
        groups: int,
        activation: Callable[[Tensor], Tensor],
        dropout: float,
        norm_epsilon: float,
        deviation: float,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(size, size, width, padding=width // 2, groups=groups)
        self.norm = nn.LayerNorm(size, eps=norm_epsilon)
        self.dropout, self.activation = Dropout(dropout), activation
        nn.init.trunc_normal_(self.convolution.weight, std=deviation)
        assert self.convolution.bias is not None
        nn.init.zeros_(self.convolution.bias)

    def forward(self, embeddings_BLD: Tensor, mask: AttentionMask = None) -> Tensor:
        """Return the states (B, L, D) that are added, or (T, D) if `mask` says where the documents are.

        Padding does not reach the tokens next to it, and documents do not reach each other.
        """
        if isinstance(mask, DocumentMask):
            return mask.by_group(lambda embeddings_dlD, _: self._convolve(embeddings_dlD), embeddings_BLD)
        if mask is not None and mask.dtype == torch.bool:
            embeddings_BLD = embeddings_BLD.masked_fill(~mask[..., None], 0.0)
        return self._convolve(embeddings_BLD)

    def _convolve(self, embeddings_BLD: Tensor) -> Tensor:
        y_BLD = self.convolution(embeddings_BLD.mT).mT
        return self.activation(self.dropout(y_BLD))
