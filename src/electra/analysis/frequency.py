"""Frequency bands of tokens.

Shape: V entries of the vocabulary.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANKS = (10, 100, 1_000, 3_000, 10_000)
"""The last rank of each band. Two more bands follow: rarer tokens, and tokens that never occur."""


@dataclass(frozen=True, eq=False)
class FrequencyBands:
    """The frequency band of each token, the most frequent band first.

    Attributes:
        names: the names of the bands; "top 100" holds the ranks 11 to 100, without the top 10.
        band_V: the index of each token's band.
        rank_V: the number of more frequent tokens; of equally frequent tokens the smaller id comes first.
    """

    names: tuple[str, ...]
    band_V: NDArray[np.int64]
    rank_V: NDArray[np.int64]

    @classmethod
    def from_counts(cls, counts_V: NDArray[np.int64]) -> "FrequencyBands":
        """The bands of tokens, given how often each occurs in some text."""
        rank_V = np.empty(len(counts_V), np.int64)
        rank_V[np.argsort(-counts_V, kind="stable")] = np.arange(len(counts_V))
        band_V = np.searchsorted(RANKS, rank_V, side="right")
        band_V[counts_V == 0] = len(RANKS) + 1
        names = [f"top {last:,}" for last in RANKS]
        return cls((*names, "rarer", "never seen"), band_V, rank_V)


def pad_counts(counts_V: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Append zeros for the rows of a network's embedding table beyond the vocabulary."""
    return np.concatenate([counts_V, np.zeros(max(0, size - len(counts_V)), np.int64)])
