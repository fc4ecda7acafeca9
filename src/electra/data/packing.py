"""Pack documents into examples: which tokens of a shard are together in one row.

A segment is one span of the tokens of a shard, or several if the rules of the original implementation move later
sentences forward. Nothing is copied; `collate` reads the spans and adds [CLS] and [SEP].
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

from electra.config import Fraction, PositiveInt
from electra.data.document_packing import pack_documents
from electra.data.sentence_packing import pack_sentence_pairs, pack_sentences
from electra.data.spans import (
    SPECIALS_ONE_SEGMENT,
    SPECIALS_TWO_SEGMENTS,
    Offsets,
    PackedShard,
    Span,
    check_offsets,
    truncate_spans,
)
from electra.data.streams import pack_stream

TwoSpans = npt.NDArray[np.int64]
"""Shape (rows, 4): start_1, length_1, start_2, length_2 in tokens; length_2 = 0: the row has one segment."""

DRAWS_PER_ROW = 3
"""One segment or two; the coin for the sentence in the middle; the target length."""
_RANDOM_BLOCK = 8192
"""Rows for which random numbers are drawn at once."""


Builder = Literal[
    "contiguous", "original", "sentence-pairs", "full-sentences", "doc-sentences", "packed", "stream"
]
ONE_SEGMENT: tuple[Builder, ...] = ("full-sentences", "doc-sentences", "packed", "stream")
"""Builders whose rows have one segment."""


@dataclass(frozen=True)
class PackingConfig:
    """How documents are packed into rows: of two segments (ELECTRA and BERT; paper section 3.1, appendix A), or in
    the ways that RoBERTa compares (Liu et al. 2019, section 4.2)."""

    builder: Builder = "contiguous"
    """contiguous: rows of two segments; every token is used once and in its order. original: the rules of
    google-research/electra, which fill the first segment with later short sentences and drop what does not fit (it
    collects lines; here sentences, which also end inside lines). sentence-pairs: two consecutive sentences.
    full-sentences: as many whole sentences as fit, across documents, with [SEP] between documents. doc-sentences:
    the same, but a row ends with its document. packed: as many documents as fit, each as if it were alone in its
    row: with its own [CLS] and [SEP], positions that begin anew, and attention to its own tokens only; a document
    longer than a row is cut. stream: consecutive windows of whole documents, not shuffled; each
    row of a batch continues the same row of the batch before; [SEP] after documents, no [CLS]."""

    sequence_length: int = 128
    """Maximum length of a row in tokens, including [CLS] and [SEP]."""
    one_segment_share: Fraction = 0.10
    """Probability that a row is one segment, as in single-sentence tasks, although the text allows two. This and
    the next two settings apply to contiguous and original."""
    short_share: Fraction = 0.05
    """Probability that the target length of a row is random and shorter, so that training has short inputs."""
    minimum_length: PositiveInt = 5
    """Minimum of the random target length; for contiguous also the minimum length of a segment or row, for packed
    of the rest of a document that was cut."""

    @property
    def separates_documents(self) -> bool:
        """Whether there is [SEP] between the spans of a segment, which then belong to different documents."""
        return self.builder == "full-sentences"

    @property
    def packs_documents(self) -> bool:
        """Whether every span of a row is a document of its own, with [CLS] and [SEP]."""
        return self.builder == "packed"

    @property
    def streams(self) -> bool:
        """Whether rows continue from batch to batch."""
        return self.builder == "stream"

    def problems(self) -> Iterator[str]:
        least = 2 * self.minimum_length + SPECIALS_TWO_SEGMENTS
        if self.sequence_length < least:
            yield (
                f"sequence_length: must be at least {least} (two segments of minimum_length and three special "
                f"tokens), got {self.sequence_length}"
            )


def pack(
    sentence_ends: Offsets, document_ends: Offsets, config: PackingConfig, *, rng: np.random.Generator
) -> PackedShard:
    """Pack one shard by the rules that the config names.

    Args, raises: as `pack_two_segments`.
    """
    if config.builder == "original":
        return pack_like_original(sentence_ends, document_ends, config, rng=rng)
    if config.builder != "contiguous":
        check_offsets(sentence_ends, document_ends)
        if config.builder == "sentence-pairs":
            return pack_sentence_pairs(sentence_ends, document_ends, length=config.sequence_length)
        if config.streams:
            return pack_stream(sentence_ends, document_ends, length=config.sequence_length)
        if config.packs_documents:
            return pack_documents(
                sentence_ends, document_ends, length=config.sequence_length, minimum=config.minimum_length
            )
        across = config.builder == "full-sentences"
        return pack_sentences(sentence_ends, document_ends, length=config.sequence_length, across=across)
    spans = pack_two_segments(sentence_ends, document_ends, config, rng=rng).reshape(-1, 2)
    exists = spans[:, 1] > 0
    return PackedShard(spans[exists], np.cumsum(exists, dtype=np.int64).reshape(-1, 2))


def pack_two_segments(
    sentence_ends: Offsets, document_ends: Offsets, config: PackingConfig, *, rng: np.random.Generator
) -> TwoSpans:
    """Pack the documents of one shard into rows of one or two segments; every token is used exactly once.

    A row starts where the row before it ended, and never has text of two documents. It takes whole sentences until
    it reaches its target length, and is cut where it is full; the text after the cut starts the next row. The
    target is `sequence_length`, or with probability `short_share` uniform in `minimum_length..sequence_length`.
    With probability `one_segment_share` the row is one segment. Otherwise the first segment takes whole sentences
    up to `(target - 3) // 2` tokens, and a fair coin decides whether it also takes the sentence that crosses this
    length. If no sentence ends at a place that leaves `minimum_length` tokens to both segments, a full row is
    split in the middle, and a row at the end of its document stays one segment. The last row of a document is
    never shorter than `minimum_length`, unless the document is.

    These are the rules of the original example builder (`pack_like_original`), except that no text is dropped or
    moved.

    Args:
        sentence_ends: (sentences,) end offset of each sentence in tokens, ascending.
        document_ends: (documents,) end index of each document in sentences, ascending.
        config: lengths and shares.
        rng: three uniform numbers are used for every row, in order (some are drawn in advance and not used).

    Returns:
        (rows, 4) int64, in the order of the text.

    Raises:
        DataError: the offsets are not ascending, or the documents do not end with the last sentence.
    """
    check_offsets(sentence_ends, document_ends)
    # bisect reads plain ints from a memoryview nearly as fast as from a list, without a copy of the offsets.
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
    """Return where the first segment and the row end, for the row at token `start`, which is in `sentence`."""
    segment_draw, coin, target_draw = draws
    longest, least = config.sequence_length, config.minimum_length
    one_segment = segment_draw < config.one_segment_share
    target = longest
    if target_draw < config.short_share:
        # If the draw is below the share, draw / share is uniform in [0, 1) again.
        target = least + int(target_draw / config.short_share * (longest - least + 1))
    full = start + longest - (SPECIALS_ONE_SEGMENT if one_segment else SPECIALS_TWO_SEGMENTS)

    row_end = min(full, document_end)
    if start + target < full:
        reached = bisect_left(ends, start + target, sentence, past_last)
        if reached < past_last:
            row_end = min(row_end, ends[reached])
    if 0 < document_end - row_end < least:
        # The rest would be too short: take it too if it fits, otherwise leave enough for a row.
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


def pack_like_original(
    sentence_ends: Offsets, document_ends: Offsets, config: PackingConfig, *, rng: np.random.Generator
) -> PackedShard:
    """Pack one shard into the rows that google-research/electra would make.

    Sentences of a document are collected until they reach the target length, without special tokens. With
    probability `one_segment_share` all of them are the first segment. Otherwise a sentence joins the first segment
    if that is empty, or stays below `(target - 3) // 2` tokens with it; or if the second is empty, the first is
    below that length, and a fair coin decides so. All other sentences join the second segment. Both are shortened
    to what fits, and the rest is dropped. The next target is `sequence_length`, or with probability `short_share`
    uniform in `minimum_length..sequence_length`; the target of the first row of a shard is `sequence_length`.

    Args, raises: as `pack_two_segments`; the number of random numbers per row varies.
    """
    check_offsets(sentence_ends, document_ends)
    ends = np.ascontiguousarray(sentence_ends, dtype=np.int64).data
    draws = _uniforms(rng)
    spans, segment_ends = array("q"), array("q")
    longest, least = config.sequence_length, config.minimum_length
    target, first, start = longest, 0, 0
    for past_last in document_ends.tolist():
        for sentence in range(first, past_last):
            collected = ends[sentence] - start
            if collected and (collected >= target or sentence + 1 == past_last):
                aim = math.inf if next(draws) < config.one_segment_share else (target - SPECIALS_TWO_SEGMENTS) // 2
                segments = _two_segments(ends, first, sentence + 1, start, aim, draws)
                room = longest - SPECIALS_ONE_SEGMENT
                for segment in segments:
                    for span in truncate_spans(segment, room):
                        spans.extend(span)
                        room -= span[1]
                    segment_ends.append(len(spans) // 2)
                    room -= SPECIALS_TWO_SEGMENTS - SPECIALS_ONE_SEGMENT
                draw = next(draws)
                # If the draw is below the share, draw / share is uniform in [0, 1) again.
                short = least + int(draw / config.short_share * (longest - least + 1)) if config.short_share else 0
                target = short if draw < config.short_share else longest
                first, start = sentence + 1, ends[sentence]
        first = past_last
    return PackedShard(
        np.frombuffer(spans, dtype=np.int64).reshape(-1, 2),
        np.frombuffer(segment_ends, dtype=np.int64).reshape(-1, 2),
    )


def _two_segments(
    ends: memoryview[Any], first: int, past: int, start: int, aim: float, draws: Iterator[float]
) -> tuple[list[Span], list[Span]]:
    """Assign the sentences `first..past`, at token `start`, to two segments; adjacent sentences are one span."""
    segments: tuple[list[Span], list[Span]] = [], []
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
        yield from rng.random(_RANDOM_BLOCK).tolist()


def _triples(rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    while True:
        yield from map(tuple, rng.random((_RANDOM_BLOCK, DRAWS_PER_ROW)).tolist())
