"""What rows are made of: pieces of a shard's tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from electra.errors import DataError

Offsets = npt.NDArray[np.int64]
"""Ascending end offsets: of sentences in tokens, or of documents in sentences."""

Piece = tuple[int, int]
"""Start and length in tokens."""

SPECIALS_ONE_SEGMENT = 2
"""[CLS] A [SEP]"""
SPECIALS_TWO_SEGMENTS = 3
"""[CLS] A [SEP] B [SEP]"""


@dataclass(frozen=True)
class Examples:
    """The rows of one shard.

    Attributes:
        pieces: (pieces, 2) int64, start and length in tokens, row after row.
        segment_ends: (examples, 2) int64, the first piece that is no more of each segment; where the two are equal
            the row has one segment.
    """

    pieces: npt.NDArray[np.int64]
    segment_ends: npt.NDArray[np.int64]


def cut(segment: list[Piece], room: int) -> Iterator[Piece]:
    """The pieces of a segment that fit into `room` tokens, the last one perhaps in part."""
    for start, length in segment:
        if room <= 0:
            return
        yield start, min(length, room)
        room -= length


def check_offsets(sentence_ends: Offsets, document_ends: Offsets) -> None:
    for name, offsets in (("sentence", sentence_ends), ("document", document_ends)):
        if offsets.size and (offsets[0] < 0 or bool(np.any(offsets[1:] < offsets[:-1]))):
            raise DataError(f"the {name} ends of a shard are not ascending; prepare the data again")
    covered = int(document_ends[-1]) if document_ends.size else 0
    if covered != sentence_ends.size:
        raise DataError(
            f"the documents of a shard end with sentence {covered}, but it has {sentence_ends.size} sentences; "
            "prepare the data again"
        )
