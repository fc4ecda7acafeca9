"""Rows of the index to tensors. Of the data room, only this file knows torch.

Shapes: B rows of the batch, L columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from electra.data.examples import ExampleSet, Stream
from electra.data.sampling import Rows
from electra.data.tokenizer import SpecialTokens


@dataclass(frozen=True)
class Batch:
    """One batch of text as it is, not yet masked: [CLS] A [SEP] [PAD]... or [CLS] A [SEP] B [SEP] [PAD]..."""

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
        ids_BL, segments_BL, lengths_B, seeds_B = (
            tensor.pin_memory().to(device, non_blocking=True)
            for tensor in (self.input_ids_BL, self.segment_ids_BL, self.lengths_B, self.row_seeds)
        )
        return Batch(ids_BL, segments_BL, lengths_B, seed=self.seed, seeds_B=seeds_B)


def collate(
    examples: ExampleSet,
    row_indices: Rows,
    *,
    special: SpecialTokens,
    seed: int,
    trim: bool,
    stream: Stream = "tokens",
    seeds: npt.NDArray[np.int64] | None = None,
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
        stream: "unigram" reads the corrupted copy of the same text, in the same layout.

    Raises:
        DataError: the split has no such stream.
    """
    lengths_B = examples.lengths[row_indices].astype(np.int64)
    columns = int(lengths_B.max(initial=0)) if trim else examples.config.sequence_length
    shape = (len(row_indices), columns)
    ids_BL = np.full(shape, special.pad, dtype=np.int64)
    segments_BL = np.zeros(shape, dtype=np.int64)
    ids_BL[:, :1] = special.classify
    streams = examples.stream(stream)
    shards = examples.shards_of(row_indices).tolist()
    segments = examples.segments(row_indices)
    for shard, both, ids_L, segments_L in zip(shards, segments, ids_BL, segments_BL, strict=True):
        tokens, column = streams[shard], 1
        for number, pieces in enumerate(both):
            if not pieces:
                continue
            begin = column
            for start, length in pieces:
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
    )
