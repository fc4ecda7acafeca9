"""The encoders of Transformer-XL (Dai et al. 2019) and XLNet (Yang et al. 2019): relative positions, a memory of
earlier tokens, and a second stream of states that predict a token without seeing it.

A memory is one tensor (Y, B, M, D): for each block and row the inputs of the block at the last tokens before this
batch, the latest token last. A place whose states are all 0 is empty, and no token attends to it. So a memory of
zeros belongs to rows that have just begun, and the rows of a batch may have memories of different lengths.

Shapes: B batch, L length, M memory length, C = M + L keys, N output positions or targets, X queries of both
streams, R distances, D hidden size, Y blocks. A tensor's name ends with its shape (`x_BLD`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from electra.config import NonNegativeInt
from electra.modeling.encoders.base import Capability, EncoderConfig, EncoderModule, FeedForward, gather_positions
from electra.modeling.flops import MEMORY_KEYS_AND_VALUES, Convention, Network, Terms
from electra.modeling.init import initialize
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.kernels.relative_attention import RelativeAttention
from electra.modeling.kernels.relative_mask import MaskSpec, QueryMask, can_sync, distances, sinusoids


@dataclass(frozen=True)
class RelativeConfig(EncoderConfig):
    """The shape of a Transformer-XL or XLNet encoder."""

    kind: str = "relative"
    direction: Literal["both", "left"] = "both"
    """Tokens that a token attends to: all others (XLNet), or only those before it (Transformer-XL)."""
    memory_length: NonNegativeInt = 0
    """Number of earlier tokens whose states each block attends to as well, without a gradient. In training this
    needs rows that continue from batch to batch (packing.builder stream)."""

    run_settings: ClassVar[tuple[str, ...]] = (*EncoderConfig.run_settings, "direction", "memory_length")
    square_only: ClassVar[bool] = True
    limits_length: ClassVar[bool] = False
    generator_kind: ClassVar[str | None] = "bert"

    @property
    def checkpoint_format(self) -> str:
        return "xlnet"

    @property
    def capabilities(self) -> frozenset[Capability]:
        direction: Capability = "left-to-right" if self.direction == "left" else "bidirectional"
        return frozenset({direction, "selected-positions", "input-embeddings", "memory", "two-streams"})

    def build(self, *, query_stream: bool = False) -> "RelativeEncoder":
        return RelativeEncoder(self, query_stream=query_stream)

    def without_memory(self) -> "RelativeConfig":
        return replace(self, memory_length=0)

    def as_generator(self) -> "RelativeConfig":
        return replace(self, direction="both")

    def flop_terms(self, network: Network, length: int, convention: Convention) -> Terms:
        """Count by the modern convention; there is no count by the paper's convention."""
        return relative_terms(
            self, length, memory=self.memory_length, targets=network.target_share * length, segments=True,
            outputs=network.query_share * length,  # packed rows: the whole block is computed for all positions
            batch_size=math.inf,
        )  # fmt: skip

    def activation_numbers(self, length: int, *, device: torch.device, dtype: torch.dtype) -> int:
        """Attention weights are always kept, with dropout twice; also count keys and values of the memory."""
        vectors = length * (10 * self.hidden_size + 2 * self.feed_forward_size)
        pairs = self.heads * length * (length + self.memory_length) * (2 if self.attention_dropout else 1)
        return self.layers * (vectors + pairs + 2 * self.hidden_size * self.memory_length)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.square:
            yield (
                f"embedding_size: with relative positions it must equal hidden_size, {self.hidden_size}; "
                f"got {self.embedding_size}"
            )
        if self.hidden_size % 2:
            yield f"hidden_size: must be even with relative positions, got {self.hidden_size}"


@dataclass(frozen=True)
class RelativeStates:
    """The output of `RelativeEncoder.encode`.

    Attributes:
        states_BND: states of all tokens (B, L, D), or of the positions that were asked for (B, N, D).
        targets_BND: states of the query stream, one for each target; None: there are no targets.
        memory_YBMD: the memory for the next batch, without a gradient; None: the network has no memory.
    """

    states_BND: Tensor
    targets_BND: Tensor | None
    memory_YBMD: Tensor | None


