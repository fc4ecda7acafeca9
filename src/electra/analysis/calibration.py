"""Are probabilities right, and what makes them so?

Of all items to which p is given, p should be positive. What is measured, all of it by sums over groups
of items (documents, sentences), of which a bootstrap draws:

- expected calibration error: sum over bins of n/N |mean p - share of positive ones|, in bins of equal width; the
  adaptive one in bins of as many items each (Naeini et al. 2015; Nguyen and O'Connor 2015);
- Brier score, mean (p - y)², and its parts in the bins of as many items each (Murphy 1973): reliability, sum of
  n/N (mean p - share)², less resolution, sum of n/N (share - share of all)², plus uncertainty, share (1 - share).
  They add up to the score only where all p of a bin are equal; what is left is the residual;
- negative log-likelihood, in nats.

Shapes: N items, G groups, R resamples, K bins, Q columns of sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from electra.analysis.ranking import Flags, Floats
from electra.serving.calibration import Calibration, CalibrationKind, shift_prior

Numbers = NDArray[np.int64]

CORRECTIONS: tuple[CalibrationKind, ...] = ("none", "temperature", "platt", "isotonic")
STEEPEST = 1e3
"""The largest slope that is fitted: of what is told apart without a mistake it would have no end."""
FOLDS = 5
FIGURES = (
    "mean_probability", "expected_calibration_error", "adaptive_calibration_error", "brier",
    "reliability", "resolution", "uncertainty",
    "residual", "negative_log_likelihood",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Items: their log-odds, whether they are positive, and the group of each."""

    log_odds_N: Floats
    positive_N: Flags
    group_N: Numbers

    @property
    def prior(self) -> float:
        """The share of the positive ones."""
        return float(self.positive_N.mean())

    def of(self, groups: Sequence[int]) -> "Outcomes":
        """The items of some groups."""
        inside_N = np.isin(self.group_N, groups)
        return Outcomes(self.log_odds_N[inside_N], self.positive_N[inside_N], self.group_N[inside_N])


def fitted(kind: CalibrationKind, items: Outcomes) -> Calibration:
    """The correction of a kind with the least negative log-likelihood (isotonic: least squares) of items."""
    if kind == "none":
        return Calibration(kind, items.prior)
    if kind == "isotonic":
        return _isotonic(items)
    slope, intercept = _line(items, intercept=kind == "platt")
    return Calibration(kind, items.prior, slope, intercept)


