"""Intervals of figures that are means over words, by drawing sentences anew.

The words of one sentence are no independent cases, so whole sentences are drawn (a cluster bootstrap).

Shapes: R resamples, S sentences; `...` any leading dimensions, such as layers.
"""

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]


def draws(sentences: int, *, resamples: int, seed: int) -> NDArray[np.float64]:
    """How often each sentence is in each resample (R, S)."""
    random = np.random.default_rng(seed)
    return random.multinomial(sentences, np.full(sentences, 1 / sentences), size=resamples).astype(np.float64)


def resampled(
    sums: NDArray[np.float64], counts_S: NDArray[np.float64], draws_RS: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean (..., R) in each resample.

    Args:
        sums: over the cases of each sentence (..., S).
        counts_S: the cases.
    """
    found: NDArray[np.float64] = (sums @ draws_RS.T) / np.maximum(draws_RS @ counts_S, 1)
    return found


def interval(values_R: NDArray[np.float64]) -> Interval:
    """In which 95 % of the values lie."""
    low, high = np.percentile(values_R, [2.5, 97.5])
    return float(low), float(high)
