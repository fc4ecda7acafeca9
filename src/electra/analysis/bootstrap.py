"""How sure a figure is: what would have been measured on other examples of the same kind (Efron 1979, bootstrap).

Each resample draws as many examples as there are, with replacement, and is kept as how often it drew each: a sum
over the drawn examples is then a product of matrices, and several figures are taken of the same draws (paired).
Where cases hang together, as the words of a sentence do, the examples are what holds them: whole sentences (a
cluster bootstrap). Intervals are the middle 95 % of what comes out (the percentile interval).

Shapes: R resamples, N examples; `...` any leading dimensions, such as layers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]

TAILS = (0.025, 0.975)
"""The quantiles of the resamples between which an interval lies."""


def drawn(examples: int, *, resamples: int, seed: int | np.random.Generator) -> Floats:
    """How often each resample draws each example (R, N); every row sums to N.

    Args:
        seed: a number, or a generator that several drawings go on with.
    """
    shares_N = np.full(examples, 1 / examples)
    return np.random.default_rng(seed).multinomial(examples, shares_N, size=resamples).astype(np.float64)


def means(sums: Floats, counts_N: Floats, drawn_RN: Floats) -> Floats:
    """The mean over cases in each resample (..., R); 0 in one that drew no case.

    Args:
        sums: over the cases of each example (..., N).
        counts_N: how many cases it has.
    """
    found: Floats = (sums @ drawn_RN.T) / np.maximum(drawn_RN @ counts_N, 1)
    return found


def interval(values_R: Floats) -> Interval:
    """From where to where the middle 95 % of a figure's resamples lie.

    Those in which it is not defined (not finite) are left out; nan where that is so in all.
    """
    there = values_R[np.isfinite(values_R)]
    if not len(there):
        return float("nan"), float("nan")
    low, high = np.quantile(there, TAILS).tolist()
    return low, high


def with_interval(value: float, values_R: Floats) -> dict[str, Any] | None:
    """A figure with its interval, for JSON; None where either means nothing."""
    around = interval(values_R)
    if not np.isfinite([value, *around]).all():
        return None
    return {"value": float(value), "interval": list(around)}
