"""The other ways of RoBERTa to cut documents into rows (Liu et al. 2019, section 4.2): by whole sentences."""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np

from electra.data.spans import SPECIALS_ONE_SEGMENT, SPECIALS_TWO_SEGMENTS, Examples, Offsets, cut


def pack_sentences(sentence_ends: Offsets, document_ends: Offsets, *, length: int, across: bool) -> Examples:
    """Rows of as many whole sentences as fit, one segment each; every token is used once and in its order.

    A sentence that is longer than a row is cut where the row is full, and the rest starts the next one.

    Args:
        sentence_ends: (sentences,) end offset of each sentence in tokens, ascending.
        document_ends: (documents,) end index of each document in sentences, ascending.
        length: the longest row, special tokens included.
        across: rows go on into the next document (FULL-SENTENCES), which is then a piece of its own; the separator
            between two pieces counts as a token. Else a row ends with its document (DOC-SENTENCES).
    """
    room = length - SPECIALS_ONE_SEGMENT
    past = np.concatenate([[0], sentence_ends])[document_ends]  # of documents, in tokens
    past = past[np.diff(past, prepend=0) > 0]
    # Where sentences end if there is a separator before every document but the first.
    before = np.searchsorted(past, sentence_ends, side="left") if across else np.zeros_like(sentence_ends)
    ends, lasts = np.ascontiguousarray(sentence_ends + before).data, past.tolist()
    pieces, segment_ends = array("q"), array("q")
    position, document, sentence = 0, 0, 0
    while document < len(lasts):
        start = position + (document if across else 0)
        sentence_past = bisect_right(ends, start + room, sentence)
        cut_at = start + room  # a sentence longer than a row
        if sentence_past and ends[sentence_past - 1] > start:
            cut_at = ends[sentence_past - 1]
        row_end = cut_at
        while document < len(lasts):
            last = lasts[document] + (document if across else 0)
            piece_end = min(last, row_end) - (document if across else 0)
            if piece_end > position:
                pieces.extend((position, piece_end - position))
                position = piece_end
            if row_end < last:
                break
            document += 1
            if not across or row_end == last:
                break
        sentence = sentence_past
        segment_ends.extend((len(pieces) // 2, len(pieces) // 2))
    return _examples(pieces, segment_ends)


def pack_sentence_pairs(sentence_ends: Offsets, document_ends: Offsets, *, length: int) -> Examples:
    """Rows of two sentences that follow one another; the last of an odd number is a row of one segment.

    What does not fit is dropped: the longer sentence is cut first, then both, to half of the row each.

    Args: as `pack_sentences`.
    """
    ends = np.ascontiguousarray(sentence_ends, dtype=np.int64).tolist()
    pieces, segment_ends = array("q"), array("q")
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
                pieces.extend(*cut([pair[0]], of_first))
                segment_ends.append(len(pieces) // 2)
                pieces.extend(*cut([pair[1]], room - min(of_first, pair[0][1])))
                segment_ends.append(len(pieces) // 2)
            else:
                pieces.extend(*cut(pair, room))
                segment_ends.extend((len(pieces) // 2, len(pieces) // 2))
        first = past
    return _examples(pieces, segment_ends)


def _examples(pieces: array[int], segment_ends: array[int]) -> Examples:
    return Examples(
        np.frombuffer(pieces, dtype=np.int64).reshape(-1, 2),
        np.frombuffer(segment_ends, dtype=np.int64).reshape(-1, 2),
    )
