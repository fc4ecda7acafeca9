"""Resamples and intervals, compared with scipy's bootstrap."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from electra.analysis.bootstrap import percentile_interval, resample_counts, resampled_means, value_with_interval


def test_resamples_have_as_many_examples() -> None:
    counts = resample_counts(50, resamples=2000, seed=3)
    assert counts.shape == (2000, 50) and (counts.sum(1) == 50).all()
    np.testing.assert_allclose(counts.mean(0), 1, atol=0.12)
    assert 0.8 < counts.var() < 1.2  # with replacement: nearly Poisson distributed
    assert (resample_counts(50, resamples=2000, seed=3) == counts).all()


def test_a_generator_continues_its_stream() -> None:
    both = np.random.default_rng(3)
    first, second = (resample_counts(50, resamples=20, seed=both) for _ in range(2))
    assert (first == resample_counts(50, resamples=20, seed=3)).all() and (first != second).any()


def test_means_and_intervals_equal_those_of_scipy() -> None:
    """For several layers, over sentences of different lengths."""
    random = np.random.default_rng(0)
    counts = random.integers(2, 12, 60).astype(float)
    right = np.stack([random.binomial(counts.astype(int), share) for share in (0.3, 0.8)]).astype(float)
    actual = resampled_means(right, counts, resample_counts(60, resamples=4000, seed=1))
    assert actual.shape == (2, 4000)
    for row, values in zip(right, actual, strict=True):
        theirs = bootstrap(
            (row, counts), lambda top, bottom, axis: top.sum(axis) / bottom.sum(axis),
            paired=True, vectorized=True, n_resamples=4000, method="percentile", rng=2,
        ).confidence_interval  # fmt: skip
        assert percentile_interval(values) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_intervals_account_for_dependence_within_sentences() -> None:
    """The words of a sentence are all correct or all wrong here, so there are as many cases as sentences."""
    right = np.random.default_rng(0).integers(2, size=400) * 10.0
    low, high = percentile_interval(
        resampled_means(right, np.full(400, 10.0), resample_counts(400, resamples=2000, seed=0))
    )
    assert (high - low) / 2 == pytest.approx(1.96 * 0.5 / 400**0.5, rel=0.15)


def test_resamples_without_cases_or_values() -> None:
    nothing = resampled_means(np.zeros(2), np.zeros(2), resample_counts(2, resamples=5, seed=0))
    assert nothing.tolist() == [0.0] * 5
    assert percentile_interval(np.array([np.nan, np.inf, *np.arange(1001)])) == (25.0, 975.0)
    assert np.isnan(percentile_interval(np.full(3, np.nan))).all()


def test_an_undefined_value_has_no_interval() -> None:
    assert value_with_interval(2.0, np.array([np.nan, *np.arange(1001)])) == {
        "value": 2.0,
        "interval": [25.0, 975.0],
    }
    assert value_with_interval(float("nan"), np.ones(3)) is None
    assert value_with_interval(1.0, np.full(3, np.nan)) is None
