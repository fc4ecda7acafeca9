"""Metrics of groups of tokens (ratios, ratios at equal difficulty, ROC areas) with intervals over sentences.

Resamples draw whole sentences, with everything that was measured on them (`electra.analysis.bootstrap`).

Shapes: R resamples, S sentences, G groups, N tokens, B bins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import percentile_interval, resample_counts

Numbers = NDArray[Any]
MIN_BIN_TOKENS = 20
"""The tokens that a group needs in a bin for the bin to count."""
MIN_COVERAGE = 0.5
"""The fraction of all tokens that must lie in bins that count."""
WEIGHTS_AT_ONCE = 4_000_000
"""Weights of single tokens in memory at a time."""


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float


def sum_by_group(
    sentence_N: Numbers, group_N: Numbers, values_N: Numbers, *, sentences: int, groups: int
) -> Numbers:
    """Sum the values of each group in each sentence (S, G)."""
    cells = sentence_N * groups + group_N
    return np.bincount(cells, weights=values_N, minlength=sentences * groups).reshape(sentences, groups)


class GroupBootstrap:
    """Resamples of sentences, on which metrics of groups are computed.

    Args:
        sentences: the number of sentences.
        count: the number of resamples.
    """

    def __init__(self, sentences: int, *, count: int, seed: int = 0) -> None:
        self.weights_RS = resample_counts(sentences, resamples=count, seed=seed)

    def ratios(self, numerators_SG: Numbers, denominators_SG: Numbers) -> list[Estimate | None]:
        """The ratio of two sums over all sentences for each group; None if the denominator is 0."""
        return self.estimates(
            _ratio(numerators_SG.sum(0), denominators_SG.sum(0)),
            _ratio(self.weights_RS @ numerators_SG, self.weights_RS @ denominators_SG),
        )

    def standardized_ratios(
        self, numerators_SGB: Numbers, denominators_SGB: Numbers
    ) -> tuple[list[Estimate | None], list[float]]:
        """The mean over B bins of each group's ratios, weighted by the fraction of all tokens in each bin.

        This compares groups as if all of them had the same distribution over the bins (direct standardization).
        Bins in which a group has fewer than `MIN_BIN_TOKENS` tokens are left out of its mean.

        Returns:
            The means, None where a group's bins hold less than `MIN_COVERAGE` of all tokens; and that coverage.
        """
        fraction_B = denominators_SGB.sum((0, 1)) / max(1, denominators_SGB.sum())
        enough_GB = denominators_SGB.sum(0) >= MIN_BIN_TOKENS
        coverage_G = (fraction_B * enough_GB).sum(1)

        def weighted_mean(numerators_xGB: Numbers, denominators_xGB: Numbers) -> Numbers:
            weights_xGB = fraction_B * (enough_GB & (denominators_xGB > 0))
            ratios_xGB = np.nan_to_num(_ratio(numerators_xGB, denominators_xGB))
            means: Numbers = _ratio((weights_xGB * ratios_xGB).sum(-1), weights_xGB.sum(-1))
            return np.where(coverage_G >= MIN_COVERAGE, means, np.nan)

        resampled = [np.tensordot(self.weights_RS, sums, 1) for sums in (numerators_SGB, denominators_SGB)]
        estimates = self.estimates(
            weighted_mean(numerators_SGB.sum(0), denominators_SGB.sum(0)), weighted_mean(*resampled)
        )
        return estimates, coverage_G.tolist()

    def roc_auc(self, sentence_N: Numbers, scores_N: Numbers, positive_N: Numbers) -> Estimate | None:
        """The area under the ROC curve; None if there is only one class."""
        if positive_N.all() or not positive_N.any():
            return None
        order = np.argsort(scores_N)
        starts = np.flatnonzero(np.diff(scores_N[order], prepend=-np.inf))
        positive = positive_N[order].astype(np.float64)
        (value,) = _roc_areas(np.ones((1, len(order))), positive, starts)
        parts = [_roc_areas(weights_rN, positive, starts) for weights_rN in self._token_weights(sentence_N[order])]
        return self.estimates(np.array([value]), np.concatenate(parts)[:, None])[0]

    def _token_weights(self, sentence_N: Numbers) -> Iterator[Numbers]:
        """How often each token is in each resample, some resamples at a time."""
        rows = max(1, WEIGHTS_AT_ONCE // len(sentence_N))
        for first in range(0, len(self.weights_RS), rows):
            yield self.weights_RS[first : first + rows][:, sentence_N]

    def estimates(self, values_G: Numbers, resampled_RG: Numbers) -> list[Estimate | None]:
        """Each value with its interval; resamples in which it is undefined (NaN) are ignored."""
        estimates: list[Estimate | None] = []
        for value, resampled_R in zip(values_G.tolist(), resampled_RG.T, strict=True):
            low, high = percentile_interval(resampled_R)
            estimates.append(Estimate(value, low, high) if np.isfinite([value, low]).all() else None)
        return estimates


def _ratio(numerators: Numbers, denominators: Numbers) -> Numbers:
    """NaN where the denominator is 0."""
    undefined = np.full(np.shape(numerators), np.nan)
    return np.divide(numerators, denominators, out=undefined, where=denominators > 0)


def _roc_areas(weights_rN: Numbers, positive_N: Numbers, starts: Sequence[int] | Numbers) -> Numbers:
    """The area for each row of weights; tokens are sorted by score, and `starts` are the first of each score."""
    positive_ru = np.add.reduceat(weights_rN * positive_N, starts, axis=1)
    negative_ru = np.add.reduceat(weights_rN * (1 - positive_N), starts, axis=1)
    below_ru = negative_ru.cumsum(1) - negative_ru / 2  # ties count half
    return _ratio((positive_ru * below_ru).sum(1), positive_ru.sum(1) * negative_ru.sum(1))
