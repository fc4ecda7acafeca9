"""The Transformer encoder of BERT and ELECTRA: post-norm, learned positions, factorized embeddings.

Shapes: B batch, L length, N selected positions, D hidden size, E embedding size, F feed-forward size,
H heads, K head size, V vocabulary. A tensor's name ends with its shape (`x_BLD`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.config import PositiveInt
from electra.modeling.encoders.absolute_start import attend_to_neighbors
from electra.modeling.encoders.base import (
    Activation,
    Capability,
    EncoderConfig,
    EncoderModule,
    FeedForward,
)
from electra.modeling.encoders.selection import (
    attend_from,
    mask_of_blocks,
    output_states,
    select_queries,
    select_states,
)
from electra.modeling.init import initialize
from electra.modeling.kernels.attention import attend
from electra.modeling.kernels.document_attention import attend_documents, has_variable_length_attention
from electra.modeling.kernels.documents import AttentionMask, DocumentMask
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.sharing import AnyEmbedding, EmbeddingSharing, LayerSharing, share_embedding, share_layers


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The shape of a BERT or ELECTRA encoder, also with ALBERT's shared blocks."""

    kind: str = "bert"
    share_layers: LayerSharing = "none"
    """What the blocks share (ALBERT): nothing, all their weights, those of attention, or of the feed-forward
    layers. It saves memory, not time."""
    layer_groups: PositiveInt = 1
    """With share_layers: number of groups of consecutive blocks; blocks share weights within a group only."""

    @property
    def checkpoint_format(self) -> str:
        return "bert"

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({
            "bidirectional", "selected-positions", "pair-mask", "input-embeddings", "document-mask",
            "shared-tables", "shared-norm", "neighbor-start",
        })  # fmt: skip

    @property
    def head_activation(self) -> Activation:
        """Heads of Bert and Albert have the activation of the blocks; those of Roberta and Electra have GELU."""
        is_bert_or_albert = self.type_vocabulary_size > 1 if self.square else self.share_layers == "all"
        return self.activation if is_bert_or_albert else "gelu"

    def attends_in_one_call(self, device: torch.device, dtype: torch.dtype) -> bool:
        head_size = self.hidden_size // self.heads
        return has_variable_length_attention(device, dtype, self.attention_dropout, head_size)

    def build(self, *, query_stream: bool = False) -> "BertEncoder":
        assert not query_stream, "this encoder has no query stream"
        return BertEncoder(self)

    def build_sharing(
        self, embeddings: nn.Module, *, sharing: EmbeddingSharing = "tables", share_norm: bool = False
    ) -> "BertEncoder":
        assert isinstance(embeddings, Embeddings)
        return BertEncoder(self, tables=embeddings, sharing=sharing, share_norm=share_norm)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.layers % self.layer_groups:
            yield f"layer_groups: {self.layers} layers are not divisible into {self.layer_groups} groups"
        if self.layer_groups > 1 and self.share_layers == "none":
            yield "layer_groups: it needs share_layers; set it to 1"