@dataclass
class Memory:
    """The memory of the rows of a batch. The forward pass of an encoder reads and updates it.

    Attributes:
        length: maximum number of tokens of each row in memory.
        states_YBMD: the memory; None: it is empty.
        new_document_B: True: the row begins a new document, so its memory is cleared first; None: no row does.
    """

    length: int
    states_YBMD: Tensor | None = None
    new_document_B: Tensor | None = None


class TokenEmbeddings(nn.Module):
    """Token embeddings as wide as states, and dropout."""

    def __init__(self, config: RelativeConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_BL: Tensor, inputs_embeds_BLE: Tensor | None = None) -> Tensor:
        return self.dropout(self.token(ids_BL) if inputs_embeds_BLE is None else inputs_embeds_BLE)


class RelativeBlock(nn.Module):
    """Attention and feed-forward, each added to its input and followed by LayerNorm (post-norm)."""

    def __init__(self, config: RelativeConfig) -> None:
        super().__init__()
        self.attention = RelativeAttention(
            config.hidden_size,
            config.heads,
            dropout=config.attention_dropout,
            segments=config.type_vocabulary_size > 1,
        )
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        query_states_BXD: Tensor,
        x_BLD: Tensor,
        memory_BMD: Tensor | None,
        sinusoids_RD: Tensor,
        query_mask: QueryMask,
    ) -> Tensor:
        """Return the new states (B, X, D) of the queries, which attend to the memory and to the tokens."""
        attended_BXD = self.attention(query_states_BXD, x_BLD, memory_BMD, sinusoids_RD, query_mask)
        x_BXD = self.attention_norm(self.dropout(attended_BXD, residual=query_states_BXD))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x_BXD), residual=x_BXD))


