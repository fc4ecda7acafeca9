"""Initial attention to neighboring tokens for networks with a table of absolute positions (BERT).

With random weights a masked language model first has to learn to find its neighbors, slowly: for more than a
million tokens it is no better than word frequencies. Here the position table starts as sinusoids: row p holds
sin(p f) and cos(p f) for frequencies f spread evenly over (0, pi). A head for offset o rotates the pairs of the
query by the angle o f and does not rotate those of the key. So the score of positions p and q is the sum of
cos((p + o - q) f), which has its maximum at q = p + o. All other weights stay random, and all weights are trained.

Shapes: L positions, E embedding size, D hidden size, H heads, K head size, P pairs of columns.
"""

import math

import torch
from torch import Tensor, nn

SCALE = 4.8
"""Scale of the query and key weights, times the fourth root of the head size. With it the neighbor gets about half
of a head's attention."""


@torch.no_grad()
def attend_to_neighbors(
    position_LE: Tensor,
    projection: nn.Module,
    query_key_value_XD: Tensor,
    *,
    heads: int,
    deviation: float,
) -> None:
    """Initialize heads of the first block to attend to the offsets -1, +1, -2, +2, ...

    Args:
        position_LE: the table of positions.
        projection: between the embeddings and the first block; `nn.Linear` if their sizes differ. Its first
            rows start as copies of the pairs that heads use.
        query_key_value_XD: the weights of the input projections of the first block, X = 3 × D.
        heads: H.
        deviation: standard deviation of the table.
    """
    (L, E), D, device = position_LE.shape, query_key_value_XD.shape[1], position_LE.device
    K, pairs = D // heads, E // 2
    used, scale = min(K // 2, pairs), SCALE / K**0.25
    frequencies_P = math.pi * (torch.arange(pairs, device=device) + 0.5) / pairs
    angles_LP = torch.arange(L, device=device)[:, None] * frequencies_P
    table_LE = torch.zeros(L, E, device=device)
    table_LE[:, 0 : 2 * pairs : 2], table_LE[:, 1 : 2 * pairs : 2] = angles_LP.sin(), angles_LP.cos()
    position_LE.copy_(table_LE * (deviation / table_LE.std()))
    used_pairs = [round((i + 0.5) * pairs / used - 0.5) for i in range(used)]
    sine_columns = [2 * pair for pair in used_pairs]  # of the hidden state
    if isinstance(projection, nn.Linear):
        weight_DE = projection.weight
        for i, pair in enumerate(used_pairs):
            weight_DE[2 * i : 2 * i + 2] = 0.0
            weight_DE[:, 2 * pair : 2 * pair + 2] = 0.0
            weight_DE[2 * i, 2 * pair] = weight_DE[2 * i + 1, 2 * pair + 1] = 1.0
            sine_columns[i] = 2 * i
    query_HKD, key_HKD, _ = query_key_value_XD.view(3, heads, K, D)
    for head in range(heads):
        offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
        query_HKD[head], key_HKD[head] = 0.0, 0.0
        for i, (pair, sine) in enumerate(zip(used_pairs, sine_columns, strict=True)):
            angle = offset * float(frequencies_P[pair])
            rotation = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
            query_HKD[head, 2 * i : 2 * i + 2, sine : sine + 2] = scale * rotation.to(device)
            key_HKD[head, 2 * i : 2 * i + 2, sine : sine + 2] = scale * torch.eye(2, device=device)
