"""Self-attention with rotary positions, over all tokens of a row or within a window.

Shapes: B batch, L length, N query positions, T tokens and little padding, D hidden size, H heads, K head size,
G = 3 for queries, keys and values.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from electra.modeling.encoders.base import gather_positions
from electra.modeling.encoders.selection import project_queries, select_queries, select_states
from electra.modeling.kernels.attention import attend
from electra.modeling.kernels.document_attention import attend_documents
from electra.modeling.kernels.documents import AttentionMask, DocumentMask
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.kernels.local_attention import attend_locally
from electra.modeling.kernels.rotary import rotate, rotate_in_place


@dataclass(frozen=True)
class AttentionInput:
    """What all global or all local blocks share in a batch.

    Attributes:
        mask: True at keys that may be attended to (B, 1, 1, L), or numbers (B, 1, L, L) that are added to the
            scores; None: every key. Or where the documents are, and states have little padding (T, D).
        angles: `rotary_angles`, (L, K) or (T, K); None: positions are not rotary.
        reach: how many positions a token attends to on each side; 0: all.
    """

    mask: AttentionMask
    angles: tuple[Tensor, Tensor] | None
    reach: int = 0


class RotaryAttention(nn.Module):
    """Multi-head self-attention with rotary positions; the three input projections are one matrix product.

    Args:
        bias: whether the linear layers have biases.
        dropout: dropout probability of the attention probabilities during training.
    """

    def __init__(self, hidden_size: int, heads: int, *, bias: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size, bias=bias)
        self.output = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x_BLD: Tensor, shared: AttentionInput, positions_BN: Tensor | None = None) -> Tensor:
        """Return the attention output (B, L, D), or (B, N, D) at `positions_BN`."""
        p, mask = self.dropout.p if self.training else 0.0, shared.mask
        if isinstance(mask, DocumentMask):
            packed_TGHK = self._project(x_BLD, shared)
            y_TD = attend_documents(packed_TGHK, mask, p, reach=shared.reach).flatten(1)
            return self.output(select_states(y_TD, mask, positions_BN))
        if positions_BN is not None and not shared.reach:
            return self.output(self._attend_from(x_BLD, shared, mask, positions_BN, p).flatten(2))
        packed_BLGHK = self._project(x_BLD, shared)
        if not shared.reach:
            return self.output(attend(None, packed_BLGHK, mask, p).flatten(2))
        y_BLD = attend_locally(packed_BLGHK, mask, shared.reach, p).flatten(2)
        return self.output(select_states(y_BLD, mask, positions_BN))

    def _project(self, x_BLD: Tensor, shared: AttentionInput) -> Tensor:
        """Return queries, keys and values (B, L, 3, H, K), with rotated queries and keys."""
        product_BLX = self.query_key_value(x_BLD)
        if shared.angles is None:
            return product_BLX.unflatten(-1, (3, self.heads, -1))
        return rotate_in_place(product_BLX, self.heads, *shared.angles)

    def _attend_from(
        self, x_BLD: Tensor, shared: AttentionInput, mask: Tensor | None, positions_BN: Tensor, p: float
    ) -> Tensor:
        """Return the outputs (B, N, H, K) of queries at some positions, without computing other queries."""
        query_states_BND = gather_positions(x_BLD, positions_BN)
        query_BNHK, packed_BLGHK = project_queries(self.query_key_value, query_states_BND, x_BLD, self.heads)
        if shared.angles is not None:
            angles_BNK = [angles_LK[positions_BN] for angles_LK in shared.angles]
            query_BNHK = rotate(query_BNHK[:, :, None], *angles_BNK).squeeze(2)
            keys_BLGHK = rotate(packed_BLGHK[:, :, :1], *shared.angles)
            packed_BLGHK = torch.cat([keys_BLGHK, packed_BLGHK[:, :, 1:]], 2)
        rows = select_queries(mask, positions_BN)
        assert not isinstance(rows, DocumentMask)
        return attend(query_BNHK, packed_BLGHK, rows, p)
