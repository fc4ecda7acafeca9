"""Text that goes on from batch to batch: whole documents one behind the other, for networks with a memory.

A row of a batch is a window of the stream, and the same row of the next batch is the window behind it (Dai et al.
2019, "Transformer-XL", section 3.2). Nothing is shuffled: row b of B reads the b-th of B equal stretches of the
stream from its beginning to its end, and then, in the next epoch, again.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from electra.data.sampling import Rows
from electra.data.shards import Split, TokenData
from electra.data.spans import Examples, Offsets
from electra.errors import ConfigError, DataError

SEPARATOR = 2**32 - 1
"""The start of a piece that is no text, but the [SEP] behind a document."""


def pack_stream(sentence_ends: Offsets, document_ends: Offsets, *, length: int) -> Examples:
    """Windows of `length` tokens, one behind the other, each with the token that follows it.

    A [SEP] stands behind each document. What is left at the end of the shard, fewer tokens than a window and the
    one behind it, is dropped.

    Args:
        sentence_ends: (sentences,) end offset of each sentence in tokens, ascending.
        document_ends: (documents,) end index of each document in sentences, ascending.

    Returns:
        Pieces of text and of `SEPARATOR`s, `length + 1` tokens a window.
    """
    ends = np.concatenate([[0], sentence_ends])[document_ends]  # of documents, in tokens
    starts = np.concatenate([[0], ends[:-1]])
    starts, ends = starts[starts < ends], ends[starts < ends]
    places = (starts + np.arange(len(starts))).tolist()  # of documents in the stream
    separators = (ends + np.arange(len(ends))).tolist()
    windows = max(0, (int(ends[-1]) + len(ends) - 1) // length) if len(ends) else 0
    pieces, past_last = array("q"), array("q")
    document = 0
    for position in range(0, windows * length, length):
        past = position + length + 1
        while position < past:
            document += position > separators[document]
            if position == separators[document]:
                piece = SEPARATOR, 1
            else:
                begin = int(starts[document]) + position - places[document]
                piece = begin, min(past, separators[document]) - position
            pieces.extend(piece)
            position += piece[1]
        past_last.append(len(pieces) // 2)
    ends_W = np.frombuffer(past_last, dtype=np.int64)
    return Examples(np.frombuffer(pieces, dtype=np.int64).reshape(-1, 2), np.stack([ends_W, ends_W], axis=1))


def check_stream(data: TokenData, *, length: int, batch_size: int) -> None:
    """Refuse data that cannot be read as a stream, before any of them is packed.

    Raises:
        ConfigError: they are a mixture, or have fewer windows to train on than a batch has rows.
        DataError: what is held out is shorter than a window.
    """
    if data.mixture:
        raise ConfigError(
            f"packing.builder: the parts of {data.folder} are drawn by weight, not read from beginning to end; "
            "choose another builder, or merge them without weights"
        )
    StreamOrder(_windows_at_most(data.train, length), batch_size)
    if not _windows_at_most(data.heldout, length):
        raise DataError(
            f"{data.folder}: what is held out, {data.heldout.tokens:,} tokens, is shorter than a window "
            f"of {length} and the token behind it; prepare it with a larger --heldout, or take a smaller "
            "packing.sequence_length"
        )


def _windows_at_most(split: Split, length: int) -> int:
    """Windows of a split's shards, as many as there are where no document is empty."""
    return sum(max(0, len(s.tokens) + len(s.document_ends) - 1) // length for s in split.shards)


@dataclass(frozen=True)
class StreamOrder:
    """The order in which the windows of a stream are read by the rows of a batch.

    Attributes:
        windows: of the stream.
        batch_size: rows of the batch over all processes together.

    Raises:
        ConfigError: there are fewer windows than rows.
    """

    windows: int
    batch_size: int

    def __post_init__(self) -> None:
        if self.windows < self.batch_size:
            raise ConfigError(
                f"the text has {self.windows:,} windows, fewer than the {self.batch_size:,} rows of a batch, each "
                "of which reads a stretch of it; take more text, a smaller train.batch_size or shorter windows"
            )

    @property
    def steps(self) -> int:
        """In which all rows come to the end of their stretches; up to `batch_size - 1` windows are never read."""
        return self.windows // self.batch_size

    def epochs(self, visits: int) -> float:
        """How often each window is read in so many visits."""
        return visits / (self.steps * self.batch_size)

    def locate(self, visits: Rows, *, seed: int) -> tuple[Rows, Rows]:
        """Return the epoch and the window of each visit, (visits,) each; they do not depend on the seed."""
        steps, rows = np.divmod(visits, self.batch_size)
        epochs, within = np.divmod(steps, self.steps)
        return epochs, rows * self.steps + within

    def fresh(self, step: int) -> bool:
        """Whether all rows begin anew with this step."""
        return step % self.steps == 0
