"""How common tokens are: bands of their ranks.

Shape: V entries of the vocabulary.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANKS = (10, 100, 1_000, 3_000, 10_000)
"""The last rank of each band but those of the rarer ones and of those that are never seen."""


@dataclass(frozen=True, eq=False)
class FrequencyBands:
    """The band of each token, the commonest first.

    Attributes:
        names: of the bands; "top 100" are those behind the top 10.
        band_V: the number of each token's band.
        rank_V: how many tokens are commoner; of those as common, the one with the smaller id comes first.
    """

    names: tuple[str, ...]
    band_V: NDArray[np.int64]
    rank_V: NDArray[np.int64]

    @classmethod
    def of(cls, counts_V: NDArray[np.int64]) -> "FrequencyBands":
        """Those of tokens that stand so often in some text."""
        rank_V = np.empty(len(counts_V), np.int64)
        rank_V[np.argsort(-counts_V, kind="stable")] = np.arange(len(counts_V))
        band_V = np.searchsorted(RANKS, rank_V, side="right")
        band_V[counts_V == 0] = len(RANKS) + 1
        names = [f"top {last:,}" for last in RANKS]
        return cls((*names, "rarer", "never seen"), band_V, rank_V)


def padded(values_V: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The values with zeros for rows that a network has beyond the vocabulary."""
    return np.concatenate([values_V, np.zeros(max(0, size - len(values_V)), np.int64)])
