"""The examples of a split: every shard packed once, in one index that a batch is gathered from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from electra.data.packing import (
    SPECIALS_ONE_SEGMENT,
    SPECIALS_TWO_SEGMENTS,
    Examples,
    PackingConfig,
    pack_two_segments,
)
from electra.data.sampling import Rows, shard_seed
from electra.data.shards import Shard, Split, Tokens
from electra.errors import DataError

logger = logging.getLogger(__name__)

Stream = Literal["tokens", "unigram"]
"""The text itself, or the copy of it with unigram fakes that held-out shards carry."""


class ExampleSet:
    """All examples of a split, the same for the same (data, config, seed). 20 bytes an example.

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
        spans = [_pack(shard, config, seed=shard_seed(seed, i)) for i, shard in enumerate(split.shards)]
        counts = np.array([len(shard_spans) for shard_spans in spans], dtype=np.int64)
        self._past_last = np.cumsum(counts)
        self._spans = np.concatenate(spans) if spans else np.empty((0, 4), dtype=np.uint32)
        first, second = self._spans[:, 1], self._spans[:, 3]
        specials = np.where(second > 0, SPECIALS_TWO_SEGMENTS, SPECIALS_ONE_SEGMENT)
        self.lengths: npt.NDArray[np.int32] = (first + second + specials).astype(np.int32)
        logger.debug("packed %d shards into %d examples", len(spans), len(self))

    def __len__(self) -> int:
        return len(self._spans)

    def spans(self, rows: Rows) -> tuple[Rows, Examples]:
        """The shard of each row, (rows,), and its two spans in that shard, (rows, 4), both int64."""
        return np.searchsorted(self._past_last, rows, side="right"), self._spans[rows].astype(np.int64)

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


def _pack(shard: Shard, config: PackingConfig, *, seed: int) -> npt.NDArray[np.uint32]:
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
    return pack_two_segments(shard.sentence_ends, shard.document_ends, config, rng=rng).astype(np.uint32)
