"""The Transformer encoder of BERT and ELECTRA: post-norm, learnt positions, factorised embeddings.

Shapes: B batch, L length, N asking or wanted positions, D hidden size, E embedding size, F feed-forward size,
H heads, K head size, V vocabulary. A tensor's name ends with its shape (`x_BLD`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from electra.config import PositiveInt
from electra.modeling.encoders.base import (
    Capability,
    EncoderConfig,
    EncoderModule,
    FeedForward,
    gather_positions,
)
from electra.modeling.init import initialize
from electra.modeling.kernels.attention import Attention
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.kernels.unpadding import Unpadding
from electra.modeling.sharing import AnyEmbedding, LayerSharing, Share, share_parts, shared

SHARPNESS = 4.8
"""Scale of the query and key weights that find a neighbour, times the fourth root of the head size: the neighbour
gets about half of a head's attention."""


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The shape of a BERT or ELECTRA encoder, also with ALBERT's shared blocks."""

    kind: str = "bert"
    share_layers: LayerSharing = "none"
    """What the blocks share (ALBERT): nothing, all their weights, those of attention, or of the feed-forward
    layers. It saves memory, not time."""
    layer_groups: PositiveInt = 1
    """With share_layers: number of groups of consecutive blocks; blocks share weights within a group only."""

    checkpoint_format: ClassVar[str] = "bert"

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({
            "bidirectional", "chosen-positions", "pair-mask", "mixed-embeddings", "unpadding", "shared-tables",
            "neighbor-start",
        })  # fmt: skip

    def build(self, *, query_stream: bool = False) -> "BertEncoder":
        assert not query_stream, "this encoder has one stream of states"
        return BertEncoder(self)

    def build_sharing(
        self, embeddings: nn.Module, *, share: Share = "tables", share_norm: bool = False
    ) -> "BertEncoder":
        assert isinstance(embeddings, Embeddings)
        return BertEncoder(self, tables=embeddings, share=share, share_norm=share_norm)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.layers % self.layer_groups:
            yield f"layer_groups: {self.layers} layers do not divide into {self.layer_groups} groups"
        if self.layer_groups > 1 and self.share_layers == "none":
            yield "layer_groups: is for share_layers; leave it at 1"


