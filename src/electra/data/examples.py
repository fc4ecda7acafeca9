"""The examples of a split: every shard is packed once, into one index from which batches are gathered."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from electra.data.example_index import ExampleIndex, build_index
from electra.data.packing import PackingConfig
from electra.data.sampling import Rows
from electra.data.shards import Split, Tokens
from electra.data.spans import SPECIALS_ONE_SEGMENT, Span
from electra.data.streams import SEPARATOR
from electra.errors import DataError

logger = logging.getLogger(__name__)

MAX_SPANS = 1_000_000
"""Spans whose lengths are read to describe the documents of packed rows."""
LENGTHS = 64
"""Number of lengths that describe the documents of packed rows."""

TokenSource = Literal["tokens", "unigram"]
"""The text itself, or the copy of it with unigram fakes that held-out shards have."""


class ExampleSet:
    """All examples of a split; they are the same for the same (data, config, seed).

    `len(examples)` is their number; `examples.lengths` has the tokens of each row, including special tokens, as
    int32.

    Args:
        index: the index of the split; None: the split is packed now.

    Raises:
        DataError: a shard is too large (2^32 tokens) or its boundaries contradict each other.
    """

    def __init__(
        self, split: Split, config: PackingConfig, *, seed: int, index: ExampleIndex | None = None
    ) -> None:
        self.config = config
        self._tokens: list[Tokens] = [_as_array(shard.tokens) for shard in split.shards]
        self._unigram: list[Tokens | None] = [
            None if shard.unigram is None else _as_array(shard.unigram) for shard in split.shards
        ]
        index = index or build_index(split, config, seed=seed)
        self._spans, self._segment_ends, self._shard_ends = index.spans, index.segment_ends, index.shard_ends
        self.lengths = index.lengths
        logger.debug("packed %d shards into %d examples", len(split.shards), len(self))

    def __len__(self) -> int:
        return len(self.lengths)

    def count_examples(self, shards: Sequence[int]) -> tuple[int, ...]:
        """Return the number of examples in each of several consecutive groups of this many shards."""
        ends = np.concatenate([[0], self._shard_ends])[np.cumsum([0, *shards])]
        return tuple(np.diff(ends).tolist())

    def document_lengths(self) -> dict[int, int]:
        """Return about how many documents of each length packed rows have, including [CLS] and [SEP].

        At most 64 lengths are returned; each stands for as many documents, of about the same length.
        """
        step = -(-len(self._spans) // MAX_SPANS)
        lengths = np.sort(self._spans[::step, 1].astype(np.int64)) + SPECIALS_ONE_SEGMENT
        parts = np.array_split(lengths, min(len(lengths), LENGTHS))
        means = Counter[int]()
        for part in parts:
            means[round(float(part.mean()))] += len(part)
        return dict(means)

    @property
    def segment_counts(self) -> npt.NDArray[np.int64]:
        """Number of segments of each row, 1 or 2."""
        return np.where(self._segment_ends[:, 0] < self._segment_ends[:, 1], 2, 1)

    @property
    def span_counts(self) -> npt.NDArray[np.int64]:
        """Number of spans of each row, of both segments together."""
        return np.diff(self._segment_ends[:, 1], prepend=0)

    @property
    def separator_counts(self) -> npt.NDArray[np.int64]:
        """Number of [SEP] in each window of a stream, without the token after the window."""
        separators = np.cumsum(np.append(0, self._spans[:, 0] == SEPARATOR))
        ends = np.append(0, self._segment_ends[:, 1])
        return np.diff(separators[ends]) - (self._spans[ends[1:] - 1, 0] == SEPARATOR)

    def find_shards(self, rows: Rows) -> Rows:
        """Return the shard of each row, (rows,)."""
        return np.searchsorted(self._shard_ends, rows, side="right")

    def segment_spans(self, rows: Rows) -> list[tuple[list[Span], list[Span]]]:
        """Return the spans of both segments of each row in its shard; a row of one segment has an empty second
        list."""
        first_B, ends_B2 = np.where(rows > 0, self._segment_ends[rows - 1, 1], 0), self._segment_ends[rows]
        counts_B = ends_B2[:, 1] - first_B
        # All spans of all rows at once, because a numpy call is slow for a few numbers.
        numbers = np.repeat(first_B - np.cumsum(counts_B) + counts_B, counts_B) + np.arange(counts_B.sum())
        spans = self._spans[numbers].tolist()
        segments, start = [], 0
        for one, both in zip((ends_B2[:, 0] - first_B).tolist(), counts_B.tolist(), strict=True):
            segments.append((spans[start : start + one], spans[start + one : start + both]))
            start += both
        return segments

    def token_arrays(self, source: TokenSource) -> Sequence[Tokens]:
        """Return the token ids of each shard. The spans are valid for both sources.

        Raises:
            DataError: a shard has no copy with unigram fakes; only held-out shards do.
        """
        if source == "tokens":
            return self._tokens
        copies = [copy for copy in self._unigram if copy is not None]
        if len(copies) < len(self._unigram):
            raise DataError(
                "this split has no copy of its text with unigram fakes; `electra prepare` writes one for the "
                "held-out part only, so evaluate on that part"
            )
        return copies


def _as_array(tokens: Tokens) -> Tokens:
    """Return the same memory without the class numpy.memmap, with which a slice takes several times as long."""
    return tokens.view(np.ndarray)
