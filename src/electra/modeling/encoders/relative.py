"""The encoders of Transformer-XL (Dai et al. 2019) and XLNet (Yang et al. 2019): relative positions, a memory of
earlier tokens, and a second stream of states that predict a token without seeing it.

A memory is one tensor (Y, B, M, D): for each block its inputs at the last tokens before this batch, row by row,
the latest at the end. *A slot whose states are all 0 is empty*: nobody attends to it. So a memory of zeros is that
of rows that have just begun, and rows of one batch may have memories of different lengths.

Shapes: B batch, L length, M memory, C = M + L keys, N wanted positions or targets, X queries of both streams,
R distances, D hidden size, Y blocks. A tensor's name ends with its shape (`x_BLD`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from electra.config import NonNegativeInt
from electra.modeling.encoders.base import Capability, EncoderConfig, EncoderModule, FeedForward, gather_positions
from electra.modeling.flops import OF_MEMORY, Convention, Terms
from electra.modeling.init import initialize
from electra.modeling.kernels.dropout import Dropout
from electra.modeling.kernels.relative_attention import RelativeAttention
from electra.modeling.kernels.relative_mask import MaskSpec, QueryMask, can_sync, distances, sinusoids
from electra.modeling.kernels.unpadding import Unpadding


@dataclass(frozen=True)
class RelativeConfig(EncoderConfig):
    """The shape of an encoder of Transformer-XL or XLNet."""

    kind: str = "relative"
    direction: Literal["both", "left"] = "both"
    """Tokens that a token attends to: all others (XLNet), or only those before it (Transformer-XL)."""
    memory_length: NonNegativeInt = 0
    """Number of earlier tokens whose states each block attends to as well, without a gradient. In training this
    needs rows that continue from batch to batch (packing.builder stream)."""

    run_settings: ClassVar[tuple[str, ...]] = (*EncoderConfig.run_settings, "direction", "memory_length")
    square_only: ClassVar[bool] = True
    position_table: ClassVar[bool] = False
    generator_kind: ClassVar[str | None] = "bert"
    checkpoint_format: ClassVar[str] = "xlnet"

    @property
    def capabilities(self) -> frozenset[Capability]:
        reading: Capability = "left-to-right" if self.direction == "left" else "bidirectional"
        return frozenset({reading, "chosen-positions", "mixed-embeddings", "memory", "two-streams"})

    def build(self, *, query_stream: bool = False) -> "RelativeEncoder":
        return RelativeEncoder(self, query_stream=query_stream)

    def without_memory(self) -> "RelativeConfig":
        return replace(self, memory_length=0)

    def as_generator(self) -> "RelativeConfig":
        return replace(self, direction="both")

    def flop_terms(
        self, length: int, *, convention: Convention, wanted_share: float, target_share: float
    ) -> Terms:
        """The same in both conventions."""
        return relative_terms(
            self,
            length,
            memory=self.memory_length,
            targets=target_share * length,
            wanted=wanted_share * length,
            segments=True,
            rows=math.inf,
        )

    def activation_numbers(self, length: int) -> int:
        """Attention probabilities are kept too, before and after dropout, and keys and values of the memory."""
        pairs = 2 * self.heads * length * (length + self.memory_length)
        return super().activation_numbers(length) + pairs + 2 * self.hidden_size * self.memory_length

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.square:
            yield (
                f"embedding_size: with relative positions it is the hidden_size, {self.hidden_size}; "
                f"got {self.embedding_size}"
            )
        if self.hidden_size % 2:
            yield f"hidden_size: must be even with relative positions, got {self.hidden_size}"


@dataclass(frozen=True)
class RelativeStates:
    """What a `RelativeEncoder` gives.

    Attributes:
        states_BND: of the tokens; (B, L, D), or of the wanted positions.
        targets_BND: of the query stream, one a target; None where there are no targets.
        memory_YBMD: for the next batch, without a gradient; None for a network without memory.
    """

    states_BND: Tensor
    targets_BND: Tensor | None
    memory_YBMD: Tensor | None


@dataclass
class Memory:
    """What is remembered of the rows of a batch. An encoder that reads with it puts the next one there.

    Attributes:
        length: how many tokens of each row are to be remembered.
        memory_YBMD: None: nothing yet.
        new_document_B: True where a row begins anew; None: nowhere.
    """

    length: int
    memory_YBMD: Tensor | None = None
    new_document_B: Tensor | None = None


class TokenEmbeddings(nn.Module):
    """Token embeddings as wide as states, and dropout."""

    def __init__(self, config: RelativeConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary_size, config.embedding_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_BL: Tensor, tokens_BLE: Tensor | None = None) -> Tensor:
        return self.dropout(self.token(ids_BL) if tokens_BLE is None else tokens_BLE)


class RelativeBlock(nn.Module):
    """Attention and feed-forward, each added to its input and normalised afterwards (post-norm)."""

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
        sight: QueryMask,
    ) -> Tensor:
        """The new states (B, X, D) of the queries, which look at the memory and at the tokens."""
        attended_BXD = self.attention(query_states_BXD, x_BLD, memory_BMD, sinusoids_RD, sight)
        x_BXD = self.attention_norm(self.dropout(attended_BXD, residual=query_states_BXD))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x_BXD), residual=x_BXD))


class RelativeEncoder(EncoderModule):
    """Token ids in, one state a token out; a memory in, the next one out.

    With `direction` left it is Transformer-XL's network, with both that of XLNet. As in `Encoder`, and not in
    their code, nothing is dropped inside of the feed-forward layers, of the distances and of the last states. As
    in XLNet, embeddings are not multiplied by the root of their width, as they are in Transformer-XL.

    Args:
        query_stream: whether targets may be given. Without, there is no vector for them to start from, which would
            then be a parameter without a gradient.
    """

    config: RelativeConfig

    def __init__(self, config: RelativeConfig, *, query_stream: bool = True) -> None:
        super().__init__()
        assert config.vocabulary_size > 0, "the size of the vocabulary is known before a network is built"
        self.config = config
        self.embeddings = TokenEmbeddings(config)
        self.query_stream = nn.Embedding(1, config.hidden_size) if query_stream else None
        self.blocks: nn.ModuleList = nn.ModuleList(RelativeBlock(config) for _ in range(config.layers))
        initialize(self, config.initializer_range, linear_range=config.linear_initializer_range)

    def compile_forward(self, **options: Any) -> None:
        """What it remembers is kept by plain code around the compiled part."""
        self.read = torch.compile(self.read, **options)  # type: ignore[method-assign]

    def forward(
        self,
        ids_BL: Tensor,
        segment_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        *,
        positions_BN: Tensor | None = None,
        unpadding: Unpadding | None = None,
        tokens_BLE: Tensor | None = None,
        past: Memory | None = None,
        permutation_BLL: Tensor | None = None,
        targets_BN: Tensor | None = None,
    ) -> Tensor:
        """What an `Encoder` gives: states (B, L, D), or (B, N, D) where only some are wanted; then targets'.

        Args: as of `read`, and
            unpadding: of no use here; padding is computed.
            past: the memory to read with, in place of which the next is put. None: there is none, nor will be.
        """
        found = self.read(
            ids_BL, segment_ids_BL, attention_mask_BL,
            memory_YBMD=None if past is None else past.memory_YBMD,
            new_document_B=None if past is None else past.new_document_B,
            memory_length=0 if past is None else past.length,
            positions_BN=positions_BN, permutation_BLL=permutation_BLL, targets_BN=targets_BN,
            tokens_BLE=tokens_BLE,
        )  # fmt: skip
        if past is not None:
            past.memory_YBMD, past.new_document_B = found.memory_YBMD, None
        return (
            found.states_BND if found.targets_BND is None else torch.cat([found.states_BND, found.targets_BND], 1)
        )

    def read(
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
        tokens_BLE: Tensor | None = None,
    ) -> RelativeStates:
        """States of the tokens, of the query stream, and the memory that the next batch begins with.

        A token may look at the memory, at itself, and at the tokens that padding, direction and permutation allow.
        A target looks from the position of a token at the same but for that token itself: its state tells what may
        stand there (XLNet, section 2.3). One that may look at nothing keeps the vector that all start from but for
        the feed-forward layers; XLNet's code has it look at everything then, its own token included.

        Args:
            segment_ids_BL: which segment each token belongs to; None: all to one. What the memory holds belongs to
                segment 0, as in XLNet.
            attention_mask_BL: True at tokens, False at padding; None: no padding, which is quicker. States at
                padding mean nothing.
            memory_YBMD: what the previous batch gave; None: these rows have no past.
            new_document_B: True where a row begins a new document: what the memory holds of it is forgotten.
            memory_length: how many tokens the memory that comes back has at most; None: as the config says.
            positions_BN: the positions whose states are wanted; the last block does no work at the others. N may
                be 0 where the query stream alone is wanted.
            permutation_BLL: True where the first position may look at the second; None: everywhere.
            targets_BN: the positions of the query stream.
            tokens_BLE: token embeddings in place of those of the ids.
        """
        length, left = ids_BL.shape[1], self.config.direction == "left"
        segments_BL = None if self.config.type_vocabulary_size == 1 else segment_ids_BL
        x_BXD = self._start(ids_BL, targets_BN, tokens_BLE)
        memory_YBMD = None if memory_YBMD is None else _begun(memory_YBMD.detach().to(x_BXD.dtype), new_document_B)
        slots, held_BM = 0 if memory_YBMD is None else memory_YBMD.shape[2], _held(memory_YBMD)
        allowed = MaskSpec(
            ids_BL, segments_BL, attention_mask_BL, held_BM, slots, permutation_BLL, left=left
        )  # fmt: skip
        rows = distances(length, slots + length, left=left)
        sinusoids_RD = sinusoids(rows, self.config.hidden_size, ids_BL.device).to(x_BXD.dtype)
        sight, inputs = allowed.query_mask(None, targets_BN), []
        for number, block in enumerate(self.blocks):
            x_BLD, query_states_BXD = x_BXD[:, :length], x_BXD
            memory_BMD = None if memory_YBMD is None else memory_YBMD[number]
            inputs.append(x_BLD.detach())
            if positions_BN is not None and number == len(self.blocks) - 1:
                query_states_BXD = torch.cat([gather_positions(x_BLD, positions_BN), x_BXD[:, length:]], 1)
                sight = allowed.query_mask(positions_BN, targets_BN)
            x_BXD = block(query_states_BXD, x_BLD, memory_BMD, sinusoids_RD, sight)
        count = length if positions_BN is None else positions_BN.shape[1]
        return RelativeStates(
            x_BXD[:, :count],
            None if targets_BN is None else x_BXD[:, count:],
            _next_memory(
                memory_YBMD, held_BM, inputs, attention_mask_BL,
                length=self.config.memory_length if memory_length is None else memory_length,
            ),
        )  # fmt: skip

    def _start(self, ids_BL: Tensor, targets_BN: Tensor | None, tokens_BLE: Tensor | None) -> Tensor:
        """Both streams, one behind the other: all that a block does to them is the same but for what they see."""
        x_BLD = self.embeddings(ids_BL, tokens_BLE)
        if targets_BN is None:
            return x_BLD
        assert self.query_stream is not None, "this network was made without a query stream"
        start_BND = self.query_stream.weight.expand(*targets_BN.shape, -1)
        return torch.cat([x_BLD, self.embeddings.dropout(start_BND)], 1)


def _next_memory(
    memory_YBMD: Tensor | None,
    held_BM: Tensor | None,
    inputs: Sequence[Tensor],
    attention_mask_BL: Tensor | None,
    *,
    length: int,
) -> Tensor | None:
    """Of each row the last `length` tokens of old memory and batch together.

    Padding never enters it: a row that ends with padding keeps so many more of its older tokens, and one
    without any token keeps its memory as it is. Where a row has had fewer tokens than there are slots, its
    first slots are empty.
    """
    if not length:
        return None
    with torch.no_grad():
        states_YBCD = torch.stack(list(inputs))
        if memory_YBMD is not None:
            states_YBCD = torch.cat([memory_YBMD, states_YBCD], 2)
        Y, B, C, D = states_YBCD.shape
        slots = min(length, C)
        if attention_mask_BL is None:  # empty slots, if any, are before the others already
            return states_YBCD[:, :, -slots:].clone()
        tokens_BC = states_YBCD.new_ones(B, C, dtype=torch.bool)
        if held_BM is not None:
            tokens_BC[:, : held_BM.shape[1]] = held_BM
        if attention_mask_BL is not None:
            tokens_BC[:, -attention_mask_BL.shape[1] :] = attention_mask_BL
        # Tokens go behind, in their order, and what is none before them.
        order_BM = tokens_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, -slots:]
        found_YBMD = states_YBCD.gather(2, order_BM[None, :, :, None].expand(Y, -1, -1, D))
        return found_YBMD.masked_fill_(~tokens_BC.gather(1, order_BM)[:, :, None], 0.0)


def _begun(memory_YBMD: Tensor, new_document_B: Tensor | None) -> Tensor:
    """The memory without that of rows that begin anew."""
    return memory_YBMD if new_document_B is None else memory_YBMD.masked_fill(new_document_B[:, None, None], 0.0)


def _held(memory_YBMD: Tensor | None) -> Tensor | None:
    """True at the slots that hold a token (B, M); None where all do.

    On an accelerator it is always made: asking whether it is needed would stall the queue.
    """
    if memory_YBMD is None:
        return None
    held_BM = memory_YBMD[-1].abs().amax(-1) > 0
    return None if can_sync(held_BM) and bool(held_BM.all()) else held_BM


def relative_terms(
    config: RelativeConfig,
    length: int,
    *,
    memory: int = 0,
    targets: float = 0,
    wanted: float | None = None,
    segments: bool = False,
    rows: float = 1,
) -> Terms:
    """Operations of a forward pass of a `RelativeEncoder` over one sequence, by term (modern), without a head.

    Every pair of a query and a key counts, also those that a mask hides, and for each pair its distance once: what
    `relative_attention` computes of distances that no pair has, or leaves out of hidden pairs, does not count.
    A backward pass is twice as much, but only once for the projections of memory and distances, which get no
    gradient.

    Args:
        memory: tokens that it holds.
        targets: positions of the query stream.
        wanted: positions whose states are wanted of the last block; None: all.
        segments: they are given.
        rows: sequences of a batch, which share the vectors of distances; inf: so many that those do not count.
    """
    hidden, inner, keys = config.hidden_size, config.feed_forward_size, memory + length
    rows_of_distances = len(distances(length, keys, left=config.direction == "left"))
    queries = (config.layers - 1) * (length + targets) + (length if wanted is None else wanted) + targets
    pairs = queries * 2 * hidden * keys
    terms = {
        "attention keys and values": config.layers * length * 2 * 2 * hidden * hidden,
        OF_MEMORY: config.layers * memory * 2 * 2 * hidden * hidden,
        "attention distances": config.layers * rows_of_distances * 2 * hidden * hidden / rows,
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
