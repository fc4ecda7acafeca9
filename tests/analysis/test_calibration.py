"""Calibration metrics compared with scikit-learn and with plain loops; corrections; priors."""

import math

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

from electra.analysis.calibration import (
    METRICS,
    GroupSums,
    LabeledScores,
    cross_validate,
    estimate_prior,
    fit_calibration,
)
from electra.serving.calibration import shift_prior

BINS = 7


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def items() -> LabeledScores:
    """Log-odds that are twice as large as they should be, and a little too high; in 20 groups."""
    draws = np.random.default_rng(0)
    right = draws.normal(-1.5, 1.5, 3000)
    return LabeledScores(2 * right + 0.5, draws.random(3000) < sigmoid(right), draws.integers(0, 20, 3000))


def plain(items: LabeledScores, edges: np.ndarray) -> dict[str, float]:
    """The metrics by loops over bins; an item on an edge belongs to the lower bin."""
    p, y = sigmoid(items.log_odds_N), items.positive_N
    error = reliability = resolution = within = 0.0
    for low, high in zip([-1, *edges], [*edges, 2], strict=True):
        inside = (p > low) & (p <= high)
        if not inside.any():
            continue
        n, mean, share = inside.sum() / len(p), p[inside].mean(), y[inside].mean()
        error += n * abs(mean - share)
        reliability += n * (mean - share) ** 2
        resolution += n * (share - y.mean()) ** 2
        # The residual of Murphy's decomposition (Stephenson et al. 2008): variance of p - 2 covariance of p and y.
        within += n * (p[inside].var() - 2 * ((p[inside] - mean) * (y[inside] - share)).mean())
    return {"error": error, "reliability": reliability, "resolution": resolution, "residual": within}


def test_metrics_equal_those_of_scikit_learn_and_of_plain_loops(items: LabeledScores) -> None:
    actual = {name: float(value[0]) for name, value in GroupSums.from_items(items, bins=BINS).metrics().items()}
    p, y = sigmoid(items.log_odds_N), items.positive_N
    wide, equal = plain(items, np.arange(1, BINS) / BINS), plain(items, np.quantile(p, np.arange(1, BINS) / BINS))
    assert tuple(actual) == METRICS
    assert actual["mean_probability"] == pytest.approx(p.mean())
    assert actual["expected_calibration_error"] == pytest.approx(wide["error"], abs=1e-9)
    assert actual["adaptive_calibration_error"] == pytest.approx(equal["error"], abs=2e-3)  # edges of p, not of x
    assert actual["brier"] == pytest.approx(brier_score_loss(y, p))
    assert actual["negative_log_likelihood"] == pytest.approx(log_loss(y, p))
    assert actual["uncertainty"] == pytest.approx(y.mean() * (1 - y.mean()))
    for name in ("reliability", "resolution", "residual"):
        assert actual[name] == pytest.approx(equal[name], abs=1e-4)
    whole = actual["reliability"] - actual["resolution"] + actual["uncertainty"] + actual["residual"]
    assert actual["brier"] == pytest.approx(whole, abs=1e-12)


def test_groups_that_are_resampled_twice_count_twice(items: LabeledScores) -> None:
    counts = np.random.default_rng(1).integers(0, 3, (2, 20)).astype(float)
    actual = GroupSums.from_items(items, bins=BINS).metrics(counts)
    for row, times in enumerate(counts[:, items.group_N].astype(int)):
        again = LabeledScores(
            *(np.repeat(each, times) for each in (items.log_odds_N, items.positive_N, items.group_N))
        )
        drawn = GroupSums.from_items(again, bins=BINS).metrics()  # with other bins of equal mass
        for name in ("expected_calibration_error", "brier", "negative_log_likelihood", "uncertainty"):
            assert actual[name][row] == pytest.approx(drawn[name][0])


