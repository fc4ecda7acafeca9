"""The encoder of DeBERTa-v2 and DeBERTaV3 (He et al. 2021, 2023): BERT's post-norm blocks with disentangled
attention. Scores depend on the distance of query and key through a table of relative positions that all blocks
share; there are no absolute positions.

Shapes: B batch, L length, T tokens of the batch, N query positions, S = 2 L - 1 distances (R: rows of the table),
D hidden size, E embedding size, H heads, K head size, V vocabulary. The name of a tensor ends in its shape
(`x_BLD`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.config import NonNegativeFloat, NonNegativeInt, PositiveInt
from electra.modeling.encoders.base import (
    ACTIVATIONS,
    Capability,
    EncoderConfig,
    EncoderModule,
    FeedForward,
    HeadStyle,
)
from electra.modeling.encoders.disentangled_start import attend_to_neighbors
from electra.modeling.encoders.selection import (
    attend_from,
    mask_of_blocks,
    output_states,
    select_queries,
    select_states,
)
from electra.modeling.flops import Convention, Network, Terms
from electra.modeling.init import initialize
from electra.modeling.kernels.attention import kept_weights
from electra.modeling.kernels.convolution import Convolution
from electra.modeling.kernels.disentangled_attention import (
    PositionVectors,
    attend_disentangled,
    attend_documents_disentangled,
)
from electra.modeling.kernels.distance_tiles import distance_scores
from electra.modeling.kernels.documents import AttentionMask, DocumentMask
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.kernels.relative_table import RelativeTable
from electra.modeling.sharing import AnyEmbedding, EmbeddingSharing, share_embedding


@dataclass(frozen=True)
class DebertaConfig(EncoderConfig):
    """The shape of a DeBERTa-v2 or DeBERTaV3 encoder."""

    kind: str = "deberta"
    type_vocabulary_size: NonNegativeInt = 0
    layer_norm_epsilon: NonNegativeFloat = 1e-7
    position_buckets: NonNegativeInt = 256
    """Rows of the table of relative positions, for each direction. The nearest half of the distances have a row
    each, longer ones share rows, evenly on a logarithmic scale up to max_positions. 0: a row for each distance up
    to max_positions."""
    content_to_position: bool = True
    """Whether scores have the product of the query with the projected distance."""
    position_to_content: bool = True
    """Whether scores have the product of the key with the projected distance."""
    share_position_projections: bool = True
    """Whether distances are projected by the weights of queries and keys (DeBERTa-v2 and DeBERTaV3)."""
    relative_norm: bool = True
    """Whether there is a LayerNorm of the table of relative positions."""
    convolution_width: NonNegativeInt = 0
    """Width of a convolution over the embeddings, which is added to the first block's output (3 in DeBERTa-v2); 0:
    there is none (DeBERTaV3)."""
    convolution_groups: PositiveInt = 1
    """Groups of channels of the convolution."""
    convolution_activation: Literal["tanh", "gelu", "relu"] = "gelu"
    """Activation of the convolution."""

    limits_length: ClassVar[bool] = False

    @property
    def length_settings(self) -> tuple[str, ...]:
        """None: `max_positions` decides which row of the table a distance has. Inputs may have any length."""
        return ()

    @property
    def capabilities(self) -> frozenset[Capability]:
        capabilities: set[Capability] = {
            "bidirectional", "selected-positions", "pair-mask", "input-embeddings", "document-mask",
            "shared-tables",
        }  # fmt: skip
        return frozenset(capabilities | ({"neighbor-start"} if self.content_to_position else set()))

    @property
    def checkpoint_format(self) -> str:
        """In transformers' class the heads have the activation of the blocks; here they have GELU."""
        return "deberta" if self.activation == "gelu" else "native"

    @property
    def head_style(self) -> HeadStyle:
        return HeadStyle(detection_hidden=False)

    def build(self, *, query_stream: bool = False) -> "DebertaEncoder":
        assert not query_stream, "this encoder has no query stream"
        return DebertaEncoder(self)

    def build_sharing(
        self, embeddings: nn.Module, *, sharing: EmbeddingSharing = "tables", share_norm: bool = False
    ) -> "DebertaEncoder":
        assert isinstance(embeddings, DebertaEmbeddings)
        return DebertaEncoder(self, tables=embeddings, sharing=sharing)

    def flop_terms(self, network: Network, length: int, convention: Convention) -> Terms:
        """The same in both conventions: the script of the paper has no such network.

        Scores of distances are counted as computed on a CPU, also those of no pair. The projections of the
        relative table are not counted: all rows of a batch share them.
        """
        D, last = self.hidden_size, self.layers - 1
        full, queries = (last + network.output_share) * length, (last + network.query_share) * length
        last_queries = network.query_share * length
        last_scores = last_queries * (2 * length - 1) if network.query_share < 1 else distance_scores(length)
        terms = {
            "attention keys and values": self.layers * length * 2 * 2 * D * D,
            "attention queries": queries * 2 * D * D,
            "attention scores": queries * 2 * D * length,
            "attention scores of content to position": 2 * D * (last * distance_scores(length) + last_scores),
            "attention scores of position to content": 2 * D * self.layers * distance_scores(length),
            "attention weighted values": queries * 2 * D * length,
            "attention output": full * 2 * D * D,
            "feed-forward": full * 2 * 2 * D * self.feed_forward_size,
        }
        if not self.content_to_position:
            terms.pop("attention scores of content to position")
        if not self.position_to_content:
            terms.pop("attention scores of position to content")
        if not self.square:
            terms["embedding projection"] = 2.0 * length * self.embedding_size * D
        if self.convolution_width:
            terms["convolution"] = length * 2 * D * D * self.convolution_width / self.convolution_groups
        return terms

    def activation_numbers(self, length: int, *, device: torch.device, dtype: torch.dtype) -> int:
        """Scores of distances are always kept, on an accelerator as the bias of PyTorch's kernel."""
        kept = kept_weights(device, dtype, self.attention_dropout)
        weights = 0 if kept else self.layers * self.heads * length**2
        return super().activation_numbers(length, device=device, dtype=dtype) + weights

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not (self.content_to_position or self.position_to_content):
            yield "content_to_position: without it and position_to_content the network has no positions; set one"
        if self.position_buckets % 2:
            yield f"position_buckets: must be even, got {self.position_buckets}"
        if self.position_buckets and self.position_buckets > 2 * (self.max_positions - 2):
            yield (
                f"position_buckets: {self.position_buckets} are too many for max_positions "
                f"{self.max_positions}; half of them must be fewer than the distances"
            )
        if self.convolution_width and self.convolution_width % 2 == 0:
            yield f"convolution_width: must be odd, got {self.convolution_width}"
        if self.hidden_size % self.convolution_groups:
            yield (
                f"convolution_groups: hidden_size {self.hidden_size} is not divisible into "
                f"{self.convolution_groups} groups"
            )


