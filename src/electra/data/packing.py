"""Documents to examples: which tokens of a shard stand together in one row.

A segment is one piece of a shard's tokens, or several where the original's rules bring later sentences forward.
Nothing is copied; `collate` reads the pieces and adds [CLS] and [SEP].
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from electra.data.sentence_packing import pack_sentence_pairs, pack_sentences
from electra.data.spans import (
    SPECIALS_ONE_SEGMENT,
    SPECIALS_TWO_SEGMENTS,
    Examples,
    Offsets,
    Piece,
    check_offsets,
    cut,
)
from electra.data.streams import pack_stream

TwoSpans = npt.NDArray[np.int64]
"""Shape (examples, 4): start_1, length_1, start_2, length_2 in tokens; length_2 = 0 is a single segment."""

DRAWS_PER_EXAMPLE = 3
"""One segment or two; the coin for the sentence that straddles the aim; the target length."""
_DRAWN_AHEAD = 8192


Builder = Literal["contiguous", "original", "sentence-pairs", "full-sentences", "doc-sentences", "stream"]
ONE_SEGMENT: tuple[Builder, ...] = ("full-sentences", "doc-sentences", "stream")
"""Whose rows have one segment."""


@dataclass(frozen=True)
class PackingConfig:
    """How documents are cut into rows: of two segments (ELECTRA and BERT; paper section 3.1, appendix A), or in
    the ways that RoBERTa compares (Liu et al. 2019, section 4.2)."""

    builder: Builder = "contiguous"
    """contiguous: rows of two segments, every token used once and in its order. original: as
    google-research/electra builds them, which fills the first segment up with later short sentences and drops what
    does not fit (it gathers lines; here, sentences, which also end within lines). sentence-pairs: two sentences
    that follow one another. full-sentences: as many whole sentences as fit, across documents, with [SEP] between
    those. doc-sentences: the same, but a row ends with its document. stream: windows of whole documents, not
    shuffled, each row of a batch the one behind that of the batch before; [SEP] behind documents, no [CLS]."""

    sequence_length: int = 128
    """Longest row in tokens, [CLS] and [SEP] included."""
    one_segment_share: float = 0.10
    """Probability that a row is one segment, as in single-sentence tasks, where the text would allow two (for
    contiguous and original, as the next two)."""
    short_share: float = 0.05
    """Probability that a row aims at a random shorter length, so that short inputs are seen in training."""
    minimum_length: int = 5
    """Least random target length, and for contiguous the fewest tokens that are cut off as a segment or a row."""

    @property
    def separates_documents(self) -> bool:
        """Whether there is [SEP] between the pieces of a segment, which are of different documents then."""
        return self.builder == "full-sentences"

    @property
    def streams(self) -> bool:
        """Whether rows go on from batch to batch."""
        return self.builder == "stream"

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


def pack(
    sentence_ends: Offsets, document_ends: Offsets, config: PackingConfig, *, rng: np.random.Generator
) -> Examples:
    """The rows of one shard, by the rules that the config names.

    Args, raises: as `pack_two_segments`.
    """
    if config.builder == "original":
        return pack_as_the_original(sentence_ends, document_ends, config, rng=rng)
    if config.builder != "contiguous":
        check_offsets(sentence_ends, document_ends)
        if config.builder == "sentence-pairs":
            return pack_sentence_pairs(sentence_ends, document_ends, length=config.sequence_length)
        if config.streams:
            return pack_stream(sentence_ends, document_ends, length=config.sequence_length)
        across = config.builder == "full-sentences"
        return pack_sentences(sentence_ends, document_ends, length=config.sequence_length, across=across)
    spans = pack_two_segments(sentence_ends, document_ends, config, rng=rng).reshape(-1, 2)
    held = spans[:, 1] > 0
    return Examples(spans[held], np.cumsum(held, dtype=np.int64).reshape(-1, 2))


def pack_two_segments(
    sentence_ends: Offsets, document_ends: Offsets, config: PackingConfig, *, rng: np.random.Generator
) -> TwoSpans:
    """Cut the documents of one shard into rows of one or two segments, every token used exactly once.

    A row never holds text of two documents and follows on where the row before it ended. It takes whole
    sentences until its target length is reached and is cut where it is full; what is beyond the cut starts the
    next row. The target is `sequence_length`, or with probability `short_share` uniform in
    `minimum_length..sequence_length`. With probability `one_segment_share` the row is one segment; else the
    first segment takes whole sentences up to `(target - 3) // 2` tokens, and a fair coin says whether the
    sentence that straddles this aim belongs to it too. Where no sentence ends at a place that leaves both
    segments `minimum_length` tokens, a full row is cut in the middle, and a row at the end of its document
    stays one segment. A document's last row is never shorter than `minimum_length` unless the document is.

    These are the rules of the original's example builder (`pack_as_the_original`), save that no text is dropped
    and none is moved.

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
    check_offsets(sentence_ends, document_ends)
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