class RelativeEncoder(EncoderModule):
    """Computes one state for each token id, and the memory for the next batch.

    With `direction` left it is the network of Transformer-XL, with both that of XLNet. As in `BertEncoder`, and
    unlike their code, there is no dropout inside the feed-forward layers, on the sinusoids and on the last states.
    As in XLNet, and unlike Transformer-XL, embeddings are not multiplied by the square root of their width.

    Args:
        query_stream: whether targets may be given. If not, the network has no start vector for them, which would
            be a parameter without a gradient.
    """

    config: RelativeConfig

    def __init__(self, config: RelativeConfig, *, query_stream: bool = True) -> None:
        super().__init__()
        assert config.vocabulary_size > 0, "set vocabulary_size before the network is built"
        self.config = config
        self.embeddings = TokenEmbeddings(config)
        self.query_stream = nn.Embedding(1, config.hidden_size) if query_stream else None
        self.blocks: nn.ModuleList = nn.ModuleList(RelativeBlock(config) for _ in range(config.layers))
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def compile_forward(self, **options: Any) -> None:
        """Compile `encode`; the code around it, which updates a `Memory`, is not compiled."""
        self.encode = torch.compile(self.encode, **options)  # type: ignore[method-assign]

    def forward(
        self,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        *,
        positions_BN: Tensor | None = None,
        inputs_embeds_BLE: Tensor | None = None,
        memory: Memory | None = None,
        permutation_BLL: Tensor | None = None,
        targets_BN: Tensor | None = None,
    ) -> Tensor:
        """Return the states of all tokens (B, L, D) or of some positions (B, N, D), then those of the targets.

        The other arguments are those of `encode`.

        Args:
            memory: the memory, which is replaced with the next one. None: no memory is read or returned.
        """
        output = self.encode(
            ids_BL, segment_ids_BL, attention_mask_BL,
            memory_YBMD=None if memory is None else memory.states_YBMD,
            new_document_B=None if memory is None else memory.new_document_B,
            memory_length=0 if memory is None else memory.length,
            positions_BN=positions_BN, permutation_BLL=permutation_BLL, targets_BN=targets_BN,
            inputs_embeds_BLE=inputs_embeds_BLE,
        )  # fmt: skip
        if memory is not None:
            memory.states_YBMD, memory.new_document_B = output.memory_YBMD, None
        if output.targets_BND is None:
            return output.states_BND
        return torch.cat([output.states_BND, output.targets_BND], 1)

    def encode(
        self,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        *,
        memory_YBMD: Tensor | None = None,
        new_document_B: Tensor | None = None,
        memory_length: int | None = None,
        positions_BN: Tensor | None = None,
        permutation_BLL: Tensor | None = None,
        targets_BN: Tensor | None = None,
        inputs_embeds_BLE: Tensor | None = None,
    ) -> RelativeStates:
        """Return the states of the tokens and of the query stream, and the memory for the next batch.

        A token attends to the memory, to itself, and to the tokens that padding, direction and permutation allow.
        A target is at the position of a token and attends to the same keys without that token, so its state
        predicts the token (XLNet, section 2.3). A target that may attend to nothing gets no attention output.
        XLNet's code lets such a target attend to everything, its own token included.

        Args:
            segment_ids_BL: the segment of each token; None: there is one segment. Tokens in memory belong to
                segment 0, as in XLNet.
            attention_mask_BL: True at tokens, False at padding; None: there is no padding, which is faster. States
                at padding have no meaning.
            memory_YBMD: the memory that the previous batch returned; None: there is none.
            new_document_B: True where a row begins a new document: its memory is cleared first.
            memory_length: maximum number of tokens in the memory that is returned; None: as in the config.
            positions_BN: positions whose states are returned; the last block computes no others. N may be 0 if
                only the query stream is needed.
            permutation_BLL: True where the first position may attend to the second; None: everywhere.
            targets_BN: the positions of the query stream.
            inputs_embeds_BLE: token embeddings to use in place of those of `ids_BL`.
        """
        length, causal = ids_BL.shape[1], self.config.direction == "left"
        segments_BL = None if self.config.type_vocabulary_size == 1 else segment_ids_BL
        x_BXD = self._embed(ids_BL, targets_BN, inputs_embeds_BLE)
        memory_YBMD = _without_earlier_documents(memory_YBMD, new_document_B, x_BXD.dtype)
        read_length, memory_mask_BM = 0 if memory_YBMD is None else memory_YBMD.shape[2], _memory_mask(memory_YBMD)
        masks = MaskSpec(
            ids_BL, segments_BL, attention_mask_BL, memory_mask_BM, read_length, permutation_BLL, causal=causal
        )  # fmt: skip
        distance_range = distances(length, read_length + length, causal=causal)
        sinusoids_RD = sinusoids(distance_range, self.config.hidden_size, ids_BL.device).to(x_BXD.dtype)
        query_mask, inputs = masks.query_mask(None, targets_BN), []
        for number, block in enumerate(self.blocks):
            x_BLD, query_states_BXD = x_BXD[:, :length], x_BXD
            memory_BMD = None if memory_YBMD is None else memory_YBMD[number]
            inputs.append(x_BLD.detach())
            if positions_BN is not None and number == len(self.blocks) - 1:
                query_states_BXD = torch.cat([gather_positions(x_BLD, positions_BN), x_BXD[:, length:]], 1)
                query_mask = masks.query_mask(positions_BN, targets_BN)
            x_BXD = block(query_states_BXD, x_BLD, memory_BMD, sinusoids_RD, query_mask)
        count = length if positions_BN is None else positions_BN.shape[1]
        limit = self.config.memory_length if memory_length is None else memory_length
        next_memory = _next_memory(memory_YBMD, memory_mask_BM, inputs, attention_mask_BL, length=limit)
        return RelativeStates(x_BXD[:, :count], None if targets_BN is None else x_BXD[:, count:], next_memory)

    def _embed(self, ids_BL: Tensor, targets_BN: Tensor | None, inputs_embeds_BLE: Tensor | None) -> Tensor:
        """Return the inputs of both streams in one tensor: blocks treat them alike, only their masks differ."""
        x_BLD = self.embeddings(ids_BL, inputs_embeds_BLE)
        if targets_BN is None:
            return x_BLD
        assert self.query_stream is not None, "this network was built without a query stream"
        start_BND = self.query_stream.weight.expand(*targets_BN.shape, -1)
        return torch.cat([x_BLD, self.embeddings.dropout(start_BND)], 1)


