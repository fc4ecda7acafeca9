"""The examples of a split: every shard packed once, in one index that a batch is gathered from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from electra.data.example_index import ExampleIndex, packed
from electra.data.packing import PackingConfig
from electra.data.sampling import Rows
from electra.data.shards import Split, Tokens
from electra.data.spans import Piece
from electra.data.streams import SEPARATOR
from electra.errors import DataError

logger = logging.getLogger(__name__)

Stream = Literal["tokens", "unigram"]
"""The text itself, or the copy of it with unigram fakes that held-out shards carry."""


class ExampleSet:
    """All examples of a split, the same for the same (data, config, seed).

    `len(examples)` is their number; `examples.lengths` the tokens of each row, specials included, as int32.

    Args:
        index: where they lie, if that is known; None: the split is packed now.

    Raises:
        DataError: a shard is too large (2^32 tokens) or its boundaries contradict each other.
    """

    def __init__(
        self, split: Split, config: PackingConfig, *, seed: int, index: ExampleIndex | None = None
    ) -> None:
        self.config = config
        self._tokens: list[Tokens] = [_plain(shard.tokens) for shard in split.shards]
        self._unigram: list[Tokens | None] = [
            None if shard.unigram is None else _plain(shard.unigram) for shard in split.shards
        ]
        index = index or packed(split, config, seed=seed)
        self._pieces, self._segment_ends, self._past_last = index.pieces, index.segment_ends, index.past_last
        self.lengths = index.lengths
        logger.debug("packed %d shards into %d examples", len(split.shards), len(self))

    def __len__(self) -> int:
        return len(self.lengths)

    def counts(self, shards: Sequence[int]) -> tuple[int, ...]:
        """How many examples there are in each of several groups of so many shards, which follow one another."""
        past = np.concatenate([[0], self._past_last])[np.cumsum([0, *shards])]
        return tuple(np.diff(past).tolist())

    @property
    def segment_counts(self) -> npt.NDArray[np.int64]:
        """Segments of each row, 1 or 2."""
        return np.where(self._segment_ends[:, 0] < self._segment_ends[:, 1], 2, 1)

    @property
    def piece_counts(self) -> npt.NDArray[np.int64]:
        """Pieces of each row, of both segments together."""
        return np.diff(self._segment_ends[:, 1], prepend=0)

    @property
    def separators(self) -> npt.NDArray[np.int64]:
        """[SEP] in each window of a stream, the token behind it left out."""
        places = np.cumsum(np.append(0, self._pieces[:, 0] == SEPARATOR))
        ends = np.append(0, self._segment_ends[:, 1])
        return np.diff(places[ends]) - (self._pieces[ends[1:] - 1, 0] == SEPARATOR)

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
