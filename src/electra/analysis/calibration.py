"""Calibration of probabilities: corrections, and metrics of how well calibrated probabilities are.

Among all items with the predicted probability p, the fraction p should be positive. All metrics are computed from
sums over groups of items (documents, sentences), which a bootstrap resamples:

- expected calibration error (ECE): the sum over bins of n/N |mean p - fraction of positives|, in bins of equal
  width; the adaptive ECE uses bins with equally many items (Naeini et al. 2015; Nguyen and O'Connor 2015);
- Brier score, mean (p - y)², and its decomposition in the bins with equally many items (Murphy 1973): reliability,
  the sum of n/N (mean p - fraction)², minus resolution, the sum of n/N (fraction - overall fraction)², plus
  uncertainty, fraction (1 - fraction). The parts add up to the score only if all p of a bin are equal; the rest
  is the residual;
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
MAX_SLOPE = 1e3
"""The largest slope that is fitted; for perfectly separated items the best slope would be infinite."""
FOLDS = 5
METRICS = (
    "mean_probability", "expected_calibration_error", "adaptive_calibration_error", "brier",
    "reliability", "resolution", "uncertainty",
    "residual", "negative_log_likelihood",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LabeledScores:
    """The log-odds of items, their labels, and the group of each."""

    log_odds_N: Floats
    positive_N: Flags
    group_N: Numbers

    @property
    def prior(self) -> float:
        """The fraction of positive items."""
        return float(self.positive_N.mean())

    def of_groups(self, groups: Sequence[int]) -> "LabeledScores":
        """The items of some groups."""
        inside_N = np.isin(self.group_N, groups)
        return LabeledScores(self.log_odds_N[inside_N], self.positive_N[inside_N], self.group_N[inside_N])


def fit_calibration(kind: CalibrationKind, items: LabeledScores) -> Calibration:
    """Fit the correction of a kind with the lowest negative log-likelihood (isotonic: least squares)."""
    if kind == "none":
        return Calibration(kind, items.prior)
    if kind == "isotonic":
        return _fit_isotonic(items)
    slope, intercept = _fit_line(items, intercept=kind == "platt")
    return Calibration(kind, items.prior, slope, intercept)


def _fit_line(items: LabeledScores, *, intercept: bool) -> tuple[float, float]:
    """Slope and intercept, by a quasi-Newton method within bounds (L-BFGS-B)."""
    from scipy.optimize import minimize

    x_N, y_N = items.log_odds_N, items.positive_N

    def loss(line: Floats) -> tuple[float, Floats]:
        z_N = line[0] * x_N + line[1]
        residual_N = _sigmoid(z_N) - y_N
        value = float((np.logaddexp(0, z_N) - y_N * z_N).mean())
        return value, np.array([(residual_N * x_N).mean(), residual_N.mean()])

    bounds = [(-MAX_SLOPE, MAX_SLOPE), (-np.inf, np.inf) if intercept else (0.0, 0.0)]
    solution = minimize(
        loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds,
        options={"ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return float(solution.x[0]), float(solution.x[1])


def _fit_isotonic(items: LabeledScores) -> Calibration:
    """The probabilities stay as far from 0 and 1 as one more item of either class would move them."""
    from sklearn.isotonic import IsotonicRegression

    margin = 1 / (len(items.positive_N) + 2)
    model = IsotonicRegression(y_min=margin, y_max=1 - margin)
    model.fit(items.log_odds_N, items.positive_N.astype(float))
    knots, heights = model.X_thresholds_.tolist(), model.y_thresholds_.tolist()
    return Calibration("isotonic", items.prior, knots=tuple(knots), heights=tuple(heights))


def cross_validate(kind: CalibrationKind, items: LabeledScores, *, seed: int) -> float:
    """The mean negative log-likelihood of items, each fold of groups evaluated with a fit on the other folds."""
    groups = np.random.default_rng(seed).permutation(np.unique(items.group_N))
    total = 0.0
    for fold in range(FOLDS):
        test_groups = groups[fold::FOLDS]
        train = items.of_groups(np.setdiff1d(groups, test_groups).tolist())
        test = items.of_groups(test_groups.tolist())
        total += float(_log_losses(fit_calibration(kind, train)(test.log_odds_N), test.positive_N).sum())
    return total / len(items.positive_N)


def estimate_prior(log_odds_N: Floats, prior: float) -> float:
    """Estimate the fraction of positives among unlabeled items, by EM (Saerens et al. 2002, equations 2.9, 2.10).

    Args:
        log_odds_N: calibrated for text in which the fraction is `prior`.
    """
    estimate = prior
    for _ in range(1000):
        previous, estimate = estimate, float(_sigmoid(shift_prior(log_odds_N, prior, estimate)).mean())
        estimate = min(max(estimate, 1e-6), 1 - 1e-6)
        if abs(estimate - previous) < 1e-9:
            break
    return estimate


class ProbabilityBins:
    """Bins of probabilities: of equal width, or, if log-odds are given, with equally many of them in each."""

    def __init__(self, count: int, log_odds_N: Floats | None = None) -> None:
        if log_odds_N is None:
            edges = np.linspace(0, 1, count + 1)[1:-1]
            self.edges = np.log(edges) - np.log1p(-edges)
        else:
            self.edges = np.unique(np.quantile(log_odds_N, np.linspace(0, 1, count + 1)[1:-1]))

    def __len__(self) -> int:
        return len(self.edges) + 1

    def assign(self, log_odds_N: Floats) -> Numbers:
        """The index of the bin of each item (N,)."""
        return np.searchsorted(self.edges, log_odds_N, side="left")


@dataclass(frozen=True, eq=False)
class GroupSums:
    """The sums over each group's items from which all metrics are computed.

    Attributes:
        equal_width_GKQ, equal_mass_GKQ: the number of items, the sum of p, and the number of positives in each
            bin, for bins of equal width and for bins with equally many items.
        losses_GQ: squared errors and negative log-likelihoods.
    """

    equal_width_GKQ: Floats
    equal_mass_GKQ: Floats
    losses_GQ: Floats

    @classmethod
    def from_items(cls, items: LabeledScores, *, bins: int) -> "GroupSums":
        _, group_N = np.unique(items.group_N, return_inverse=True)
        p_N = _sigmoid(items.log_odds_N)
        losses_N2 = np.stack([(p_N - items.positive_N) ** 2, _log_losses(items.log_odds_N, items.positive_N)], 1)
        equal_width, equal_mass = ProbabilityBins(bins), ProbabilityBins(bins, items.log_odds_N)
        return cls(
            _sum_by_bin(group_N, equal_width, p_N, items),
            _sum_by_bin(group_N, equal_mass, p_N, items),
            np.stack([np.bincount(group_N, losses_N) for losses_N in losses_N2.T], 1),
        )

    def metrics(self, counts_RG: Floats | None = None) -> dict[str, Floats]:
        """Compute each of `METRICS` (R,), with each group counted as often as given; None: once each (1,)."""
        counts_RG = np.ones((1, len(self.losses_GQ))) if counts_RG is None else counts_RG
        equal_width_RKQ = np.tensordot(counts_RG, self.equal_width_GKQ, 1)
        equal_mass_RKQ = np.tensordot(counts_RG, self.equal_mass_GKQ, 1)
        total_R = equal_width_RKQ[..., 0].sum(1)
        brier_R, log_loss_R = (counts_RG @ self.losses_GQ).T / total_R
        fraction_R = equal_width_RKQ[..., 2].sum(1) / total_R
        n_RK, mean_RK, fraction_RK = _bin_means(equal_mass_RKQ)
        weight_RK = n_RK / total_R[:, None]
        reliability_R = (weight_RK * (mean_RK - fraction_RK) ** 2).sum(1)
        resolution_R = (weight_RK * (fraction_RK - fraction_R[:, None]) ** 2).sum(1)
        uncertainty_R = fraction_R * (1 - fraction_R)
        residual_R = brier_R - (reliability_R - resolution_R + uncertainty_R)
        values = (
            equal_width_RKQ[..., 1].sum(1) / total_R, _calibration_error(equal_width_RKQ, total_R),
            _calibration_error(equal_mass_RKQ, total_R), brier_R,
            reliability_R, resolution_R, uncertainty_R, residual_R, log_loss_R,
        )  # fmt: skip
        return dict(zip(METRICS, values, strict=True))

    def curves(self) -> dict[str, list[dict[str, float]]]:
        """The number of items, mean p and fraction of positives ("share") of each bin that is not empty."""
        curves = {}
        for name, sums_GKQ in (("equal_width", self.equal_width_GKQ), ("equal_mass", self.equal_mass_GKQ)):
            n_K, p_K, positive_K = sums_GKQ.sum(0).T
            curves[name] = [
                {"count": int(n), "probability": float(p / n), "share": float(positive / n)}
                for n, p, positive in zip(n_K, p_K, positive_K, strict=True)
                if n
            ]
        return curves


def _sum_by_bin(group_N: Numbers, bins: ProbabilityBins, p_N: Floats, items: LabeledScores) -> Floats:
    groups = int(group_N.max()) + 1
    cell_N = group_N * len(bins) + bins.assign(items.log_odds_N)
    columns = (np.ones(len(p_N)), p_N, items.positive_N.astype(np.float64))
    sums = [np.bincount(cell_N, column, groups * len(bins)).reshape(groups, len(bins)) for column in columns]
    return np.stack(sums, -1)


def _bin_means(sums_RKQ: Floats) -> tuple[Floats, Floats, Floats]:
    """The number of items, mean p and fraction of positives of each bin; 0 in empty bins."""
    n_RK = sums_RKQ[..., 0]
    at_least_one = np.maximum(n_RK, 1)
    return n_RK, sums_RKQ[..., 1] / at_least_one, sums_RKQ[..., 2] / at_least_one


def _calibration_error(sums_RKQ: Floats, total_R: Floats) -> Floats:
    error_R: Floats = np.abs(sums_RKQ[..., 1] - sums_RKQ[..., 2]).sum(1) / total_R
    return error_R


def _log_losses(log_odds_N: Floats, positive_N: Flags) -> Floats:
    """The negative log-likelihood of each label (N,)."""
    losses_N: Floats = np.logaddexp(0, np.where(positive_N, -log_odds_N, log_odds_N))
    return losses_N


def _sigmoid(x_N: Floats) -> Floats:
    from scipy.special import expit

    p_N: Floats = expit(x_N)
    return p_N
