"""Pack whole documents into rows without padding between them; each is read as if it were alone in its row."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from electra.data.spans import SPECIALS_ONE_SEGMENT, Offsets, PackedShard

Chunk = tuple[int, int]
"""Start and length, in tokens of the shard, of a document or of a part of a long one."""


def pack_documents(sentence_ends: Offsets, document_ends: Offsets, *, length: int, minimum: int) -> PackedShard:
    """Pack documents into rows, one after another; every token is used exactly once.

    Each span of a row is one document with its own [CLS] and [SEP]. A document that is longer than a row is cut
    into chunks that fill a row, and a rest. Chunks are put into rows from the longest to the shortest, each
    into the fullest row that has room for it (best-fit decreasing; Ding et al. 2024, "Fewer truncations improve
    language modeling").

    Args:
        sentence_ends: (sentences,) end offset of each sentence in tokens, ascending.
        document_ends: (documents,) end index of each document in sentences, ascending.
        length: the maximum length of a row, including special tokens.
        minimum: the rest of a document is never shorter, unless the document is.
    """
    room = length - SPECIALS_ONE_SEGMENT
    ends = np.concatenate([[0], sentence_ends])[document_ends]  # ends of documents, in tokens
    chunks: list[Chunk] = []
    start = 0
    for end in ends.tolist():
        while start < end:
            stop = min(end, start + room)
            if 0 < end - stop < minimum:
                stop = end - minimum
            chunks.append((start, stop - start))
            start = stop
    rows = _fill_rows(chunks, length)
    spans = np.array([chunk for row in rows for chunk in row], dtype=np.int64).reshape(-1, 2)
    counts = np.cumsum([len(row) for row in rows], dtype=np.int64)
    return PackedShard(spans, np.stack([counts, counts], 1))


def _fill_rows(chunks: list[Chunk], length: int) -> list[list[Chunk]]:
    """Distribute chunks over rows; rows are in the order of their first chunk in the text."""
    rows: list[list[Chunk]] = []
    rows_by_room: dict[int, list[int]] = {}
    rooms: list[int] = []  # the keys of rows_by_room, ascending
    for chunk in sorted(chunks, key=lambda item: -item[1]):
        size = chunk[1] + SPECIALS_ONE_SEGMENT
        index = bisect_left(rooms, size)
        if index == len(rooms):
            rows.append([chunk])
            room, row = length - size, len(rows) - 1
        else:
            room = rooms[index]
            row = rows_by_room[room].pop()
            if not rows_by_room[room]:
                del rows_by_room[room], rooms[index]
            rows[row].append(chunk)
            room -= size
        if room > SPECIALS_ONE_SEGMENT:
            if room not in rows_by_room:
                rows_by_room[room] = []
                insort(rooms, room)
            rows_by_room[room].append(row)
    return sorted(sorted(row) for row in rows)
