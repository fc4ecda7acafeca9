"""Spans of the tokens of a shard, from which rows are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from electra.errors import DataError

Offsets = npt.NDArray[np.int64]
"""Ascending end offsets: of sentences in tokens, or of documents in sentences."""

Span = tuple[int, int]
"""Start and length in tokens."""

SPECIALS_ONE_SEGMENT = 2
"""[CLS] A [SEP]"""
SPECIALS_TWO_SEGMENTS = 3
"""[CLS] A [SEP] B [SEP]"""


@dataclass(frozen=True)
class PackedShard:
    """The rows of one shard, each one segment or two, each segment one span or several.

    Attributes:
        spans: (spans, 2) int64, start and length in tokens, row after row.
        segment_ends: (rows, 2) int64, where the spans of each segment end; if the two are equal, the row has one
            segment.
    """

    spans: npt.NDArray[np.int64]
    segment_ends: npt.NDArray[np.int64]


def truncate_spans(segment: list[Span], room: int) -> Iterator[Span]:
    """Yield the spans of a segment that fit into `room` tokens; the last one may be shortened."""
    for start, length in segment:
        if room <= 0:
            return
        yield start, min(length, room)
        room -= length


def check_offsets(sentence_ends: Offsets, document_ends: Offsets) -> None:
    """
    Raises:
        DataError: the offsets are not ascending, or the documents do not end with the last sentence.
    """
    for name, offsets in (("sentence", sentence_ends), ("document", document_ends)):
        if offsets.size and (offsets[0] < 0 or bool(np.any(offsets[1:] < offsets[:-1]))):
            raise DataError(f"the {name} ends of a shard are not ascending; prepare the data again")
    covered = int(document_ends[-1]) if document_ends.size else 0
    if covered != sentence_ends.size:
        raise DataError(
            f"the documents of a shard end with sentence {covered}, but it has {sentence_ends.size} sentences; "
            "prepare the data again"
        )
