"""Every weight initialisation, in one place.

Shapes: L positions, E embedding size, D hidden size, H heads, K head size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from electra.modeling.kernels.relative_attention import RelativeAttention

if TYPE_CHECKING:
    from electra.modeling.encoders.bert import Block, Encoder

SHARPNESS = 4.8
"""Scale of the query and key weights that find a neighbour, times the fourth root of the head size: the neighbour
gets about half of a head's attention."""


def initialize(module: nn.Module, deviation: float, *, linear_range: float) -> None:
    """Start every embedding table and linear layer of `module` afresh.

    Weights come from a normal distribution cut at two standard deviations, as in BERT: `deviation` for embedding
    tables; for linear layers `linear_range`, or one over the root of their inputs where that is 0. Biases start at
    0, LayerNorm at the identity. What relative attention adds to queries, and its vectors of segments, start as
    tables do (as in XLNet).
    """
    for layer in module.modules():
        match layer:
            case nn.Embedding():
                nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            case nn.Linear():
                std = linear_range or layer.in_features**-0.5
                nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            case nn.LayerNorm():
                nn.init.ones_(layer.weight)
                nn.init.zeros_(layer.bias)
            case RelativeAttention():
                for own in layer.parameters(recurse=False):
                    nn.init.trunc_normal_(own, std=deviation, a=-2 * deviation, b=2 * deviation)


@torch.no_grad()
def attend_to_neighbours(encoder: Encoder) -> None:
    """Let the heads of the first block start by looking at the tokens nearby: offsets -1, +1, -2, +2, ...

    With random weights, finding the neighbours is what a masked language model learns first and slowly: for a
    million tokens and more it is no better than word frequencies. Here the position table starts as sinusoids,
    row p holding sin(p f) and cos(p f) for frequencies f spread evenly over (0, pi). A head for offset o turns the
    query's pairs by the angle o f and leaves the key's as they are, so the score of p and q is the sum of
    cos((p + o - q) f), which peaks at q = p + o. Everything else stays random, and all of it learns on.

    Where a projection joins embedding and hidden size, its first rows start as copies of the pairs that are used.
    """
    config, device = encoder.config, encoder.embeddings.position.weight.device
    H, D, E = config.heads, config.hidden_size, config.embedding_size
    K, pairs = D // H, E // 2
    used, scale = min(K // 2, pairs), SHARPNESS / K**0.25
    frequencies = math.pi * (torch.arange(pairs, device=device) + 0.5) / pairs
    angles_LP = torch.arange(config.max_positions, device=device)[:, None] * frequencies
    table_LE = torch.zeros(config.max_positions, E, device=device)
    table_LE[:, 0 : 2 * pairs : 2], table_LE[:, 1 : 2 * pairs : 2] = angles_LP.sin(), angles_LP.cos()
    encoder.embeddings.position.weight.copy_(table_LE * (config.initializer_range / table_LE.std()))
    chosen = [round((i + 0.5) * pairs / used - 0.5) for i in range(used)]
    place = {pair: 2 * pair for pair in chosen}  # where a pair's sine stands in the hidden state
    if isinstance(encoder.projection, nn.Linear):
        weight_DE = encoder.projection.weight
        for i, pair in enumerate(chosen):
            weight_DE[2 * i : 2 * i + 2] = 0.0
            weight_DE[:, 2 * pair : 2 * pair + 2] = 0.0
            weight_DE[2 * i, 2 * pair] = weight_DE[2 * i + 1, 2 * pair + 1] = 1.0
            place[pair] = 2 * i
    first: Block = encoder.blocks[0]  # type: ignore[assignment]
    query_HKD, key_HKD, _ = first.attention.query_key_value.weight.view(3, H, K, D)
    for head in range(H):
        offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
        query_HKD[head], key_HKD[head] = 0.0, 0.0
        for i, pair in enumerate(chosen):
            sine, turn = place[pair], offset * float(frequencies[pair])
            rotation = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
            query_HKD[head, 2 * i : 2 * i + 2, sine : sine + 2] = scale * rotation.to(device)
            key_HKD[head, 2 * i : 2 * i + 2, sine : sine + 2] = scale * torch.eye(2, device=device)