def pack_as_the_original(
    sentence_ends: Offsets, document_ends: Offsets, config: PackingConfig, *, rng: np.random.Generator
) -> Examples:
    """The rows that google-research/electra would make of one shard.

    Sentences of a document are gathered until they reach the target length, special tokens not counted. With
    probability `one_segment_share` all of them are the first segment; else a sentence joins the first segment if
    that is empty, or stays below `(target - 3) // 2` tokens with it, or if the second is empty, the first below
    that aim, and a fair coin says so; all others join the second. Each is cut to what fits, and the rest is
    dropped. The next target is `sequence_length`, or with probability `short_share` uniform in
    `minimum_length..sequence_length`; the first row of a shard aims at `sequence_length`.

    Args, raises: as `pack_two_segments`; the number of draws a row varies.
    """
    check_offsets(sentence_ends, document_ends)
    ends = np.ascontiguousarray(sentence_ends, dtype=np.int64).data
    draws = _uniforms(rng)
    pieces, segment_ends = array("q"), array("q")
    longest, least = config.sequence_length, config.minimum_length
    target, first, start = longest, 0, 0
    for past_last in document_ends.tolist():
        for sentence in range(first, past_last):
            gathered = ends[sentence] - start
            if gathered and (gathered >= target or sentence + 1 == past_last):
                aim = math.inf if next(draws) < config.one_segment_share else (target - SPECIALS_TWO_SEGMENTS) // 2
                segments = _two_segments(ends, first, sentence + 1, start, aim, draws)
                room = longest - SPECIALS_ONE_SEGMENT
                for segment in segments:
                    for piece in cut(segment, room):
                        pieces.extend(piece)
                        room -= piece[1]
                    segment_ends.append(len(pieces) // 2)
                    room -= SPECIALS_TWO_SEGMENTS - SPECIALS_ONE_SEGMENT
                draw = next(draws)
                # Given that it is below the share, draw / share is uniform in [0, 1) again.
                short = least + int(draw / config.short_share * (longest - least + 1)) if config.short_share else 0
                target = short if draw < config.short_share else longest
                first, start = sentence + 1, ends[sentence]
        first = past_last
    return Examples(
        np.frombuffer(pieces, dtype=np.int64).reshape(-1, 2),
        np.frombuffer(segment_ends, dtype=np.int64).reshape(-1, 2),
    )


def _two_segments(
    ends: memoryview[Any], first: int, past: int, start: int, aim: float, draws: Iterator[float]
) -> tuple[list[Piece], list[Piece]]:
    """Which of the sentences `first..past`, at token `start`, join which segment; neighbours are one piece."""
    segments: tuple[list[Piece], list[Piece]] = [], []
    lengths = [0, 0]
    for sentence in range(first, past):
        length = ends[sentence] - start
        joins_first = (
            not lengths[0]
            or lengths[0] + length < aim
            or (not lengths[1] and lengths[0] < aim and next(draws) < 0.5)
        )
        segment = segments[not joins_first]
        if segment and sum(segment[-1]) == start:
            segment[-1] = (segment[-1][0], segment[-1][1] + length)
        elif length:
            segment.append((start, length))
        lengths[not joins_first] += length
        start += length
    return segments


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(_DRAWN_AHEAD).tolist()


def _triples(rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    while True:
        yield from map(tuple, rng.random((_DRAWN_AHEAD, DRAWS_PER_EXAMPLE)).tolist())
