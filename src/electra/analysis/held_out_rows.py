"""Rows of held-out documents of prepared data, as long as a network's inputs."""

from dataclasses import dataclass

import numpy as np

from electra.data.shards import Split
from electra.errors import DataError

SHORTEST = 16
"""Tokens of a row at least: of a shorter one too large a share would be replaced, as it is one token at least."""


@dataclass(frozen=True)
class DocumentRows:
    """Rows without special tokens, and the document of each, numbered from 0."""

    ids: list[list[int]]
    documents: list[int]


def held_out_rows(split: Split, *, documents: int, length: int, row: int, seed: int) -> DocumentRows:
    """Some documents, drawn by lot, each cut into rows; what is left over at its end is a shorter one.

    Args:
        documents: at most so many; those with fewer than `SHORTEST` tokens are left out.
        length: tokens of each at most, from its beginning.
        row: tokens of a row.

    Raises:
        DataError: the split has no document that is long enough.
    """
    places = []
    for shard in split.shards:
        ends = np.concatenate([[0], shard.sentence_ends])[shard.document_ends]
        starts = np.concatenate([[0], ends[:-1]])
        places += [(shard, int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
    places = [one for one in places if one[2] - one[1] >= SHORTEST]
    if not places:
        raise DataError("nothing was held out to measure on; prepare the data with a larger --heldout")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(places))[:documents])
    ids: list[list[int]] = []
    owners: list[int] = []
    for number, (shard, start, end) in enumerate(places[each] for each in chosen):
        tokens = shard.tokens[start : min(end, start + length)].tolist()
        rows = [tokens[first : first + row] for first in range(0, len(tokens), row)]
        rows = [one for one in rows if len(one) >= min(SHORTEST, row)]
        ids += rows
        owners += [number] * len(rows)
    return DocumentRows(ids, owners)
