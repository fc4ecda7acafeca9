"""Documents to examples: which tokens of a shard stand together in one row.

An example is four numbers, `start_1, length_1, start_2, length_2`: two spans of tokens of one shard, the
second of length 0 where the row has a single segment. Nothing is copied; `collate` reads the spans and adds
[CLS] and [SEP].
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from electra.errors import DataError

Offsets = npt.NDArray[np.int64]
"""Ascending end offsets: of sentences in tokens, or of documents in sentences."""

Examples = npt.NDArray[np.int64]
"""Shape (examples, 4): start_1, length_1, start_2, length_2 in tokens; length_2 = 0 is a single segment."""

SPECIALS_ONE_SEGMENT = 2
"""[CLS] A [SEP]"""
SPECIALS_TWO_SEGMENTS = 3
"""[CLS] A [SEP] B [SEP]"""

DRAWS_PER_EXAMPLE = 3
"""One segment or two; the coin for the sentence that straddles the aim; the target length."""
_DRAWN_AHEAD = 8192


@dataclass(frozen=True)
class PackingConfig:
    """How documents are cut into rows of two segments (ELECTRA and BERT; paper section 3.1, appendix A)."""

    sequence_length: int = 128
    """Longest row in tokens, [CLS] and [SEP] included."""
    one_segment_share: float = 0.10
    """Probability that a row is one segment, as in single-sentence tasks, where the text would allow two."""
    short_share: float = 0.05
    """Probability that a row aims at a random shorter length, so that short inputs are seen in training."""
    minimum_length: int = 5
    """Least random target length, and the fewest tokens that are cut off as a segment or a row of their own."""

    def problems(self) -> Iterator[str]:
        if self.minimum_length < 1:
            yield f"minimum_length: must be at least 1, got {self.minimum_length}"
        least = 2 * self.minimum_length + SPECIALS_TWO_SEGMENTS
        if self.sequence_length < least:
            yield (
                f"sequence_length: must be at least {least} (two segments of minimum_length and three special "
                f"tokens), got {self.sequence_length}"
            )
        for name in ("one_segment_share", "short_share"):
            share = getattr(self, name)
            if not 0.0 <= share <= 1.0:
                yield f"{name}: must be a probability, from 0 to 1, got {share}"


def pack_two_segments(
    sentence_ends: Offsets, document_ends: Offsets, config: PackingConfig, *, rng: np.random.Generator
) -> Examples:
    """Cut the documents of one shard into rows of one or two segments, every token used exactly once.

    A row never holds text of two documents and follows on where the row before it ended. It takes whole
    sentences until its target length is reached and is cut where it is full; what is beyond the cut starts the
    next row. The target is `sequence_length`, or with probability `short_share` uniform in
    `minimum_length..sequence_length`. With probability `one_segment_share` the row is one segment; else the
    first segment takes whole sentences up to `(target - 3) // 2` tokens, and a fair coin says whether the
    sentence that straddles this aim belongs to it too. Where no sentence ends at a place that leaves both
    segments `minimum_length` tokens, a full row is cut in the middle, and a row at the end of its document
    stays one segment. A document's last row is never shorter than `minimum_length` unless the document is.

    These are the rules of the original's example builder, save that it drops the text beyond the cut and may
    put a later short sentence into the first segment.

    Args:
        sentence_ends: (sentences,) end offset of each sentence in tokens, ascending.
        document_ends: (documents,) end index of each document in sentences, ascending.
        config: lengths and shares.
        rng: three uniform draws are read for every row, in order (some are drawn ahead and left over).

    Returns:
        (examples, 4) int64, in the order of the text.

    Raises:
        DataError: the offsets are not ascending, or the documents do not end with the last sentence.
    """
    _check_offsets(sentence_ends, document_ends)
    # A memoryview hands bisect plain ints at nearly a list's speed without a second copy of the offsets.
    ends = np.ascontiguousarray(sentence_ends, dtype=np.int64).data
    draws = _triples(rng)
    rows = array("q")
    position, first_sentence = 0, 0
    for past_last in document_ends.tolist():
        document_end = ends[past_last - 1] if past_last else 0
        sentence = first_sentence
        while position < document_end:
            cut, row_end = _next_row(ends, sentence, past_last, position, document_end, config, next(draws))
            rows.extend((position, cut - position, cut, row_end - cut))
            position = row_end
            sentence = bisect_right(ends, position, sentence, past_last)
        first_sentence = past_last
    return np.frombuffer(rows, dtype=np.int64).reshape(-1, 4)


def _next_row(
    ends: memoryview[Any],
    sentence: int,
    past_last: int,
    start: int,
    document_end: int,
    config: PackingConfig,
    draws: tuple[float, float, float],
) -> tuple[int, int]:
    """Where the first segment and the row end, for the row at token `start`, which is in `sentence`."""
    one_draw, coin, target_draw = draws
    longest, least = config.sequence_length, config.minimum_length
    one_segment = one_draw < config.one_segment_share
    target = longest
    if target_draw < config.short_share:
        # Given that it is below the share, draw / share is uniform in [0, 1) again.
        target = least + int(target_draw / config.short_share * (longest - least + 1))
    full = start + longest - (SPECIALS_ONE_SEGMENT if one_segment else SPECIALS_TWO_SEGMENTS)

    row_end = min(full, document_end)
    if start + target < full:
        reached = bisect_left(ends, start + target, sentence, past_last)
        if reached < past_last:
            row_end = min(row_end, ends[reached])
    if 0 < document_end - row_end < least:
        # The rest would be a scrap: take it too if it fits, else leave it enough to make a row.
        row_end = document_end if document_end <= full else document_end - least

    aim = start + (target - SPECIALS_TWO_SEGMENTS) // 2
    if one_segment or row_end <= aim:
        return row_end, row_end
    earliest, latest = start + least, row_end - least
    above = bisect_right(ends, max(aim, earliest - 1), sentence, past_last)
    below = bisect_right(ends, min(aim, latest), sentence, above) - 1
    below_end = ends[below] if below >= sentence else -1
    above_end = ends[above] if above < past_last else document_end
    if below_end >= earliest and (below_end == aim or coin >= 0.5 or above_end > latest):
        return below_end, row_end
    if above_end <= latest:
        return above_end, row_end
    if row_end == full:
        middle = start + (row_end - start) // 2
        return middle, row_end
    return row_end, row_end


def _triples(rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    while True:
        yield from map(tuple, rng.random((_DRAWN_AHEAD, DRAWS_PER_EXAMPLE)).tolist())


def _check_offsets(sentence_ends: Offsets, document_ends: Offsets) -> None:
    for name, offsets in (("sentence", sentence_ends), ("document", document_ends)):
        if offsets.size and (offsets[0] < 0 or bool(np.any(offsets[1:] < offsets[:-1]))):
            raise DataError(f"the {name} ends of a shard are not ascending; prepare the data again")
    covered = int(document_ends[-1]) if document_ends.size else 0
    if covered != sentence_ends.size:
        raise DataError(
            f"the documents of a shard end with sentence {covered}, but it has {sentence_ends.size} sentences; "
            "prepare the data again"
        )
