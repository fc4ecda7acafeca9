"""What encoders do alike if rows have no padding, or if the last block computes some of the states only.

Shapes: B batch, L length, N selected positions, T tokens and little padding, D hidden size, H heads, K head size;
G is 3 for queries, keys and values in one tensor, and 2 for keys and values.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.encoders.base import gather_positions
from electra.modeling.kernels.attention import as_key_mask
from electra.modeling.kernels.documents import AttentionMask, DocumentMask


def mask_of_blocks(mask: AttentionMask) -> AttentionMask:
    """Return the mask in the form that blocks take: (B, 1, 1, L), (B, 1, L, L), or where the documents are.

    Args:
        mask: True at tokens (B, L), or numbers for pairs (B, L, L), or where the documents are.
    """
    return mask.view(len(mask), 1, -1, mask.shape[-1]) if isinstance(mask, Tensor) else mask


def select_states(x_BLD: Tensor, mask: AttentionMask, positions_BN: Tensor | None) -> Tensor:
    """Return the states (B, N, D) at some positions; None: all.

    Args:
        x_BLD: the states; with little padding (T, D) if the mask says where the documents are.
    """
    if positions_BN is None:
        return x_BLD
    return (mask.select if isinstance(mask, DocumentMask) else gather_positions)(x_BLD, positions_BN)


def select_queries(mask: AttentionMask, positions_BN: Tensor | None) -> AttentionMask:
    """Return the rows (B, 1, N, L) of a mask of pairs for some queries; other masks are the same for all."""
    if positions_BN is None or not isinstance(mask, Tensor) or mask.shape[-2] == 1:
        return mask
    return gather_positions(mask.squeeze(1).expand(len(positions_BN), -1, -1), positions_BN)[:, None]


def output_states(x_BLD: Tensor, mask: AttentionMask, positions_BN: Tensor | None) -> Tensor:
    """Return the output of an encoder from that of its last block: all states get their padding again."""
    return mask.pad(x_BLD) if isinstance(mask, DocumentMask) and positions_BN is None else x_BLD


def project_queries(
    layer: nn.Linear, query_states_BND: Tensor, x_BLD: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    """Return queries (B, N, H, K) of some states, and keys and values (B, L, 2, H, K) of all.

    Args:
        layer: its output is queries, keys and values.
    """
    D = x_BLD.shape[-1]
    query_bias, key_value_bias = (None, None) if layer.bias is None else layer.bias.split([D, 2 * D])
    query_weight, key_value_weight = layer.weight.split([D, 2 * D])
    query_BND = F.linear(query_states_BND, query_weight, query_bias)
    product_BLX = F.linear(x_BLD, key_value_weight, key_value_bias)
    return query_BND.unflatten(-1, (heads, -1)), product_BLX.unflatten(-1, (2, heads, -1))


def attend_from(
    query_states_BND: Tensor | None,
    x_BLD: Tensor,
    mask: AttentionMask,
    positions_BN: Tensor | None,
    *,
    layer: nn.Linear,
    heads: int,
    attend: Callable[[Tensor | None, Tensor, Tensor | None], Tensor],
    attend_documents: Callable[[Tensor, DocumentMask], Tensor],
) -> Tensor:
    """Return what the heads have attended to (B, N, D), or (B, L, D).

    With several documents in a row, attention is computed for all queries, and then some are selected.

    Args:
        query_states_BND, positions_BN: the states that queries are computed from, and their positions; None: all.
        x_BLD: the states that keys and values are computed from.
        mask: as blocks have it. If it says where the documents are, `x_BLD` has little padding (T, D), as has the
            output for all positions.
        layer: computes queries, keys and values.
        attend: attention (B, N, H, K) of queries (None: they are in the second argument), keys and values
            (B, L, G, H, K) and a mask.
        attend_documents: the same (T, H, K) of tokens without padding.
    """
    if query_states_BND is None or (isinstance(mask, DocumentMask) and not mask.rows_are_documents):
        packed_BLGHK = layer(x_BLD).unflatten(-1, (3, heads, -1))
        if not isinstance(mask, DocumentMask):
            return attend(None, packed_BLGHK, mask).flatten(2)
        return select_states(attend_documents(packed_BLGHK, mask).flatten(1), mask, positions_BN)
    query_BNHK, packed_BLGHK = project_queries(layer, query_states_BND, x_BLD, heads)
    if isinstance(mask, DocumentMask):
        packed_BLGHK, mask = mask.pad(packed_BLGHK), as_key_mask(mask.groups[0].mask_dl)
    return attend(query_BNHK, packed_BLGHK, mask).flatten(2)