def test_curves_describe_the_items_of_each_bin(items: LabeledScores) -> None:
    curves = GroupSums.from_items(items, bins=BINS).curves()
    assert sum(one["count"] for one in curves["equal_width"]) == len(items.log_odds_N)
    assert {one["count"] for one in curves["equal_mass"]} <= {3000 // BINS - 1, 3000 // BINS, 3000 // BINS + 1}
    lowest = items.log_odds_N.argsort()[: 3000 // BINS]
    assert curves["equal_mass"][0]["share"] == pytest.approx(items.positive_N[lowest].mean(), abs=2e-3)
    one = LabeledScores(np.zeros(9), np.arange(9) < 3, np.arange(9))  # all equal: only one bin
    assert GroupSums.from_items(one, bins=5).curves()["equal_mass"] == [
        {"count": 9, "probability": 0.5, "share": 1 / 3}
    ]


def test_lines_equal_those_of_scikit_learn(items: LabeledScores) -> None:
    x, y = items.log_odds_N[:, None], items.positive_N
    for kind, intercept in (("platt", True), ("temperature", False)):
        actual = fit_calibration(kind, items)
        other = LogisticRegression(C=1e10, fit_intercept=intercept, tol=1e-10, max_iter=1000).fit(x, y)
        assert actual.slope == pytest.approx(other.coef_[0, 0], rel=1e-4)
        assert actual.intercept == pytest.approx(other.intercept_[0] if intercept else 0, abs=1e-4)
        assert actual.prior == y.mean()
    assert fit_calibration("platt", items).slope == pytest.approx(0.5, abs=0.05)
    assert fit_calibration("platt", items).intercept == pytest.approx(-0.25, abs=0.15)


def test_isotonic_equals_scikit_learn_but_excludes_0_and_1(items: LabeledScores) -> None:
    actual = fit_calibration("isotonic", items)
    other = IsotonicRegression(out_of_bounds="clip").fit(items.log_odds_N, items.positive_N)
    x = np.linspace(-15, 12, 400)
    least = 1 / (len(items.positive_N) + 2)
    np.testing.assert_allclose(sigmoid(actual(x)), other.predict(x).clip(least, 1 - least), atol=1e-4)
    assert np.isfinite(actual(np.array([-1e9, 1e9]))).all()


def test_the_slope_for_separable_items_is_bounded() -> None:
    items = LabeledScores(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]), np.arange(4))
    assert 1 < fit_calibration("temperature", items).slope <= 1e3
    assert math.isfinite(fit_calibration("platt", items).intercept)


def test_cross_validation_selects_the_needed_correction(items: LabeledScores) -> None:
    actual = {kind: cross_validate(kind, items, seed=0) for kind in ("none", "temperature", "platt")}
    assert actual["platt"] < actual["temperature"] < actual["none"]
    # One number corrects half of the log-odds' error; five folds find it as well as all items.
    assert actual["temperature"] == pytest.approx(
        GroupSums.from_items(_corrected(items, "temperature"), bins=BINS).metrics()["negative_log_likelihood"][0],
        abs=2e-3,
    )


def test_cross_validation_evaluates_on_unseen_groups() -> None:
    """Uninformative scores, the same ten times in each group: a fit on the group would know its labels."""
    draws = np.random.default_rng(4)
    x, y, groups = (np.repeat(one, 10) for one in (draws.normal(size=60), draws.random(60) < 0.5, np.arange(60)))
    items = LabeledScores(x, y, groups)
    share = y.mean()
    knows_nothing = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert cross_validate("isotonic", items, seed=0) > knows_nothing
    seen = GroupSums.from_items(_corrected(items, "isotonic"), bins=BINS).metrics()["negative_log_likelihood"][0]
    assert seen < knows_nothing


def test_an_item_on_an_edge_is_in_the_lower_bin() -> None:
    actual = GroupSums.from_items(
        LabeledScores(np.array([-1.0, 0.0, 1.0]), np.array([False, True, True]), np.arange(3)), bins=2
    )
    assert [one["count"] for one in actual.curves()["equal_width"]] == [2, 1]


def _corrected(items: LabeledScores, kind: str) -> LabeledScores:
    return LabeledScores(fit_calibration(kind, items)(items.log_odds_N), items.positive_N, items.group_N)  # type: ignore[arg-type]


def test_another_prior_of_two_normal_distributions() -> None:
    """Positive ones around 1, others around -1: the log-odds are 2 x + log prior odds, for every prior."""
    draws = np.random.default_rng(2)
    positive = draws.random(40_000) < 0.04
    x = draws.normal(np.where(positive, 1, -1), 1)
    trained = 2 * x + math.log(0.15 / 0.85)
    np.testing.assert_allclose(shift_prior(trained, 0.15, 0.04), 2 * x + math.log(0.04 / 0.96))
    # EM, by the formulas of the paper: reweighted posteriors and their mean.
    posterior, prior = sigmoid(trained), 0.15
    for _ in range(400):
        above, below = prior / 0.15 * posterior, (1 - prior) / 0.85 * (1 - posterior)
        prior = float((above / (above + below)).mean())
    actual = estimate_prior(trained, 0.15)
    assert actual == pytest.approx(prior, abs=1e-6) == pytest.approx(positive.mean(), abs=0.005)