class Embeddings(nn.Module):
    """Token + position + segment embeddings, LayerNorm, dropout.

    Args:
        tables: embeddings of another encoder, whose tables are used here too (the same parameters, not copies;
            paper, section 3.2).
        sharing: which tables are shared, and how.
        share_norm: whether the LayerNorm is shared too.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        tables: "Embeddings | None" = None,
        sharing: EmbeddingSharing = "tables",
        share_norm: bool = False,
    ) -> None:
        super().__init__()
        size = config.embedding_size
        other_tables = None if sharing == "tokens" else tables
        self.token: AnyEmbedding = (
            share_embedding(tables.token, sharing) if tables else nn.Embedding(config.vocabulary_size, size)
        )
        self.position: AnyEmbedding = (
            share_embedding(other_tables.position, sharing)
            if other_tables
            else nn.Embedding(config.max_positions, size)
        )
        self.segment: AnyEmbedding = (
            share_embedding(other_tables.segment, sharing)
            if other_tables
            else nn.Embedding(config.type_vocabulary_size, size)
        )
        self.norm: nn.LayerNorm = (
            tables.norm if tables and share_norm else nn.LayerNorm(size, eps=config.layer_norm_epsilon)
        )
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        inputs_embeds_BLE: Tensor | None = None,
        positions_BL: Tensor | None = None,
    ) -> Tensor:
        """Return the embeddings (B, L, E); without `positions_BL`, positions are those of the columns."""
        one_segment = segment_ids_BL is None or len(self.segment.weight) == 1
        segments_BLE = self.segment.weight[0] if one_segment else self.segment(segment_ids_BL)
        tokens_BLE = self.token(ids_BL) if inputs_embeds_BLE is None else inputs_embeds_BLE
        table_LE = self.position.weight
        position = table_LE[: ids_BL.shape[1]] if positions_BL is None else F.embedding(positions_BL, table_LE)
        x_BLE = tokens_BLE + position + segments_BLE
        return self.dropout(self.norm(x_BLE))


class Attention(nn.Module):
    """Multi-head self-attention; the three input projections are one matrix product.

    Args:
        dropout: dropout probability of the attention probabilities during training.
    """

    def __init__(self, hidden_size: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x_BLD: Tensor,
        mask: AttentionMask,
        query_states_BND: Tensor | None = None,
        positions_BN: Tensor | None = None,
    ) -> Tensor:
        """Return the attention output (B, N, D), or (B, L, D).

        Args:
            x_BLD: the states that keys and values are computed from.
            mask: (B, 1, 1, L) True at keys that may be attended to, or (B, 1, N, L) numbers that are added to the
                scores; None: every key may be attended to. A `DocumentMask`: `x_BLD` has little padding (T, D), as
                has the output for all positions.
            query_states_BND: the states that queries are computed from; None: `x_BLD`.
            positions_BN: the positions of `query_states_BND`.
        """
        p = self.dropout.p if self.training else 0.0
        y_BND = attend_from(
            query_states_BND, x_BLD, mask, positions_BN, layer=self.query_key_value, heads=self.heads,
            attend=lambda query_BNHK, packed_BLGHK, mask: attend(query_BNHK, packed_BLGHK, mask, p),
            attend_documents=lambda packed_TGHK, documents: attend_documents(packed_TGHK, documents, p),
        )  # fmt: skip
        return self.output(y_BND)


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and followed by LayerNorm (post-norm)."""

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
        mask: AttentionMask,
        positions_BN: Tensor | None = None,
    ) -> Tensor:
        """Return the new states (B, L, D), or (B, N, D) at `positions_BN`, without computing the others.

        With a `DocumentMask`, `x_BLD` and the states of all positions have little padding (T, D).
        """
        residual_BND = select_states(x_BLD, mask, positions_BN)
        query_states_BND = None if positions_BN is None else residual_BND
        mask = select_queries(mask, positions_BN)
        attended_BND = self.attention(x_BLD, mask, query_states_BND, positions_BN)
        x_BND = self.attention_norm(self.dropout(attended_BND, residual=residual_BND))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x_BND), residual=x_BND))


class BertEncoder(EncoderModule):
    """Computes one state for each token id.

    Args:
        tables, sharing, share_norm: as in `Embeddings`.
    """

    config: BertConfig

    def __init__(
        self,
        config: BertConfig,
        *,
        tables: Embeddings | None = None,
        sharing: EmbeddingSharing = "tables",
        share_norm: bool = False,
    ) -> None:
        super().__init__()
        assert config.vocabulary_size > 0, "set vocabulary_size before the network is built"
        self.config = config
        self.embeddings = Embeddings(config, tables=tables, sharing=sharing, share_norm=share_norm)
        self.projection = nn.Identity() if config.square else nn.Linear(config.embedding_size, config.hidden_size)
        blocks: list[nn.Module] = [Block(config) for _ in range(config.layers)]
        share_layers(blocks, config.share_layers, config.layer_groups)
        self.blocks: nn.ModuleList = nn.ModuleList(blocks)
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def attend_to_neighbors(self) -> None:
        first: Block = self.blocks[0]  # type: ignore[assignment]
        attend_to_neighbors(
            self.embeddings.position.weight, self.projection, first.attention.query_key_value.weight,
            heads=self.config.heads, deviation=self.config.initializer_range,
        )  # fmt: skip

    def forward(
        self,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        attention_mask: AttentionMask = None,
        *,
        positions_BN: Tensor | None = None,
        inputs_embeds_BLE: Tensor | None = None,
    ) -> Tensor:
        """Return the states (B, L, D), or (B, N, D) at `positions_BN`.

        Args:
            segment_ids_BL: 0 or 1 for each token; None: all 0. Ignored if the segment table has one row.
            attention_mask: (B, L) True at tokens, False at padding; None: there is no padding, which is faster. Or
                numbers (B, L, L) that are added to the score of each pair of a query and a key. Or where the
                documents are: little is computed at padding, and its states are 0.
            positions_BN: positions whose states are returned; the last block computes no others.
            inputs_embeds_BLE: token embeddings to use in place of those of `ids_BL`.

        Raises:
            ValueError: the inputs are longer than the network has positions.
        """
        self.check_length(ids_BL)
        documents = attention_mask if isinstance(attention_mask, DocumentMask) else None
        positions_BL = documents.positions_BL if documents else None
        x_BLE = self.embeddings(ids_BL, segment_ids_BL, inputs_embeds_BLE, positions_BL)
        x_BLD = self.projection(documents.unpad(x_BLE) if documents else x_BLE)
        mask = mask_of_blocks(attention_mask)
        for block in self.blocks[:-1]:
            x_BLD = block(x_BLD, mask)
        return output_states(self.blocks[-1](x_BLD, mask, positions_BN), mask, positions_BN)
