"""Figures of groups of tokens (ratios, ratios at equal difficulty, areas), each with its interval over sentences.

The draws and the intervals are those of `resampling`: whole sentences, with all that was measured on them.

Shapes: R resamples, S sentences, G groups, N tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import drawn, interval

Numbers = NDArray[Any]
LEAST, COVERED = 20, 0.5
"""Tokens that a group must have in a bin, and the share of everything that must lie in such bins."""
AT_ONCE = 4_000_000
"""Weights of single tokens that are held at a time."""


@dataclass(frozen=True)
class Estimate:
    """A figure, and where it lies in 95 % of the resamples."""

    value: float
    low: float
    high: float


def sums(sentence_N: Numbers, group_N: Numbers, values_N: Numbers, *, sentences: int, groups: int) -> Numbers:
    """The sum of each sentence's values of each group (S, G)."""
    cells = sentence_N * groups + group_N
    return np.bincount(cells, weights=values_N, minlength=sentences * groups).reshape(sentences, groups)


class Resamples:
    """How often each sentence is in each resample.

    Args:
        sentences: how many there are.
        count: of resamples.
    """

    def __init__(self, sentences: int, *, count: int, seed: int = 0) -> None:
        self.weights_RS = drawn(sentences, resamples=count, seed=seed)

    def ratios(self, numerators_SG: Numbers, denominators_SG: Numbers) -> list[Estimate | None]:
        """Of each group the ratio of two sums over all sentences; None where there is nothing to divide by."""
        return self.estimates(
            _ratio(numerators_SG.sum(0), denominators_SG.sum(0)),
            _ratio(self.weights_RS @ numerators_SG, self.weights_RS @ denominators_SG),
        )

    def standardized(
        self, numerators_SGB: Numbers, denominators_SGB: Numbers
    ) -> tuple[list[Estimate | None], list[float]]:
        """Of each group the mean of its ratios in B bins, weighted by how much of everything lies in each bin.

        So groups are compared as if all had the bins' shares of the whole (direct standardisation). Bins in which
        a group has less than `LEAST` are left out of its mean, since a few tokens would decide it.

        Returns:
            The means, None where less than `COVERED` of everything lies in a group's bins; and how much does.
        """
        share_B = denominators_SGB.sum((0, 1)) / max(1, denominators_SGB.sum())
        enough_GB = denominators_SGB.sum(0) >= LEAST
        covered_G = (share_B * enough_GB).sum(1)

        def mean(tops_xGB: Numbers, bottoms_xGB: Numbers) -> Numbers:
            weights_xGB = share_B * (enough_GB & (bottoms_xGB > 0))
            found: Numbers = _ratio(
                (weights_xGB * np.nan_to_num(_ratio(tops_xGB, bottoms_xGB))).sum(-1), weights_xGB.sum(-1)
            )
            return np.where(covered_G >= COVERED, found, np.nan)

        drawn_RGB = [np.tensordot(self.weights_RS, each, 1) for each in (numerators_SGB, denominators_SGB)]
        found = self.estimates(mean(numerators_SGB.sum(0), denominators_SGB.sum(0)), mean(*drawn_RGB))
        return found, covered_G.tolist()

    def area(self, sentence_N: Numbers, scores_N: Numbers, positive_N: Numbers) -> Estimate | None:
        """The area under the ROC curve: how often a positive token has the higher score, equal ones by half.

        None where there are not both kinds.
        """
        if positive_N.all() or not positive_N.any():
            return None
        order = np.argsort(scores_N)
        starts = np.flatnonzero(np.diff(scores_N[order], prepend=-np.inf))
        positive = positive_N[order].astype(np.float64)
        (value,) = _areas(np.ones((1, len(order))), positive, starts)
        parts = [_areas(weights_rN, positive, starts) for weights_rN in self._of_tokens(sentence_N[order])]
        return self.estimates(np.array([value]), np.concatenate(parts)[:, None])[0]

    def _of_tokens(self, sentence_N: Numbers) -> Iterator[Numbers]:
        """Of some resamples at a time, how often each token is in them."""
        rows = max(1, AT_ONCE // len(sentence_N))
        for first in range(0, len(self.weights_RS), rows):
            yield self.weights_RS[first : first + rows][:, sentence_N]

    def estimates(self, values_G: Numbers, drawn_RG: Numbers) -> list[Estimate | None]:
        """Each value with its interval; resamples without one (NaN) are left out."""
        found: list[Estimate | None] = []
        for value, drawn_R in zip(values_G.tolist(), drawn_RG.T, strict=True):
            low, high = interval(drawn_R)
            found.append(Estimate(value, low, high) if np.isfinite([value, low]).all() else None)
        return found


def _ratio(tops: Numbers, bottoms: Numbers) -> Numbers:
    """NaN where there is nothing to divide by."""
    return np.divide(tops, bottoms, out=np.full(np.shape(tops), np.nan), where=bottoms > 0)


def _areas(weights_rN: Numbers, positive_N: Numbers, starts: Sequence[int] | Numbers) -> Numbers:
    """The area of each row of weights; tokens rise in their scores, and `starts` are where a new score begins."""
    positive_ru = np.add.reduceat(weights_rN * positive_N, starts, axis=1)
    negative_ru = np.add.reduceat(weights_rN * (1 - positive_N), starts, axis=1)
    below_ru = negative_ru.cumsum(1) - negative_ru / 2
    return _ratio((positive_ru * below_ru).sum(1), positive_ru.sum(1) * negative_ru.sum(1))
