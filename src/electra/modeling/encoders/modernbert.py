"""The encoder of ModernBERT (Warner et al. 2024): pre-norm blocks without biases, rotary positions, gated
feed-forward layers, and attention within a window in most blocks. Each of these is a setting.

Shapes: B batch, L length, N query positions, D hidden size, E embedding size, H heads, K head size, V vocabulary.
The name of a tensor ends in its shape (`x_BLD`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.config import DropoutProbability, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from electra.modeling.encoders import absolute_start, rotary_start
from electra.modeling.encoders.base import (
    ACTIVATIONS,
    Capability,
    EncoderConfig,
    EncoderModule,
    HeadStyle,
)
from electra.modeling.encoders.rotary_attention import AttentionInput, RotaryAttention
from electra.modeling.encoders.selection import mask_of_blocks, output_states, select_states
from electra.modeling.flops import Convention, Network, Terms
from electra.modeling.init import initialize
from electra.modeling.kernels.attention import kept_weights
from electra.modeling.kernels.document_attention import has_variable_length_attention
from electra.modeling.kernels.documents import AttentionMask, DocumentMask
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.kernels.local_attention import splits_into_windows, within_window
from electra.modeling.kernels.rotary import rotary_angles
from electra.modeling.sharing import AnyEmbedding, EmbeddingSharing, share_embedding


@dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """The shape of a ModernBERT encoder, or of one between BERT and ModernBERT."""

    kind: str = "modernbert"
    type_vocabulary_size: PositiveInt = 1
    max_positions: PositiveInt = 8192
    layer_norm_epsilon: NonNegativeFloat = 1e-5
    dropout: DropoutProbability = 0.0
    attention_dropout: DropoutProbability = 0.0
    norm: Literal["pre", "post"] = "pre"
    """Place of LayerNorm in a block: before attention and feed-forward (ModernBERT), or after they are added to
    their input (BERT)."""
    bias: bool = False
    """Whether the linear layers of blocks and heads have biases."""
    norm_bias: bool = False
    """Whether LayerNorms have biases."""
    position_encoding: Literal["rotary", "learned"] = "rotary"
    """How positions are encoded: queries and keys are rotated, or a table of positions is added to the
    embeddings."""
    rope_theta: PositiveFloat = 160_000.0
    """Base of the rotary frequencies in global blocks."""
    local_rope_theta: PositiveFloat = 10_000.0
    """Base of the rotary frequencies in local blocks."""
    gated_feed_forward: bool = True
    """Whether feed-forward layers are gated (GeGLU with activation gelu). A gated layer has two inner products of
    feed_forward_size."""
    local_window: NonNegativeInt = 128
    """In local blocks a token attends to the tokens at most half of this number of positions away; 0: all blocks
    are global."""
    global_every: PositiveInt = 3
    """Every so many blocks, the first one included, are global."""
    first_attention_norm: bool = False
    """Whether the first block has a LayerNorm before attention; the embeddings have one already."""
    final_norm: bool = True
    """Whether there is a LayerNorm after the last block."""
    depth_scaled_init: bool = True
    """Whether output layers of blocks are initialized with smaller weights, by the square root of twice the number
    of blocks."""

    run_settings: ClassVar[tuple[str, ...]] = (*EncoderConfig.run_settings, "depth_scaled_init")

    @property
    def length_settings(self) -> tuple[str, ...]:
        rotary = self.position_encoding == "rotary"
        return ("max_positions", "rope_theta", "local_rope_theta") if rotary else ()

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({
            "bidirectional", "selected-positions", "pair-mask", "input-embeddings", "document-mask",
            "shared-tables", "neighbor-start",
        })  # fmt: skip

    @property
    def checkpoint_format(self) -> str:
        """transformers' ModernBERT has one place of LayerNorm, rotary positions, gated layers and no segments."""
        same = self.norm == "pre" and self.final_norm and not self.first_attention_norm
        same &= self.position_encoding == "rotary" and self.gated_feed_forward and self.type_vocabulary_size == 1
        return "modernbert" if same else "native"

    @property
    def head_style(self) -> HeadStyle:
        return HeadStyle(bias=self.bias, norm_bias=self.norm_bias, prediction_head=True, projects_after_norm=True)

    @property
    def has_position_table(self) -> bool:
        return self.position_encoding == "learned"

    def is_local(self, layer: int) -> bool:
        """Whether a block attends within a window only."""
        return self.local_window > 0 and layer % self.global_every > 0

    def attends_in_one_call(self, device: torch.device, dtype: torch.dtype) -> bool:
        head_size = self.hidden_size // self.heads
        return has_variable_length_attention(device, dtype, self.attention_dropout, head_size)

    def build(self, *, query_stream: bool = False) -> "ModernBertEncoder":
        assert not query_stream, "this encoder has no query stream"
        return ModernBertEncoder(self)

    def build_sharing(
        self, embeddings: nn.Module, *, sharing: EmbeddingSharing = "tables", share_norm: bool = False
    ) -> "ModernBertEncoder":
        assert isinstance(embeddings, ModernBertEmbeddings)
        return ModernBertEncoder(self, tables=embeddings, sharing=sharing)

    def flop_terms(self, network: Network, length: int, convention: Convention) -> Terms:
        """The same in both conventions: the script of the paper has no such network."""
        D, last = self.hidden_size, self.layers - 1
        terms = dict.fromkeys(("attention projections", "attention scores and values", "feed-forward"), 0.0)
        if not self.square:
            terms["embedding projection"] = 2.0 * length * self.embedding_size * D
        for layer in range(self.layers):
            outputs = length * (network.output_share if layer == last else 1.0)
            queries = rows = length * (network.query_share if layer == last else 1.0)
            keys = float(length)
            if self.is_local(layer) and splits_into_windows(length, self.reach):  # queries in blocks, all of them
                queries, keys, rows = float(length), 3.0 * self.reach, -(-length // self.reach) * self.reach
            terms["attention projections"] += 2 * D * D * (2 * length + queries + outputs)
            terms["attention scores and values"] += 4 * D * rows * keys
            products = 3 if self.gated_feed_forward else 2
            terms["feed-forward"] += 2 * products * D * self.feed_forward_size * outputs
        return terms

    @property
    def reach(self) -> int:
        """How many positions a token in a local block sees to each side."""
        return self.local_window // 2

    def activation_numbers(self, length: int, *, device: torch.device, dtype: torch.dtype) -> int:
        """Gated layers keep four vectors of their inner size, windows their keys and values three times."""
        D = self.hidden_size
        vectors = 10 * D + (4 if self.gated_feed_forward else 2) * self.feed_forward_size
        weights = self.heads * kept_weights(device, dtype, self.attention_dropout)
        local = sum(self.is_local(layer) for layer in range(self.layers))
        numbers = self.layers * vectors + (self.layers - local) * weights * length
        if splits_into_windows(length, self.reach):
            return length * (numbers + local * (4 * D + weights * 3 * self.reach))
        return length * (numbers + local * weights * length)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.local_window % 2:
            yield f"local_window: must be even, got {self.local_window}"
        odd = self.hidden_size % self.heads == 0 and self.hidden_size // self.heads % 2 == 1
        if self.position_encoding == "rotary" and odd:
            yield f"heads: rotary positions need an even head size, got {self.hidden_size // self.heads}"


class ModernBertEmbeddings(nn.Module):
    """Token embeddings, a projection to the hidden size if they differ, LayerNorm, dropout.

    The projection is before the LayerNorm, so that table and projection can be multiplied into one table for
    transformers.

    Args:
        tables: embeddings of another encoder, whose token table is used here too.
        sharing: how it is shared.
    """

    def __init__(
        self,
        config: ModernBertConfig,
        *,
        tables: "ModernBertEmbeddings | None" = None,
        sharing: EmbeddingSharing = "tables",
    ) -> None:
        super().__init__()
        E, D = config.embedding_size, config.hidden_size
        self.token: AnyEmbedding = (
            share_embedding(tables.token, sharing) if tables else nn.Embedding(config.vocabulary_size, E)
        )
        self.projection = nn.Identity() if config.square else nn.Linear(E, D, bias=False)
        self.position = nn.Embedding(config.max_positions, D) if config.position_encoding == "learned" else None
        self.segment = nn.Embedding(config.type_vocabulary_size, D) if config.type_vocabulary_size > 1 else None
        self.norm = nn.LayerNorm(D, eps=config.layer_norm_epsilon, bias=config.norm_bias)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        inputs_embeds_BLE: Tensor | None = None,
        positions_BL: Tensor | None = None,
    ) -> Tensor:
        """Return the embeddings (B, L, D); without `positions_BL`, positions are those of the columns.

        The shape of all arguments can also be (T, ...), with positions.
        """
        x_BLD = self.projection(self.token(ids_BL) if inputs_embeds_BLE is None else inputs_embeds_BLE)
        if self.position is not None:
            table_LD = self.position.weight
            length = ids_BL.shape[-1]
            x_BLD = x_BLD + (table_LD[:length] if positions_BL is None else F.embedding(positions_BL, table_LD))
        if self.segment is not None:
            x_BLD = x_BLD + (self.segment.weight[0] if segment_ids_BL is None else self.segment(segment_ids_BL))
        return self.dropout(self.norm(x_BLD))


