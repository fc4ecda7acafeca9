"""Rows of the index to tensors. Of the data room, only this file knows torch.

Shapes: B rows of the batch, L columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from electra.data.examples import ExampleSet, Stream
from electra.data.sampling import Rows, splitmix
from electra.data.spans import SPECIALS_TWO_SEGMENTS, Piece, cut
from electra.data.streams import SEPARATOR
from electra.data.tokenizer import SpecialTokens

SentenceKind = Literal["none", "next", "order"]
"""What half of the pairs of segments become: they stay; the second comes from elsewhere; they are exchanged."""
UNPAIRED = -1
"""The label of a row with one segment."""


@dataclass(frozen=True)
class StreamState:
    """How the rows of a batch go on from the batch before, where they are windows of a stream.

    Attributes:
        next_ids_B: int64: the token behind each row.
        fresh_B: True where a row begins anew.
        first_row: which of the rows of this process is the first one here.
    """

    next_ids_B: torch.Tensor
    new_document_B: torch.Tensor
    first_row: int = 0


@dataclass(frozen=True)
class Batch:
    """One batch of text, not yet masked: `[CLS] A [SEP] [PAD]...` or `[CLS] A [SEP] B [SEP] [PAD]...`.

    An A of several documents has a [SEP] between any two of them. Windows of a stream are all text, with a [SEP]
    behind each document.
    """

    input_ids_BL: torch.Tensor
    """int64 token ids."""
    segment_ids_BL: torch.Tensor
    """int64: 0 for [CLS] A [SEP] and for padding, 1 for B [SEP]."""
    lengths_B: torch.Tensor
    """int64: tokens of each row, [CLS] and [SEP] included; what follows is padding."""
    seed: int
    """Seed of the draws that are made for the batch as a whole, such as dropout's."""
    seeds_B: torch.Tensor | None = None
    """int64: a seed a row, which decides its masks and fakes; None: made from `seed`."""

    sentences_B: torch.Tensor | None = None
    """int64: 0 where the two segments of a row are as in the text, 1 where they were made not to be, -1 where
    there is one alone; None: they are not asked about."""
    stream_state: StreamState | None = None
    """None: the rows have nothing to do with those of the batch before."""

    @property
    def row_seeds(self) -> torch.Tensor:
        """The seed of each row (B,)."""
        if self.seeds_B is not None:
            return self.seeds_B
        return self.seed + torch.arange(len(self.lengths_B), device=self.lengths_B.device)

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; a copy to an accelerator does not wait for it."""
        if device.type == "cpu":
            return self
        there = partial(_copied, device=device)
        ids_BL, segments_BL = there(self.input_ids_BL), there(self.segment_ids_BL)
        lengths_B, seeds_B = there(self.lengths_B), there(self.row_seeds)
        sentences_B = None if self.sentences_B is None else there(self.sentences_B)
        continued = self.stream_state
        if continued is not None:
            continued = StreamState(
                there(continued.next_ids_B), there(continued.new_document_B), continued.first_row
            )
        return Batch(ids_BL, segments_BL, lengths_B, self.seed, seeds_B, sentences_B, continued)


def _copied(tensor: torch.Tensor, *, device: torch.device) -> torch.Tensor:
    """From pinned memory: a copy from elsewhere waits for all that stands in the device's queue."""
    return tensor.pin_memory().to(device, non_blocking=True)