def _next_memory(
    memory_YBMD: Tensor | None,
    memory_mask_BM: Tensor | None,
    inputs: Sequence[Tensor],
    attention_mask_BL: Tensor | None,
    *,
    length: int,
) -> Tensor | None:
    """Return the memory for the next batch: for each row the last `length` tokens of memory and batch together.

    Padding never enters it: a row that ends with padding keeps more of its older tokens, and a row without tokens
    keeps its memory. If a row has had fewer tokens than there are places, its first places are empty.

    Args:
        inputs: for each block its inputs (B, L, D).
    """
    if not length:
        return None
    with torch.no_grad():
        states_YBCD = torch.stack(list(inputs))
        if memory_YBMD is not None:
            states_YBCD = torch.cat([memory_YBMD, states_YBCD], 2)
        Y, B, C, D = states_YBCD.shape
        M = min(length, C)
        if attention_mask_BL is None:  # the empty places, if any, are already the first
            return states_YBCD[:, :, -M:].clone()
        tokens_BC = states_YBCD.new_ones(B, C, dtype=torch.bool)
        if memory_mask_BM is not None:
            tokens_BC[:, : memory_mask_BM.shape[1]] = memory_mask_BM
        tokens_BC[:, -attention_mask_BL.shape[1] :] = attention_mask_BL
        # Sort padding and empty places before tokens; tokens keep their order.
        order_BM = tokens_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, -M:]
        next_YBMD = states_YBCD.gather(2, order_BM[None, :, :, None].expand(Y, -1, -1, D))
        return next_YBMD.masked_fill_(~tokens_BC.gather(1, order_BM)[:, :, None], 0.0)


def _without_earlier_documents(
    memory_YBMD: Tensor | None, new_document_B: Tensor | None, dtype: torch.dtype
) -> Tensor | None:
    """Return the memory as constants of another data type, cleared in rows that begin a new document."""
    if memory_YBMD is None:
        return None
    memory_YBMD = memory_YBMD.detach().to(dtype)
    return memory_YBMD if new_document_B is None else memory_YBMD.masked_fill(new_document_B[:, None, None], 0.0)


def _memory_mask(memory_YBMD: Tensor | None) -> Tensor | None:
    """Return True at places of the memory that hold a token (B, M); None: all do.

    On an accelerator the mask is always returned, because a check whether it is needed would stall the queue.
    """
    if memory_YBMD is None:
        return None
    mask_BM = memory_YBMD[-1].abs().amax(-1) > 0
    return None if can_sync(mask_BM) and bool(mask_BM.all()) else mask_BM


def relative_terms(
    config: RelativeConfig,
    length: int,
    *,
    memory: int = 0,
    targets: float = 0,
    outputs: float | None = None,
    segments: bool = False,
    batch_size: float = 1,
) -> Terms:
    """Return the operations of a forward pass of a `RelativeEncoder` over one sequence, by term, without a head.

    The convention is modern. Every pair of a query and a key counts, also masked pairs, and for each pair one
    distance score: scores that `relative_attention` computes for no pair, or leaves out for masked pairs, change
    nothing. A backward pass costs twice as much. Only the projections of memory and sinusoids cost the same as in
    the forward pass, because their inputs need no gradient.

    Args:
        memory: number of tokens in memory.
        targets: positions of the query stream.
        outputs: positions whose states the last block computes; None: all.
        segments: whether segment ids are given.
        batch_size: sequences of a batch, which share the projected sinusoids; inf: their cost is not counted.
    """
    hidden, inner, keys = config.hidden_size, config.feed_forward_size, memory + length
    distance_count = len(distances(length, keys, causal=config.direction == "left"))
    queries = (config.layers - 1) * (length + targets) + (length if outputs is None else outputs) + targets
    pairs = queries * 2 * hidden * keys
    terms = {
        "attention keys and values": config.layers * length * 2 * 2 * hidden * hidden,
        MEMORY_KEYS_AND_VALUES: config.layers * memory * 2 * 2 * hidden * hidden,
        "attention distances": config.layers * distance_count * 2 * hidden * hidden / batch_size,
        "attention queries": queries * 2 * hidden * hidden,
        "attention scores of contents": pairs,
        "attention scores of distances": pairs,
        "attention weighted values": pairs,
        "attention output": queries * 2 * hidden * hidden,
        "feed-forward inner": queries * 2 * hidden * inner,
        "feed-forward outer": queries * 2 * hidden * inner,
    }
    if segments and config.type_vocabulary_size > 1:
        terms["attention scores of segments"] = queries * 2 * hidden
    return terms
