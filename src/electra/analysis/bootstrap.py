"""Confidence intervals by the bootstrap (Efron 1979).

A resample draws as many examples as there are, with replacement. It is stored as the number of times that it
contains each example: sums over its examples are then products of matrices, and several metrics can be computed on
the same resamples (paired comparison). If cases depend on each other, as the words of a sentence do, whole groups
such as sentences are the examples (cluster bootstrap). Intervals are 95% percentile intervals.

Shapes: R resamples, N examples; `...` any leading dimensions, such as layers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]

QUANTILES = (0.025, 0.975)
"""The quantiles of the resamples that bound an interval."""
MIN_GROUPS = 10
"""With fewer groups (documents, sentences) a bootstrap says nothing."""


def resample_counts(examples: int, *, resamples: int, seed: int | np.random.Generator) -> Floats:
    """Sample how often each resample contains each example (R, N); every row sums to N.

    Args:
        seed: a number, or a generator whose stream is continued.
    """
    probabilities_N = np.full(examples, 1 / examples)
    counts_RN = np.random.default_rng(seed).multinomial(examples, probabilities_N, size=resamples)
    return counts_RN.astype(np.float64)


def resampled_means(sums: Floats, counts_N: Floats, resample_counts_RN: Floats) -> Floats:
    """Compute the mean over cases in each resample (..., R); 0 in a resample without any case.

    Args:
        sums: the sum over the cases of each example (..., N).
        counts_N: the number of cases of each example.
    """
    means: Floats = (sums @ resample_counts_RN.T) / np.maximum(resample_counts_RN @ counts_N, 1)
    return means


def percentile_interval(values_R: Floats) -> Interval:
    """The interval of the middle 95% of the resampled values.

    Values that are not finite are ignored; the interval is nan if none is finite.
    """
    finite = values_R[np.isfinite(values_R)]
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, QUANTILES).tolist()
    return low, high


def value_with_interval(value: float, values_R: Floats) -> dict[str, Any] | None:
    """A value and its interval, for JSON; None if the value or the interval is undefined."""
    interval = percentile_interval(values_R)
    if not np.isfinite([value, *interval]).all():
        return None
    return {"value": float(value), "interval": list(interval)}
