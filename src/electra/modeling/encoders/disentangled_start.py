"""Initial attention to neighboring tokens for networks with a table of relative positions (DeBERTa).

As in `absolute_start`, with the rows of the relative table in place of those of positions. The row of
distance d, of query minus key position, holds cos(d f) and sin(d f) for frequencies f spread evenly over (0,
pi). A head for the key at offset o has no query weights; its query bias turned by the angles -o f gives each
key the sum of cos((d + o) f), which has its maximum at d = -o. All weights are trained.

Shapes: R rows of the table, D hidden size, H heads, K head size, P pairs of a head.
"""

import math

import torch
from torch import nn

from electra.modeling.kernels.relative_table import RelativeTable

SCALE = 7.0
"""Score of the neighbor. With it the neighbor gets about half of a head's attention."""


@torch.no_grad()
def attend_to_neighbors(
    positions: RelativeTable, query_key_value: nn.Linear, position_key: nn.Linear | None, *, heads: int, terms: int
) -> None:
    """Initialize heads of the first block to attend to the offsets -1, +1, -2, +2, ...

    Args:
        positions: the relative table of the encoder, all of whose rows are replaced.
        query_key_value: the input projections of the first block.
        position_key: the projection of the table to keys; None: that of `query_key_value`.
        heads: H.
        terms: number of terms of a score, by whose square root it is divided.
    """
    table_RD = positions.table.weight
    R, D = table_RD.shape
    K, pairs = D // heads, D // 2
    used = min(K // 2, pairs)
    frequencies = math.pi * (torch.arange(pairs, device=table_RD.device) + 0.5) / pairs
    angles_RP = (torch.arange(R, device=table_RD.device) - positions.span)[:, None] * frequencies
    spread = table_RD.std()
    table_RD[:, 0 : 2 * pairs : 2], table_RD[:, 1 : 2 * pairs : 2] = angles_RP.cos(), angles_RP.sin()
    table_RD *= spread / table_RD.std()
    used_pairs = [round((i + 0.5) * pairs / used - 0.5) for i in range(used)]
    size_of_row = positions.norm(table_RD[positions.span : positions.span + 1])[0, : 2 * pairs].norm() / pairs**0.5
    query_HKD, key_HKD, _ = query_key_value.weight.view(3, heads, K, D)
    bias_HK = query_key_value.bias.view(3, heads, K)[0]
    if position_key is not None:
        key_HKD = position_key.weight.view(heads, K, D)
    scale = SCALE * math.sqrt(K * terms) / (used * float(size_of_row))
    for head in range(heads):
        offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
        query_HKD[head], key_HKD[head], bias_HK[head] = 0.0, 0.0, 0.0
        for i, pair in enumerate(used_pairs):
            angle = -offset * float(frequencies[pair])
            bias_HK[head, 2 * i] = scale**0.5 * math.cos(angle)
            bias_HK[head, 2 * i + 1] = scale**0.5 * math.sin(angle)
            key_HKD[head, 2 * i, 2 * pair] = key_HKD[head, 2 * i + 1, 2 * pair + 1] = scale**0.5