def _line(items: Outcomes, *, intercept: bool) -> tuple[float, float]:
    """Slope and intercept, by a quasi-Newton method within bounds (L-BFGS-B)."""
    from scipy.optimize import minimize

    x_N, y_N = items.log_odds_N, items.positive_N

    def loss(line: Floats) -> tuple[float, Floats]:
        z_N = line[0] * x_N + line[1]
        wrong_N = _sigmoid(z_N) - y_N
        value = float((np.logaddexp(0, z_N) - y_N * z_N).mean())
        return value, np.array([(wrong_N * x_N).mean(), wrong_N.mean()])

    free = (-np.inf, np.inf) if intercept else (0.0, 0.0)
    found = minimize(
        loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(-STEEPEST, STEEPEST), free],
        options={"ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return float(found.x[0]), float(found.x[1])


def _isotonic(items: Outcomes) -> Calibration:
    """Kept as far from 0 and 1 as one more item of either kind would: nothing that was seen makes sure."""
    from sklearn.isotonic import IsotonicRegression

    least = 1 / (len(items.positive_N) + 2)
    found = IsotonicRegression(y_min=least, y_max=1 - least).fit(items.log_odds_N, items.positive_N.astype(float))
    knots, heights = found.X_thresholds_.tolist(), found.y_thresholds_.tolist()
    return Calibration("isotonic", items.prior, knots=tuple(knots), heights=tuple(heights))


def cross_validated(kind: CalibrationKind, items: Outcomes, *, seed: int) -> float:
    """The negative log-likelihood of items, each fold of the groups judged by what was fitted on the others."""
    groups = np.random.default_rng(seed).permutation(np.unique(items.group_N))
    total = 0.0
    for number in range(FOLDS):
        judged = groups[number::FOLDS]
        rest = items.of(np.setdiff1d(groups, judged).tolist())
        there = items.of(judged.tolist())
        total += float(_losses(fitted(kind, rest)(there.log_odds_N), there.positive_N).sum())
    return total / len(items.positive_N)


def estimated_prior(log_odds_N: Floats, prior: float) -> float:
    """The share of positive ones in unlabelled items, by the EM of Saerens et al. (2002, equations 2.9 and 2.10).

    Args:
        log_odds_N: calibrated for text with the share `prior`.
    """
    found = prior
    for _ in range(1000):
        before, found = found, float(_sigmoid(shift_prior(log_odds_N, prior, found)).mean())
        found = min(max(found, 1e-6), 1 - 1e-6)
        if abs(found - before) < 1e-9:
            break
    return found


class Bins:
    """Bins of p from 0 to 1: of equal width, or such that as many of given log-odds lie in each."""

    def __init__(self, count: int, log_odds_N: Floats | None = None) -> None:
        if log_odds_N is None:
            edges = np.linspace(0, 1, count + 1)[1:-1]
            self.edges = np.log(edges) - np.log1p(-edges)
        else:
            self.edges = np.unique(np.quantile(log_odds_N, np.linspace(0, 1, count + 1)[1:-1]))

    def __len__(self) -> int:
        return len(self.edges) + 1

    def of(self, log_odds_N: Floats) -> Numbers:
        """The number of each one's bin (N,)."""
        return np.searchsorted(self.edges, log_odds_N, side="left")


@dataclass(frozen=True, eq=False)
class Sums:
    """All that the figures are made of, as sums over each group's items.

    Attributes:
        wide_GKQ, equal_GKQ: items, sum of p and positive ones in each bin: of equal width, and with as many
            items each.
        losses_GQ: squared errors and negative log-likelihoods.
    """

    wide_GKQ: Floats
    equal_GKQ: Floats
    losses_GQ: Floats

    @classmethod
    def of(cls, items: Outcomes, *, bins: int) -> "Sums":
        _, group_N = np.unique(items.group_N, return_inverse=True)
        p_N = _sigmoid(items.log_odds_N)
        losses_N2 = np.stack([(p_N - items.positive_N) ** 2, _losses(items.log_odds_N, items.positive_N)], 1)
        wide, equal = (_binned(group_N, of, p_N, items) for of in (Bins(bins), Bins(bins, items.log_odds_N)))
        return cls(wide, equal, _summed(group_N, losses_N2))

    def figures(self, counts_RG: Floats | None = None) -> dict[str, Floats]:
        """Each of `FIGURES` (R,), where groups count so often; None: once (1,)."""
        counts_RG = np.ones((1, len(self.losses_GQ))) if counts_RG is None else counts_RG
        wide_RKQ, equal_RKQ = (np.tensordot(counts_RG, each, 1) for each in (self.wide_GKQ, self.equal_GKQ))
        total_R = wide_RKQ[..., 0].sum(1)
        brier_R, likelihood_R = (counts_RG @ self.losses_GQ).T / total_R
        share_R = wide_RKQ[..., 2].sum(1) / total_R
        n_RK, mean_RK, share_RK = _means(equal_RKQ)
        weight_RK = n_RK / total_R[:, None]
        reliability_R = (weight_RK * (mean_RK - share_RK) ** 2).sum(1)
        resolution_R = (weight_RK * (share_RK - share_R[:, None]) ** 2).sum(1)
        uncertainty_R = share_R * (1 - share_R)
        residual_R = brier_R - (reliability_R - resolution_R + uncertainty_R)
        values = (
            wide_RKQ[..., 1].sum(1) / total_R, _error(wide_RKQ, total_R), _error(equal_RKQ, total_R), brier_R,
            reliability_R, resolution_R, uncertainty_R, residual_R, likelihood_R,
        )  # fmt: skip
        return dict(zip(FIGURES, values, strict=True))

    def curves(self) -> dict[str, list[dict[str, float]]]:
        """Of each bin that has items how many, their mean p, and the share of the positive ones."""
        found = {}
        for name, sums_GKQ in (("equal_width", self.wide_GKQ), ("equal_mass", self.equal_GKQ)):
            n_K, p_K, positive_K = sums_GKQ.sum(0).T
            found[name] = [
                {"count": int(n), "probability": float(p / n), "share": float(positive / n)}
                for n, p, positive in zip(n_K, p_K, positive_K, strict=True)
                if n
            ]
        return found


def _binned(group_N: Numbers, bins: Bins, p_N: Floats, items: Outcomes) -> Floats:
    groups = int(group_N.max()) + 1
    cell_N = group_N * len(bins) + bins.of(items.log_odds_N)
    columns = (np.ones(len(p_N)), p_N, items.positive_N.astype(np.float64))
    sums = [np.bincount(cell_N, column, groups * len(bins)).reshape(groups, len(bins)) for column in columns]
    return np.stack(sums, -1)


def _summed(group_N: Numbers, values_NQ: Floats) -> Floats:
    return np.stack([np.bincount(group_N, column) for column in values_NQ.T], 1)


def _means(sums_RKQ: Floats) -> tuple[Floats, Floats, Floats]:
    """Items, mean p and share of the positive ones of each bin; 0 in empty ones."""
    n_RK = sums_RKQ[..., 0]
    at_least_one = np.maximum(n_RK, 1)
    return n_RK, sums_RKQ[..., 1] / at_least_one, sums_RKQ[..., 2] / at_least_one


def _error(sums_RKQ: Floats, total_R: Floats) -> Floats:
    found: Floats = np.abs(sums_RKQ[..., 1] - sums_RKQ[..., 2]).sum(1) / total_R
    return found


def _losses(log_odds_N: Floats, positive_N: Flags) -> Floats:
    """Negative log-likelihood of each outcome (N,)."""
    found: Floats = np.logaddexp(0, np.where(positive_N, -log_odds_N, log_odds_N))
    return found


def _sigmoid(x_N: Floats) -> Floats:
    from scipy.special import expit

    found: Floats = expit(x_N)
    return found