class DebertaEmbeddings(nn.Module):
    """Token embeddings, segment embeddings if there are any, a projection to the hidden size if they differ,
    LayerNorm, dropout.

    Args:
        tables: embeddings of another encoder, whose tables are used here too.
        sharing: which tables are shared, and how.
    """

    def __init__(
        self,
        config: DebertaConfig,
        *,
        tables: "DebertaEmbeddings | None" = None,
        sharing: EmbeddingSharing = "tables",
    ) -> None:
        super().__init__()
        E, D = config.embedding_size, config.hidden_size
        self.token: AnyEmbedding = (
            share_embedding(tables.token, sharing) if tables else nn.Embedding(config.vocabulary_size, E)
        )
        self.segment: AnyEmbedding | None = None
        if config.type_vocabulary_size:
            shared = None if tables is None or sharing == "tokens" else tables.segment
            self.segment = (
                share_embedding(shared, sharing) if shared else nn.Embedding(config.type_vocabulary_size, E)
            )
        self.projection = nn.Identity() if config.square else nn.Linear(E, D, bias=False)
        self.norm = nn.LayerNorm(D, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, ids_BL: Tensor, segment_ids_BL: Tensor | None = None, inputs_embeds_BLE: Tensor | None = None
    ) -> Tensor:
        x_BLE = self.token(ids_BL) if inputs_embeds_BLE is None else inputs_embeds_BLE
        if self.segment is not None:
            one_segment = segment_ids_BL is None or len(self.segment.weight) == 1
            x_BLE = x_BLE + (self.segment.weight[0] if one_segment else self.segment(segment_ids_BL))
        return self.dropout(self.norm(self.projection(x_BLE)))


