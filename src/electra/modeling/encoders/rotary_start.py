"""Initial attention to neighboring tokens for networks with rotary positions.

With random weights a masked language model first has to learn to find its neighbors (see
`absolute_start`). Rotary positions can express an offset by themselves. If queries and keys do not
depend on the token, the score of a query at position p and a key at position q is a sum of cos((p + o - q) f)
over the frequencies f, where the query is turned by the angles o f. It has its maximum at q = p + o. So all
tokens get a common vector, and the heads of the first block read only this vector. It adds the same number to
all logits over the vocabulary, which has no effect.

Shapes: V vocabulary, E embedding size, D hidden size, H heads, K head size, P pairs of a head.
"""

import torch
from torch import Tensor, nn

SCALE = 16.0
"""Score of the neighbor. With it the neighbor gets about half of a head's attention."""
LOWEST_FREQUENCY = 0.1
"""Only pairs with at least this frequency are used: slower ones hardly tell neighbors apart."""


@torch.no_grad()
def attend_to_neighbors(
    table_VE: Tensor,
    projection: nn.Module,
    norm: nn.Module,
    query_key_value_XD: Tensor,
    *,
    heads: int,
    theta: float,
) -> None:
    """Initialize heads of the first block to attend to the offsets -1, +1, -2, +2, ...

    Args:
        table_VE: token embeddings; a second call with the same table does not change it.
        projection: joins embedding and hidden size.
        norm: the LayerNorm of the embeddings, from which the first block reads.
        query_key_value_XD: the weights of the input projections of the first block, X = 3 × D.
        heads: H.
        theta: base of the rotary frequencies of the first block.
    """
    E, D = table_VE.shape[1], query_key_value_XD.shape[1]
    direction_E = torch.ones(E, device=table_VE.device)
    direction_E[1::2] = -1.0  # orthogonal to the mean, which LayerNorm subtracts
    direction_E /= E**0.5
    table_VE -= (table_VE @ direction_E)[:, None] * direction_E
    table_VE += table_VE.norm(dim=1).mean() * direction_E
    x_VD = norm(projection(table_VE))
    common_D = x_VD.mean(0)
    K = D // heads
    frequencies_P = theta ** (-torch.arange(0, K, 2, device=table_VE.device) / K)
    used = int((frequencies_P >= LOWEST_FREQUENCY).sum())
    shares_P = torch.zeros_like(frequencies_P)
    shares_P[:used] = frequencies_P[:used].sqrt() / frequencies_P[:used].sqrt().sum()
    size_P = (SCALE * K**0.5 * shares_P).sqrt()
    query_HKD, key_HKD, _ = query_key_value_XD.view(3, heads, K, D)
    for head in range(heads):
        offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
        angles_P = offset * frequencies_P
        query_K = torch.cat([size_P * angles_P.cos(), size_P * angles_P.sin()])
        key_K = torch.cat([size_P, torch.zeros_like(size_P)])
        query_HKD[head] = query_K[:, None] * common_D / common_D.square().sum()
        key_HKD[head] = key_K[:, None] * common_D / common_D.square().sum()