class Embeddings(nn.Module):
    """Token + position + segment embeddings, LayerNorm, dropout.

    Args:
        tables: another encoder's embeddings whose three tables are to be used here too (the same parameters,
            not copies; paper, section 3.2). The LayerNorm stays this network's own, unless `share_norm`.
        share: which of the tables, and how.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        tables: "Embeddings | None" = None,
        share: Share = "tables",
        share_norm: bool = False,
    ) -> None:
        super().__init__()
        size, others = config.embedding_size, None if share == "tokens" else tables
        self.token: AnyEmbedding = (
            shared(tables.token, share) if tables else nn.Embedding(config.vocabulary_size, size)
        )
        self.position: AnyEmbedding = (
            shared(others.position, share) if others else nn.Embedding(config.max_positions, size)
        )
        self.segment: AnyEmbedding = (
            shared(others.segment, share) if others else nn.Embedding(config.type_vocabulary_size, size)
        )
        self.norm: nn.LayerNorm = (
            tables.norm if tables and share_norm else nn.LayerNorm(size, eps=config.layer_norm_epsilon)
        )
        self.dropout = Dropout(config.dropout)

    def forward(
        self, ids_BL: Tensor, segment_ids_BL: Tensor | None = None, tokens_BLE: Tensor | None = None
    ) -> Tensor:
        length = ids_BL.shape[1]
        alone = segment_ids_BL is None or len(self.segment.weight) == 1
        segments_BLE = self.segment.weight[0] if alone else self.segment(segment_ids_BL)
        x_BLE = (
            (self.token(ids_BL) if tokens_BLE is None else tokens_BLE)
            + self.position.weight[:length]
            + segments_BLE
        )
        return self.dropout(self.norm(x_BLE))


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and normalised afterwards (post-norm)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(config.hidden_size, config.heads, dropout=config.attention_dropout)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_BLD: Tensor,
        mask_B11L: Tensor | None,
        positions_BN: Tensor | None = None,
        unpadding: Unpadding | None = None,
    ) -> Tensor:
        """The new states: (B, L, D), or (B, N, D) at certain positions, which saves the work at all others.

        With an `unpadding`, `x_BLD` and the states of all positions have no padding (T, D).
        """
        query_states_BND = None
        if positions_BN is not None:
            query_states_BND = gather_positions(x_BLD if unpadding is None else unpadding.pad(x_BLD), positions_BN)
        attended_BND = self.attention(x_BLD, mask_B11L, query_states_BND, unpadding)
        x_BND = self.attention_norm(
            self.dropout(attended_BND, residual=x_BLD if query_states_BND is None else query_states_BND)
        )
        return self.feed_forward_norm(self.dropout(self.feed_forward(x_BND), residual=x_BND))


class BertEncoder(EncoderModule):
    """Token ids in, one state a token out.

    Args:
        tables, share, share_norm: embeddings whose tables this encoder shares, which of them, and their LayerNorm
            (see `Embeddings`).
    """

    config: BertConfig

    def __init__(
        self,
        config: BertConfig,
        *,
        tables: Embeddings | None = None,
        share: Share = "tables",
        share_norm: bool = False,
    ) -> None:
        super().__init__()
        assert config.vocabulary_size > 0, "the size of the vocabulary is known before a network is built"
        self.config = config
        self.embeddings = Embeddings(config, tables=tables, share=share, share_norm=share_norm)
        self.projection = nn.Identity() if config.square else nn.Linear(config.embedding_size, config.hidden_size)
        blocks: list[nn.Module] = [Block(config) for _ in range(config.layers)]
        share_parts(blocks, config.share_layers, config.layer_groups)
        self.blocks: nn.ModuleList = nn.ModuleList(blocks)
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def attend_to_neighbors(self) -> None:
        attend_to_neighbors(self)

    def forward(
        self,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        *,
        positions_BN: Tensor | None = None,
        unpadding: Unpadding | None = None,
        tokens_BLE: Tensor | None = None,
    ) -> Tensor:
        """States (B, L, D), or (B, N, D) where only some are wanted.

        Args:
            segment_ids_BL: 0 or 1 for each token; None: all 0. A network with one row of segments does not ask.
            attention_mask_BL: True at tokens, False at padding; None: no padding, which is quicker. Or, as
                (B, L, L), what is added to the score of each pair of a query and a key.
            positions_BN: the positions whose states are wanted; the last block does no work at the others.
            unpadding: where the tokens stand; no work is done at padding then, whose states are 0.
            tokens_BLE: token embeddings in place of those of the ids, such as mixtures of several.

        Raises:
            ValueError: the inputs are longer than the network has positions.
        """
        if ids_BL.shape[1] > self.config.max_positions:
            raise ValueError(
                f"inputs of {ids_BL.shape[1]} tokens, but the network has {self.config.max_positions} positions; "
                "cut them"
            )
        mask_B11L = attention_mask_BL
        if attention_mask_BL is not None:
            mask_B11L = attention_mask_BL.view(attention_mask_BL.shape[0], 1, -1, attention_mask_BL.shape[-1])
        x_BLD = self.embeddings(ids_BL, segment_ids_BL, tokens_BLE)
        x_BLD = self.projection(x_BLD if unpadding is None else unpadding.unpad(x_BLD))
        for block in self.blocks[:-1]:
            x_BLD = block(x_BLD, mask_B11L, unpadding=unpadding)
        x_BLD = self.blocks[-1](x_BLD, mask_B11L, positions_BN, unpadding)
        return x_BLD if unpadding is None or positions_BN is not None else unpadding.pad(x_BLD)


@torch.no_grad()
def attend_to_neighbors(encoder: BertEncoder) -> None:
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