def collate(
    examples: ExampleSet,
    row_indices: Rows,
    *,
    special: SpecialTokens,
    seed: int,
    trim: bool,
    stream: Stream = "tokens",
    seeds: npt.NDArray[np.int64] | None = None,
    sentences: SentenceKind = "none",
    fresh: bool = True,
    first_row: int = 0,
) -> Batch:
    """Gather rows of an example set into one batch.

    Args:
        examples: the packed split.
        row_indices: (B,) which of its rows, in this order.
        special: ids of [PAD], [CLS] and [SEP].
        seed: handed on in the batch.
        trim: drop the columns that are padding in every row, so that L is the longest row of the batch, which
            saves work on a CPU; else L is the examples' `sequence_length`, the static shape a compiled step wants.
        seeds: (B,) those of the rows, handed on too.
        sentences: what half of the pairs of segments become, as the seeds of the rows decide.
        stream: "unigram" reads the corrupted copy of the same text, in the same layout.
        fresh, first_row: of windows of a stream, as in `StreamState`.

    Raises:
        DataError: the split has no such stream.
    """
    if examples.config.streams:
        return _windows(
            examples,
            row_indices,
            special=special,
            seed=seed,
            stream=stream,
            seeds=seeds,
            fresh=fresh,
            first_row=first_row,
        )
    segments = examples.segments(row_indices)
    shards_B2 = np.repeat(examples.shards_of(row_indices)[:, None], 2, axis=1)
    labels_B = None
    lengths_B = examples.lengths[row_indices].astype(np.int64)
    if sentences != "none":
        assert seeds is not None
        labels_B = _unpaired(examples, segments, shards_B2, lengths_B, kind=sentences, seeds=seeds)
    columns = int(lengths_B.max(initial=0)) if trim else examples.config.sequence_length
    shape = (len(row_indices), columns)
    ids_BL = np.full(shape, special.pad, dtype=np.int64)
    segments_BL = np.zeros(shape, dtype=np.int64)
    ids_BL[:, :1] = special.classify
    streams, separated = examples.stream(stream), examples.config.separates_documents
    for shards, both, ids_L, segments_L in zip(shards_B2.tolist(), segments, ids_BL, segments_BL, strict=True):
        column = 1
        for number, pieces in enumerate(both):
            if not pieces:
                continue
            begin, tokens = column, streams[shards[number]]
            for start, length in pieces:
                if separated and column > begin:
                    ids_L[column] = special.separate
                    column += 1
                ids_L[column : column + length] = tokens[start : start + length]
                column += length
            ids_L[column] = special.separate
            column += 1
            if number:
                segments_L[begin:column] = number
    return Batch(
        input_ids_BL=torch.from_numpy(ids_BL),
        segment_ids_BL=torch.from_numpy(segments_BL),
        lengths_B=torch.from_numpy(lengths_B),
        seed=seed,
        seeds_B=None if seeds is None else torch.from_numpy(seeds),
        sentences_B=None if labels_B is None else torch.from_numpy(labels_B),
    )


def _windows(
    examples: ExampleSet,
    row_indices: Rows,
    *,
    special: SpecialTokens,
    seed: int,
    stream: Stream,
    seeds: npt.NDArray[np.int64] | None,
    fresh: bool,
    first_row: int,
) -> Batch:
    """Windows of a stream, all of them full."""
    streams, length = examples.stream(stream), examples.config.sequence_length
    ids_BX = np.empty((len(row_indices), length + 1), np.int64)
    shards, segments = examples.shards_of(row_indices).tolist(), examples.segments(row_indices)
    for shard, (pieces, _), ids_X in zip(shards, segments, ids_BX, strict=True):
        column = 0
        for start, count in pieces:
            text = special.separate if start == SEPARATOR else streams[shard][start : start + count]
            ids_X[column : column + count] = text
            column += count
    ids_BL = torch.from_numpy(np.ascontiguousarray(ids_BX[:, :-1]))
    return Batch(
        ids_BL,
        torch.zeros_like(ids_BL),
        torch.full((len(ids_BL),), length),
        seed=seed,
        seeds_B=None if seeds is None else torch.from_numpy(seeds),
        stream_state=StreamState(
            torch.from_numpy(ids_BX[:, -1].copy()), torch.full((len(ids_BL),), fresh), first_row
        ),
    )


def _unpaired(
    examples: ExampleSet,
    segments: list[tuple[list[Piece], list[Piece]]],
    shards_B2: Rows,
    lengths_B: Rows,
    *,
    kind: SentenceKind,
    seeds: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Make half of the pairs ones that do not belong together, in place, and say which (B,).

    A segment from elsewhere is the last one of any other example, cut to the room that there is.
    """
    numbers_B = splitmix(seeds.view(np.uint64))
    paired_B = np.array([bool(second) for _, second in segments])
    labels_B = np.where(paired_B, (numbers_B & np.uint64(1)).astype(np.int64), UNPAIRED)
    chosen = np.flatnonzero(labels_B == 1)
    others = (splitmix(numbers_B[chosen]) % np.uint64(len(examples))).astype(np.int64)
    found = examples.segments(others) if kind == "next" else []
    for place, row in enumerate(chosen.tolist()):
        first, second = segments[row]
        if kind == "order":
            segments[row] = second, first
            shards_B2[row] = shards_B2[row, ::-1]
            continue
        room = examples.config.sequence_length - SPECIALS_TWO_SEGMENTS - sum(length for _, length in first)
        other = list(cut(found[place][1] or found[place][0], room))
        segments[row] = first, other
        shards_B2[row, 1] = examples.shards_of(others[place : place + 1])[0]
        lengths_B[row] = SPECIALS_TWO_SEGMENTS + sum(length for _, length in (*first, *other))
    return labels_B
