"""The Transformer encoder of BERT and ELECTRA: post-norm, learnt positions, factorised embeddings.

Shapes: B batch, L length, N asking or wanted positions, D hidden size, E embedding size, F feed-forward size,
H heads, K head size, V vocabulary. A tensor's name ends with its shape (`x_BLD`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.init import initialize
from electra.modeling.kernels.attention import Attention
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.kernels.unpadding import Unpadding
from electra.modeling.sharing import AnyEmbedding, LayerSharing, Share, share_parts, shared

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass(frozen=True)
class EncoderConfig:
    """The shape of one encoder (paper, table 6)."""

    layers: int = 12
    """Transformer blocks."""
    hidden_size: int = 256
    """Width of the states between the blocks."""
    embedding_size: int = 128
    """Width of the embedding tables; where it differs from the hidden size a projection joins them."""
    feed_forward_size: int = 1024
    """Inner width of the feed-forward layers."""
    heads: int = 4
    """Attention heads; each is hidden_size / heads wide."""
    vocabulary_size: int = 0
    """Rows of the token table; 0: as many as the data's tokenizer has."""
    positions: Literal["learnt", "relative"] = "learnt"
    """How a network knows where tokens stand. learnt: a vector for each position, as in BERT. relative: by how far
    they are from each other, as in Transformer-XL and XLNet."""
    max_positions: int = 512
    """Rows of the position table: the longest input. Relative positions have no table and no longest input."""
    direction: Literal["both", "left"] = "both"
    """With relative positions: a token looks at all the others (XLNet), or only at those before it
    (Transformer-XL)."""
    memory_length: int = 0
    """With relative positions: each block attends to its states of so many earlier tokens besides, without a
    gradient. In training that is for rows that go on from batch to batch (packing.builder stream)."""
    type_vocabulary_size: int = 2
    """Rows of the segment table; with 1, every token belongs to the first segment (RoBERTa)."""
    share_layers: LayerSharing = "none"
    """What the blocks have in common (ALBERT): nothing, all their weights, those of attention, or of the
    feed-forward layers. It saves memory, not time."""
    layer_groups: int = 1
    """With share_layers: weights are shared within each of so many runs of blocks, not between them."""
    activation: Activation = "gelu"
    """Between the two layers of a feed-forward; gelu is the exact one (erf), as in the original."""
    dropout: float = 0.1
    """Dropout of embeddings, attention outputs and feed-forward outputs while training."""
    attention_dropout: float = 0.1
    """Dropout of attention probabilities while training."""
    layer_norm_epsilon: float = 1e-12
    """Added to the variance in every LayerNorm."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal that the embedding tables start from."""
    linear_initializer_range: float = 0.02
    """Standard deviation of the truncated normal that the weights of linear layers start from; 0: for each layer,
    one over the root of its inputs."""

    @property
    def square(self) -> bool:
        """Whether embeddings are as wide as states, as BERT's are; else a projection joins them."""
        return self.embedding_size == self.hidden_size

    def problems(self) -> Iterator[str]:
        if self.heads < 1 or self.hidden_size % max(self.heads, 1):
            yield f"heads: {self.heads} heads cannot share a hidden_size of {self.hidden_size} evenly"
        for name in (
            "layers", "hidden_size", "embedding_size", "feed_forward_size", "max_positions",
            "type_vocabulary_size",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                yield f"{name}: must be at least 1, got {getattr(self, name)}"
        if self.layer_groups < 1 or (self.layers >= 1 and self.layers % self.layer_groups):
            yield f"layer_groups: {self.layers} layers do not divide into {self.layer_groups} groups"
        if self.layer_groups > 1 and self.share_layers == "none":
            yield "layer_groups: is for share_layers; leave it at 1"
        if self.vocabulary_size < 0:
            yield f"vocabulary_size: must not be negative, got {self.vocabulary_size}"
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                yield f"{name}: must lie in [0, 1), got {getattr(self, name)}"
        if self.memory_length < 0:
            yield f"memory_length: must not be negative, got {self.memory_length}"
        if self.positions == "learnt":
            for name in ("direction", "memory_length"):
                if getattr(self, name) != getattr(EncoderConfig, name):
                    yield f"{name}: needs positions relative; leave it out, or set that"
            return
        if not self.square:
            yield (
                f"embedding_size: with relative positions it is the hidden_size, {self.hidden_size}; "
                f"got {self.embedding_size}"
            )
        if self.hidden_size % 2:
            yield f"hidden_size: must be even with relative positions, got {self.hidden_size}"
        if self.share_layers != "none":
            yield "share_layers: blocks with relative positions share nothing; set it to none"


class Embeddings(nn.Module):
    """Token + position + segment embeddings, LayerNorm, dropout.

    Args:
        tables: another encoder's embeddings whose three tables are to be used here too (the same parameters,
            not copies; paper, section 3.2). The LayerNorm stays this network's own, unless `share_norm`.
        share: which of the tables, and how.
    """

    def __init__(
        self,
        config: EncoderConfig,
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


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.feed_forward_size)
        self.outer = nn.Linear(config.feed_forward_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x_BLD)))


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and normalised afterwards (post-norm)."""

    def __init__(self, config: EncoderConfig) -> None:
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
            query_states_BND = gather_positions(
                x_BLD if unpadding is None else unpadding.rows(x_BLD), positions_BN
            )
        attended_BND = self.attention(x_BLD, mask_B11L, query_states_BND, unpadding)
        x_BND = self.attention_norm(
            self.dropout(attended_BND, to=x_BLD if query_states_BND is None else query_states_BND)
        )
        return self.feed_forward_norm(self.dropout(self.feed_forward(x_BND), to=x_BND))


class Encoder(nn.Module):
    """Token ids in, one state a token out.

    Args:
        tables, share, share_norm: embeddings whose tables this encoder shares, which of them, and their LayerNorm
            (see `Embeddings`).
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        tables: Embeddings | None = None,
        share: Share = "tables",
        share_norm: bool = False,
    ) -> None:
        super().__init__()
        assert config.vocabulary_size > 0, "the vocabulary's size is settled before a network is built"
        self.config = config
        self.embeddings = Embeddings(config, tables=tables, share=share, share_norm=share_norm)
        self.projection = nn.Identity() if config.square else nn.Linear(config.embedding_size, config.hidden_size)
        blocks: list[nn.Module] = [Block(config) for _ in range(config.layers)]
        share_parts(blocks, config.share_layers, config.layer_groups)
        self.blocks: nn.ModuleList = nn.ModuleList(blocks)
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

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
        x_BLD = self.projection(x_BLD if unpadding is None else unpadding.tokens(x_BLD))
        for block in self.blocks[:-1]:
            x_BLD = block(x_BLD, mask_B11L, unpadding=unpadding)
        x_BLD = self.blocks[-1](x_BLD, mask_B11L, positions_BN, unpadding)
        return x_BLD if unpadding is None or positions_BN is not None else unpadding.rows(x_BLD)


def gather_positions(values_BLx: Tensor, positions_BN: Tensor) -> Tensor:
    """Values at certain positions of each row: (B, L) to (B, N), or (B, L, D) to (B, N, D)."""
    rows_B1 = torch.arange(values_BLx.shape[0], device=values_BLx.device)[:, None]
    return values_BLx[rows_B1, positions_BN]


def attention_mask(lengths_B: Tensor, length: int) -> Tensor | None:
    """True at the first `lengths_B` positions of each row (B, L); None when every row is full.

    On an accelerator the mask is always made: asking whether it is needed would stall the queue.
    """
    if lengths_B.device.type == "cpu" and bool((lengths_B == length).all()):
        return None
    return torch.arange(length, device=lengths_B.device) < lengths_B[:, None]