class DisentangledAttention(nn.Module):
    """Multi-head self-attention with relative positions; the three input projections are one matrix product."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        D = config.hidden_size
        self.heads, self.config = config.heads, config
        self.query_key_value = nn.Linear(D, 3 * D)
        self.position_key: nn.Linear | None = None
        self.position_query: nn.Linear | None = None
        if not config.share_position_projections:
            self.position_key = nn.Linear(D, D) if config.content_to_position else None
            self.position_query = nn.Linear(D, D) if config.position_to_content else None
        self.output = nn.Linear(D, D)
        self.dropout = Dropout(config.attention_dropout)
        self.position_dropout = Dropout(config.dropout)

    def forward(
        self,
        x_BLD: Tensor,
        positions: tuple[Tensor, Tensor],
        mask: AttentionMask,
        positions_BN: Tensor | None,
        query_states_BND: Tensor | None,
    ) -> Tensor:
        """Return the attention output (B, N, D), or (B, L, D).

        Args:
            x_BLD: the states that keys and values are computed from.
            positions: the output of `RelativeTable`.
            mask: (B, 1, N, L) True at keys that may be attended to, or numbers that are added to the scores. Or
                where the documents are: `x_BLD` has little padding (T, D), and so has the output for all
                positions.
            positions_BN, query_states_BND: the positions of queries and their states; None: all.
        """
        p, vectors = self.dropout.p if self.training else 0.0, self._position_vectors(*positions)
        y_BND = attend_from(
            query_states_BND, x_BLD, mask, positions_BN, layer=self.query_key_value, heads=self.heads,
            attend=lambda query_BNHK, packed_BLGHK, mask: attend_disentangled(
                query_BNHK, packed_BLGHK, vectors, positions_BN, mask, p
            ),
            attend_documents=lambda packed_TGHK, documents: attend_documents_disentangled(
                packed_TGHK, vectors, documents, p
            ),
        )  # fmt: skip
        return self.output(y_BND)

    def _position_vectors(self, table_RD: Tensor, rows_S: Tensor) -> PositionVectors:
        table_RD, D = self.position_dropout(table_RD), self.output.in_features
        keys_SHK = queries_SHK = None
        if self.config.content_to_position:
            keys_SHK = self.project(table_RD, self.position_key, slice(D, 2 * D)).index_select(0, rows_S.flip(0))
        if self.config.position_to_content:
            queries_SHK = self.project(table_RD, self.position_query, slice(D)).index_select(0, rows_S)
        return PositionVectors(keys_SHK, queries_SHK)

    def project(self, table_RD: Tensor, own: nn.Linear | None, part: slice) -> Tensor:
        """Return the projected rows (R, H, K), by a layer of their own or by a part of the layer for tokens."""
        layer = self.query_key_value
        weight, bias = (layer.weight[part], layer.bias[part]) if own is None else (own.weight, own.bias)
        return F.linear(table_RD, weight, bias).unflatten(-1, (self.heads, -1))


class DebertaBlock(nn.Module):
    """Attention and feed-forward, each added to its input and followed by LayerNorm (post-norm)."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.attention = DisentangledAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_BLD: Tensor,
        positions: tuple[Tensor, Tensor],
        mask: AttentionMask,
        positions_BN: Tensor | None = None,
    ) -> Tensor:
        """Return the new states (B, L, D), or (B, N, D) at `positions_BN`, without computing the others.

        With a `DocumentMask`, `x_BLD` and the states of all positions have little padding (T, D).
        """
        residual_BND = select_states(x_BLD, mask, positions_BN)
        query_states_BND = None if positions_BN is None else residual_BND
        mask = select_queries(mask, positions_BN)
        attended_BND = self.attention(x_BLD, positions, mask, positions_BN, query_states_BND)
        x_BND = self.attention_norm(self.dropout(attended_BND, residual=residual_BND))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x_BND), residual=x_BND))