class GatedFeedForward(nn.Module):
    """Two inner products; the activation of one is multiplied with the other (GeGLU: Shazeer 2020)."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        inner = config.feed_forward_size * (2 if config.gated_feed_forward else 1)
        self.inner = nn.Linear(config.hidden_size, inner, bias=config.bias)
        self.outer = nn.Linear(config.feed_forward_size, config.hidden_size, bias=config.bias)
        self.activation, self.gated = ACTIVATIONS[config.activation], config.gated_feed_forward

    def forward(self, x_BLD: Tensor) -> Tensor:
        x_BLF = self.inner(x_BLD)
        if not self.gated:
            return self.outer(self.activation(x_BLF))
        # Elementwise functions of a slice of rows take several times as long on a CPU as a copy and the function.
        inner_BLF, gate_BLF = (part_BLF.contiguous() for part_BLF in x_BLF.chunk(2, -1))
        return self.outer(self.activation(inner_BLF) * gate_BLF)


class ModernBertBlock(nn.Module):
    """Attention and feed-forward, each added to its input."""

    def __init__(self, config: ModernBertConfig, layer: int) -> None:
        super().__init__()

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon, bias=config.norm_bias)

        self.pre_norm = config.norm == "pre"
        has_norm = layer > 0 or config.first_attention_norm or not self.pre_norm
        self.attention_norm = norm() if has_norm else nn.Identity()
        self.attention = RotaryAttention(
            config.hidden_size, config.heads, bias=config.bias, dropout=config.attention_dropout
        )
        self.feed_forward_norm = norm()
        self.feed_forward = GatedFeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, shared: AttentionInput, positions_BN: Tensor | None = None) -> Tensor:
        """Return the new states (B, L, D), or (B, N, D) at `positions_BN`, without computing the others."""
        residual_BND = select_states(x_BLD, shared.mask, positions_BN)
        if self.pre_norm:
            attended_BND = self.attention(self.attention_norm(x_BLD), shared, positions_BN)
            x_BND = self.dropout(attended_BND, residual=residual_BND)
            return self.dropout(self.feed_forward(self.feed_forward_norm(x_BND)), residual=x_BND)
        attended_BND = self.attention(x_BLD, shared, positions_BN)
        x_BND = self.attention_norm(self.dropout(attended_BND, residual=residual_BND))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x_BND), residual=x_BND))


class ModernBertEncoder(EncoderModule):
    """Computes one state for each token id.

    Args:
        tables, sharing: as in `ModernBertEmbeddings`.
    """

    config: ModernBertConfig

    def __init__(
        self,
        config: ModernBertConfig,
        *,
        tables: ModernBertEmbeddings | None = None,
        sharing: EmbeddingSharing = "tables",
    ) -> None:
        super().__init__()
        assert config.vocabulary_size > 0, "set vocabulary_size before the network is built"
        self.config = config
        self.embeddings = ModernBertEmbeddings(config, tables=tables, sharing=sharing)
        self.blocks = nn.ModuleList(ModernBertBlock(config, layer) for layer in range(config.layers))
        self.final_norm: nn.Module = nn.Identity()
        if config.final_norm:
            self.final_norm = nn.LayerNorm(
                config.hidden_size, eps=config.layer_norm_epsilon, bias=config.norm_bias
            )
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)
        if config.depth_scaled_init:
            self._scale_output_layers()

    @property
    def stacked_matrices(self) -> dict[str, int]:
        gated = {"inner": 2} if self.config.gated_feed_forward else {}
        return {**super().stacked_matrices, **gated}

    @torch.no_grad()
    def _scale_output_layers(self) -> None:
        """Divide the initial weights by which blocks add to their input."""
        for module in self.blocks.modules():
            if isinstance(module, RotaryAttention):
                module.output.weight /= math.sqrt(2 * self.config.layers)
            elif isinstance(module, GatedFeedForward):
                module.outer.weight /= math.sqrt(2 * self.config.layers)

    def attend_to_neighbors(self) -> None:
        first: ModernBertBlock = self.blocks[0]  # type: ignore[assignment]
        query_key_value_XD, heads = first.attention.query_key_value.weight, self.config.heads
        if self.embeddings.position is not None:
            table_LD, deviation = self.embeddings.position.weight, self.config.initializer_range
            absolute_start.attend_to_neighbors(
                table_LD, nn.Identity(), query_key_value_XD, heads=heads, deviation=deviation
            )
            return
        rotary_start.attend_to_neighbors(
            self.token_table.weight, self.embeddings.projection, self.embeddings.norm, query_key_value_XD,
            heads=heads, theta=self.config.rope_theta,
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
            segment_ids_BL: 0 or 1 for each token; None: all 0. Ignored if there is no segment table.
            attention_mask: (B, L) True at tokens, False at padding; None: there is no padding, which is faster. Or
                numbers (B, L, L) that are added to the score of each pair of a query and a key. Or where the
                documents are: little is computed at padding, and its states are 0.
            positions_BN: positions whose states are returned; the last block computes no others.
            inputs_embeds_BLE: token embeddings to use in place of those of `ids_BL`.

        Raises:
            ValueError: the inputs are longer than the network has positions.
        """
        self.check_length(ids_BL)
        positions_BL = None
        if isinstance(attention_mask, DocumentMask):
            positions_BL, ids_BL = map(attention_mask.unpad, (attention_mask.positions, ids_BL))
            if segment_ids_BL is not None:
                segment_ids_BL = attention_mask.unpad(segment_ids_BL)
            if inputs_embeds_BLE is not None:
                inputs_embeds_BLE = attention_mask.unpad(inputs_embeds_BLE)
        x_BLD = self.embeddings(ids_BL, segment_ids_BL, inputs_embeds_BLE, positions_BL)
        global_input, local_input = self._attention_inputs(x_BLD, mask_of_blocks(attention_mask), positions_BL)
        last = len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            shared = local_input if self.config.is_local(layer) else global_input
            x_BLD = block(x_BLD, shared, positions_BN if layer == last else None)
        return output_states(self.final_norm(x_BLD), attention_mask, positions_BN)

    def _attention_inputs(
        self, x_BLD: Tensor, mask: AttentionMask, positions: Tensor | None
    ) -> tuple[AttentionInput, AttentionInput]:
        """Return what global blocks and what local blocks share."""
        config, length, device = self.config, x_BLD.shape[-2], x_BLD.device
        angles, local_angles = None, None
        if config.position_encoding == "rotary":
            positions = torch.arange(length, device=device) if positions is None else positions
            head_size = config.hidden_size // config.heads
            angles = rotary_angles(positions, head_size, config.rope_theta)
            local_angles = rotary_angles(positions, head_size, config.local_rope_theta)
        if isinstance(mask, DocumentMask):
            return AttentionInput(mask, angles), AttentionInput(mask, local_angles, config.reach)
        global_input, reach = AttentionInput(mask, angles), config.reach
        if not reach or reach + 1 >= length:
            return global_input, AttentionInput(mask, local_angles)
        if splits_into_windows(length, reach) and (mask is None or mask.dtype == torch.bool):
            return global_input, AttentionInput(mask, local_angles, reach)
        return global_input, AttentionInput(within_window(mask, length, reach, device=device), local_angles)
