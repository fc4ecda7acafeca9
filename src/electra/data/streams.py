"""Streams: text that continues from batch to batch, for networks with a memory.

All documents follow one another. A row of a batch is a window of the stream, and the same row of the next batch is
the next window (Dai et al. 2019, "Transformer-XL", section 3.2). Nothing is shuffled: row b of B reads the b-th of
B equal parts of the stream from its beginning to its end, and again in the next epoch.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from electra.data.sampling import Rows
from electra.data.shards import Split, TokenData
from electra.data.spans import Offsets, PackedShard
from electra.errors import ConfigError, DataError

SEPARATOR = 2**32 - 1
"""The start of a span that is not text but the [SEP] after a document."""


def pack_stream(sentence_ends: Offsets, document_ends: Offsets, *, length: int) -> PackedShard:
    """Pack a shard into consecutive windows of `length` tokens, each with the token that follows it.

    A [SEP] follows each document. The rest at the end of the shard, which is shorter than a window and the token
    after it, is dropped.

    Args:
        sentence_ends: (sentences,) end offset of each sentence in tokens, ascending.
        document_ends: (documents,) end index of each document in sentences, ascending.

    Returns:
        Spans of text and `SEPARATOR`s, `length + 1` tokens per window.
    """
    ends = np.concatenate([[0], sentence_ends])[document_ends]  # ends of documents, in tokens
    starts = np.concatenate([[0], ends[:-1]])
    starts, ends = starts[starts < ends], ends[starts < ends]
    stream_starts = (starts + np.arange(len(starts))).tolist()  # starts of documents in the stream
    separators = (ends + np.arange(len(ends))).tolist()
    windows = max(0, (int(ends[-1]) + len(ends) - 1) // length) if len(ends) else 0
    spans, row_ends = array("q"), array("q")
    document = 0
    for position in range(0, windows * length, length):
        end = position + length + 1
        while position < end:
            document += position > separators[document]
            if position == separators[document]:
                span = SEPARATOR, 1
            else:
                begin = int(starts[document]) + position - stream_starts[document]
                span = begin, min(end, separators[document]) - position
            spans.extend(span)
            position += span[1]
        row_ends.append(len(spans) // 2)
    ends_W = np.frombuffer(row_ends, dtype=np.int64)
    return PackedShard(np.frombuffer(spans, dtype=np.int64).reshape(-1, 2), np.stack([ends_W, ends_W], axis=1))


def check_stream(data: TokenData, *, length: int, batch_size: int) -> None:
    """Check before packing that data can be read as a stream.

    Raises:
        ConfigError: they are a mixture, or have fewer windows to train on than a batch has rows.
        DataError: the held-out part is shorter than a window.
    """
    if data.mixture:
        raise ConfigError(
            f"packing.builder: {data.folder} is a mixture, whose parts are sampled by weight and not read from "
            "beginning to end; choose another builder, or merge the parts without weights"
        )
    StreamOrder(_max_windows(data.train, length), batch_size)
    if not _max_windows(data.heldout, length):
        raise DataError(
            f"{data.folder}: the held-out part, {data.heldout.tokens:,} tokens, is shorter than a window "
            f"of {length} tokens and the token after it; prepare it with a larger --heldout, or set a smaller "
            "packing.sequence_length"
        )


def _max_windows(split: Split, length: int) -> int:
    """Return the number of windows of a split if no document is empty."""
    return sum(max(0, len(s.tokens) + len(s.document_ends) - 1) // length for s in split.shards)


@dataclass(frozen=True)
class StreamOrder:
    """The order in which the windows of a stream are read by the rows of a batch.

    Attributes:
        windows: number of windows of the stream.
        batch_size: rows of a batch, over all processes together.

    Raises:
        ConfigError: there are fewer windows than rows.
    """

    windows: int
    batch_size: int

    def __post_init__(self) -> None:
        if self.windows < self.batch_size:
            raise ConfigError(
                f"the text has {self.windows:,} windows, fewer than the {self.batch_size:,} rows of a batch, each "
                "of which reads a part of it; use more text, a smaller train.batch_size or shorter windows"
            )

    @property
    def steps(self) -> int:
        """Steps in which all rows reach the end of their parts; up to `batch_size - 1` windows are never read."""
        return self.windows // self.batch_size

    def epochs(self, visits: int) -> float:
        """Return how often each window is read in this number of visits."""
        return visits / (self.steps * self.batch_size)

    def locate(self, visits: Rows, *, seed: int) -> tuple[Rows, Rows]:
        """Return the epoch and the window of each visit, (visits,) each; they do not depend on the seed."""
        steps, rows = np.divmod(visits, self.batch_size)
        epochs, within = np.divmod(steps, self.steps)
        return epochs, rows * self.steps + within

    def restarts(self, step: int) -> bool:
        """Whether all rows start again at the beginning of their parts in this step."""
        return step % self.steps == 0
