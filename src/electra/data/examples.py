"""The examples of a split: every shard packed once, in one index that a batch is gathered from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from electra.data.packing import (
    SPECIALS_ONE_SEGMENT,
    SPECIALS_TWO_SEGMENTS,
    Examples,
    PackingConfig,
    Piece,
    pack,
)
from electra.data.sampling import Rows, shard_seed
from electra.data.shards import Shard, Split, Tokens
from electra.errors import DataError

logger = logging.getLogger(__name__)

Stream = Literal["tokens", "unigram"]
"""The text itself, or the copy of it with unigram fakes that held-out shards carry."""


class ExampleSet:
    """All examples of a split, the same for the same (data, config, seed). About 36 bytes an example.

    `len(examples)` is their number; `examples.lengths` the tokens of each row, specials included, as int32.

    Raises:
        DataError: a shard is too large (2^32 tokens) or its boundaries contradict each other.
    """

    def __init__(self, split: Split, config: PackingConfig, *, seed: int) -> None:
        self.config = config
        self._tokens: list[Tokens] = [_plain(shard.tokens) for shard in split.shards]
        self._unigram: list[Tokens | None] = [
            None if shard.unigram is None else _plain(shard.unigram) for shard in split.shards
        ]
        packed = [_pack(shard, config, seed=shard_seed(seed, i)) for i, shard in enumerate(split.shards)]
        counts = np.array([len(shard.segment_ends) for shard in packed], dtype=np.int64)
        self._past_last = np.cumsum(counts)
        before = np.cumsum([0, *(len(shard.pieces) for shard in packed)])
        # Halves what an index holds: a start within a shard has 32 bits.
        self._pieces = _joined([shard.pieces.astype(np.uint32) for shard in packed])
        self._segment_ends = _joined([shard.segment_ends + n for shard, n in zip(packed, before, strict=False)])
        self.lengths: npt.NDArray[np.int32] = _joined([_lengths(shard) for shard in packed], columns=()).astype(
            np.int32
        )
        logger.debug("packed %d shards into %d examples", len(packed), len(self))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def segment_counts(self) -> npt.NDArray[np.int64]:
        """Segments of each row, 1 or 2."""
        return np.where(self._segment_ends[:, 0] < self._segment_ends[:, 1], 2, 1)

    def shards_of(self, rows: Rows) -> Rows:
        """The shard of each row, (rows,)."""
        return np.searchsorted(self._past_last, rows, side="right")

    def segments(self, rows: Rows) -> list[tuple[list[Piece], list[Piece]]]:
        """The pieces of both segments of each row, in its shard; the second is empty where there is only one."""
        first_B, ends_B2 = np.where(rows > 0, self._segment_ends[rows - 1, 1], 0), self._segment_ends[rows]
        counts_B = ends_B2[:, 1] - first_B
        # All pieces of all rows at once: numpy is quick at many, and slow at few.
        numbers = np.repeat(first_B - np.cumsum(counts_B) + counts_B, counts_B) + np.arange(counts_B.sum())
        pieces = self._pieces[numbers].tolist()
        found, start = [], 0
        for one, both in zip((ends_B2[:, 0] - first_B).tolist(), counts_B.tolist(), strict=True):
            found.append((pieces[start : start + one], pieces[start + one : start + both]))
            start += both
        return found

    def stream(self, name: Stream) -> Sequence[Tokens]:
        """The token ids of each shard; the spans hold for every stream.

        Raises:
            DataError: a shard has no such copy of its text (only held-out shards have "unigram").
        """
        if name == "tokens":
            return self._tokens
        copies = [copy for copy in self._unigram if copy is not None]
        if len(copies) < len(self._unigram):
            raise DataError(
                "this split has no copy of its text with unigram fakes; `electra prepare` writes one for the "
                "held-out part only: evaluate on that"
            )
        return copies


def _plain(tokens: Tokens) -> Tokens:
    """The same memory without numpy.memmap's class, which makes each slice cost several times as much."""
    return tokens.view(np.ndarray)


def _joined(arrays: list[npt.NDArray[Any]], columns: tuple[int, ...] = (2,)) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty((0, *columns), dtype=np.int64)


def _lengths(packed: Examples) -> npt.NDArray[np.int64]:
    """Tokens of each row, [CLS] and [SEP] included."""
    tokens = np.concatenate([[0], np.cumsum(packed.pieces[:, 1])])
    ends = tokens[packed.segment_ends]
    starts = np.concatenate([[0], ends[:-1, 1]])
    return ends[:, 1] - starts + np.where(ends[:, 0] < ends[:, 1], SPECIALS_TWO_SEGMENTS, SPECIALS_ONE_SEGMENT)


def _pack(shard: Shard, config: PackingConfig, *, seed: int) -> Examples:
    tokens = len(shard.tokens)
    if tokens > np.iinfo(np.uint32).max:
        raise DataError(
            f"shard {shard.name}: {tokens:,} tokens are too many (2^32 at most); prepare smaller shards"
        )
    if len(shard.sentence_ends) and int(shard.sentence_ends[-1]) != tokens:
        raise DataError(
            f"shard {shard.name}: its sentences end at token {int(shard.sentence_ends[-1]):,}, but it has "
            f"{tokens:,} tokens; prepare the data again"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    return pack(shard.sentence_ends, shard.document_ends, config, rng=rng)
