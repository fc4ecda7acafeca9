"""Pack whole sentences into rows, in the other ways that RoBERTa compares (Liu et al. 2019, section 4.2)."""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np

from electra.data.spans import SPECIALS_ONE_SEGMENT, SPECIALS_TWO_SEGMENTS, Offsets, PackedShard, truncate_spans


def pack_sentences(sentence_ends: Offsets, document_ends: Offsets, *, length: int, across: bool) -> PackedShard:
    """Pack as many whole sentences as fit into each row, as one segment; every token is used once, in its order.

    A sentence that is longer than a row is split where the row is full; the rest starts the next row.

    Args:
        sentence_ends: (sentences,) end offset of each sentence in tokens, ascending.
        document_ends: (documents,) end index of each document in sentences, ascending.
        length: the maximum length of a row, including special tokens.
        across: rows continue into the next document (FULL-SENTENCES), which is then another span; the separator
            between two spans counts as a token. Otherwise a row ends with its document (DOC-SENTENCES).
    """
    room = length - SPECIALS_ONE_SEGMENT
    past = np.concatenate([[0], sentence_ends])[document_ends]  # ends of documents, in tokens
    past = past[np.diff(past, prepend=0) > 0]
    # The ends of sentences if there is a separator before every document except the first.
    before = np.searchsorted(past, sentence_ends, side="left") if across else np.zeros_like(sentence_ends)
    ends, lasts = np.ascontiguousarray(sentence_ends + before).data, past.tolist()
    spans, segment_ends = array("q"), array("q")
    position, document, sentence = 0, 0, 0
    while document < len(lasts):
        start = position + (document if across else 0)
        sentence_past = bisect_right(ends, start + room, sentence)
        full_end = start + room  # a sentence longer than a row
        if sentence_past and ends[sentence_past - 1] > start:
            full_end = ends[sentence_past - 1]
        row_end = full_end
        while document < len(lasts):
            last = lasts[document] + (document if across else 0)
            span_end = min(last, row_end) - (document if across else 0)
            if span_end > position:
                spans.extend((position, span_end - position))
                position = span_end
            if row_end < last:
                break
            document += 1
            if not across or row_end == last:
                break
        sentence = sentence_past
        segment_ends.extend((len(spans) // 2, len(spans) // 2))
    return _packed(spans, segment_ends)


def pack_sentence_pairs(sentence_ends: Offsets, document_ends: Offsets, *, length: int) -> PackedShard:
    """Pack two consecutive sentences into each row; the last of an odd number is a row of one segment.

    What does not fit is dropped: the longer sentence is shortened first, then both, to half of the row each.

    Args: as `pack_sentences`.
    """
    ends = np.ascontiguousarray(sentence_ends, dtype=np.int64).tolist()
    spans, segment_ends = array("q"), array("q")
    first, position = 0, 0
    for past in document_ends.tolist():
        sentences = []
        for sentence in range(first, past):
            if ends[sentence] > position:
                sentences.append((position, ends[sentence] - position))
            position = ends[sentence]
        for one in range(0, len(sentences), 2):
            pair = sentences[one : one + 2]
            room = length - (SPECIALS_TWO_SEGMENTS if len(pair) == 2 else SPECIALS_ONE_SEGMENT)
            if len(pair) == 2:
                least = room // 2
                of_first = max(room - least, room - pair[1][1]) if pair[0][1] > room - least else pair[0][1]
                spans.extend(*truncate_spans([pair[0]], of_first))
                segment_ends.append(len(spans) // 2)
                spans.extend(*truncate_spans([pair[1]], room - min(of_first, pair[0][1])))
                segment_ends.append(len(spans) // 2)
            else:
                spans.extend(*truncate_spans(pair, room))
                segment_ends.extend((len(spans) // 2, len(spans) // 2))
        first = past
    return _packed(spans, segment_ends)


def _packed(spans: array[int], segment_ends: array[int]) -> PackedShard:
    return PackedShard(
        np.frombuffer(spans, dtype=np.int64).reshape(-1, 2),
        np.frombuffer(segment_ends, dtype=np.int64).reshape(-1, 2),
    )