class DebertaEncoder(EncoderModule):
    """Computes one state for each token id.

    Args:
        tables, sharing: as in `DebertaEmbeddings`.
    """

    config: DebertaConfig

    def __init__(
        self,
        config: DebertaConfig,
        *,
        tables: DebertaEmbeddings | None = None,
        sharing: EmbeddingSharing = "tables",
    ) -> None:
        super().__init__()
        assert config.vocabulary_size > 0, "set vocabulary_size before the network is built"
        self.config = config
        self.embeddings = DebertaEmbeddings(config, tables=tables, sharing=sharing)
        self.relative_positions = RelativeTable(
            config.hidden_size,
            buckets=config.position_buckets,
            max_distance=config.max_positions,
            norm_epsilon=config.layer_norm_epsilon if config.relative_norm else None,
        )
        self.convolution: Convolution | None = None
        if config.convolution_width:
            name = config.convolution_activation
            self.convolution = Convolution(
                config.hidden_size,
                config.convolution_width,
                groups=config.convolution_groups,
                activation=torch.tanh if name == "tanh" else ACTIVATIONS[name],
                dropout=config.dropout,
                norm_epsilon=config.layer_norm_epsilon,
                deviation=config.initializer_range,
            )
        self.blocks = nn.ModuleList(DebertaBlock(config) for _ in range(config.layers))
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def attend_to_neighbors(self) -> None:
        attention: DisentangledAttention = self.blocks[0].attention  # type: ignore[assignment]
        terms = 1 + self.config.content_to_position + self.config.position_to_content
        attend_to_neighbors(
            self.relative_positions, attention.query_key_value, attention.position_key,
            heads=self.config.heads, terms=terms,
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
            segment_ids_BL: the segment of each token; None: all 0. Ignored if there are not several segments.
            attention_mask: (B, L) True at tokens, False at padding; None: there is no padding, which is faster. Or
                numbers (B, L, L) that are added to the score of each pair of a query and a key. Or where the
                documents are: little is computed at padding, and its states are 0.
            positions_BN: positions whose states are returned; the last block computes no others.
            inputs_embeds_BLE: token embeddings to use in place of those of `ids_BL`.
        """
        x_BLD, length = self.embeddings(ids_BL, segment_ids_BL, inputs_embeds_BLE), ids_BL.shape[1]
        if isinstance(attention_mask, DocumentMask):
            x_BLD, length = attention_mask.unpad(x_BLD), attention_mask.groups[-1].length
        mask = mask_of_blocks(attention_mask)
        embeddings_BLD, positions, last = x_BLD, self.relative_positions(length), len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            selected_BN = positions_BN if layer == last else None
            x_BLD = block(x_BLD, positions, mask, selected_BN)
            if layer == 0 and self.convolution is not None:
                added_BLD = self.convolution(embeddings_BLD, attention_mask)
                x_BLD = self.convolution.norm(x_BLD + select_states(added_BLD, mask, selected_BN))
        return output_states(x_BLD, mask, positions_BN)
