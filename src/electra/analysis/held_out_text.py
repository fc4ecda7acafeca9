"""Text from the held-out documents of prepared data."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from electra.data.shards import Shard, Split
from electra.errors import DataError

MIN_ROW_TOKENS = 16
"""Shorter rows are left out: at least one token of each row is replaced, which is too large a fraction of them."""


def held_out_documents(split: Split, *, min_tokens: int = 1) -> list[tuple[Shard, int, int]]:
    """The documents of a split with at least `min_tokens` tokens: shard, first token, and end.

    Raises:
        DataError: there is no such document.
    """
    documents = []
    for shard in split.shards:
        ends = np.concatenate([[0], shard.sentence_ends])[shard.document_ends]
        starts = np.concatenate([[0], ends[:-1]])
        documents += [(shard, int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
    documents = [document for document in documents if document[2] - document[1] >= min_tokens]
    if not documents:
        raise DataError(
            "the prepared data holds no held-out text to measure on; prepare it with a larger --heldout"
        )
    return documents


def longest_documents(split: Split, *, separate: int, documents: int, length: int) -> list[Tensor]:
    """The longest documents, longest first, each as [SEP] and its first tokens (1 + T,).

    Args:
        separate: the id of [SEP].
        documents: the maximum number of documents.
        length: the maximum number of tokens of each.

    Raises:
        DataError: the split has no text.
    """
    longest = sorted(held_out_documents(split), key=lambda document: document[1] - document[2])[:documents]
    rows = [shard.tokens[start : min(end, start + length)] for shard, start, end in longest]
    return [torch.cat([torch.tensor([separate]), torch.from_numpy(row.astype(np.int64))]) for row in rows]


@dataclass(frozen=True)
class DocumentRows:
    """Rows without special tokens, and the document of each, numbered from 0."""

    ids: list[list[int]]
    documents: list[int]


def sample_document_rows(split: Split, *, documents: int, length: int, row: int, seed: int) -> DocumentRows:
    """Sample documents at random and cut each into rows; the last row of a document may be shorter.

    Args:
        documents: the maximum number of documents; those with fewer than `MIN_ROW_TOKENS` tokens are left out.
        length: the maximum number of tokens of each, from its beginning.
        row: the number of tokens of a row.

    Raises:
        DataError: the split has no document that is long enough.
    """
    candidates = held_out_documents(split, min_tokens=MIN_ROW_TOKENS)
    sampled = np.sort(np.random.default_rng(seed).permutation(len(candidates))[:documents])
    ids: list[list[int]] = []
    row_documents: list[int] = []
    for number, (shard, start, end) in enumerate(candidates[index] for index in sampled):
        tokens = shard.tokens[start : min(end, start + length)].tolist()
        rows = [tokens[first : first + row] for first in range(0, len(tokens), row)]
        rows = [piece for piece in rows if len(piece) >= min(MIN_ROW_TOKENS, row)]
        ids += rows
        row_documents += [number] * len(rows)
    return DocumentRows(ids, row_documents)


def evenly_spaced_segments(split: Split, *, texts: int, length: int) -> list[list[int]]:
    """Segments of at most `length` tokens, each from one document, spread evenly over the split.

    Segments shorter than half of `length`, such as the ends of documents, are used only if there are no others.

    Args:
        texts: the maximum number of segments.

    Raises:
        DataError: the split has no text.
    """
    segments = [
        (shard, first, min(first + length, end))
        for shard, start, end in held_out_documents(split)
        for first in range(start, end, length)
    ]
    segments = [segment for segment in segments if 2 * (segment[2] - segment[1]) >= length] or segments
    selected = np.linspace(0, len(segments) - 1, min(texts, len(segments))).round().astype(int)
    return [shard.tokens[start:end].tolist() for shard, start, end in (segments[i] for i in selected.tolist())]
