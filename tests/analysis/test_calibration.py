"""Figures of calibration beside scikit-learn's and slow plain loops; corrections; priors."""

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
    """By loops over bins, which have an item whose p is an edge in the lower one."""
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
        # What Murphy's parts leave out (Stephenson et al. 2008): variance of p, less twice its covariance with y.
        within += n * (p[inside].var() - 2 * ((p[inside] - mean) * (y[inside] - share)).mean())
    return {"error": error, "reliability": reliability, "resolution": resolution, "residual": within}


def test_figures_are_those_of_others(items: LabeledScores) -> None:
    found = {name: float(value[0]) for name, value in GroupSums.from_items(items, bins=BINS).metrics().items()}
    p, y = sigmoid(items.log_odds_N), items.positive_N
    wide, equal = plain(items, np.arange(1, BINS) / BINS), plain(items, np.quantile(p, np.arange(1, BINS) / BINS))
    assert tuple(found) == METRICS
    assert found["mean_probability"] == pytest.approx(p.mean())
    assert found["expected_calibration_error"] == pytest.approx(wide["error"], abs=1e-9)
    assert found["adaptive_calibration_error"] == pytest.approx(equal["error"], abs=2e-3)  # edges of p, not of x
    assert found["brier"] == pytest.approx(brier_score_loss(y, p))
    assert found["negative_log_likelihood"] == pytest.approx(log_loss(y, p))
    assert found["uncertainty"] == pytest.approx(y.mean() * (1 - y.mean()))
    for name in ("reliability", "resolution", "residual"):
        assert found[name] == pytest.approx(equal[name], abs=1e-4)
    whole = found["reliability"] - found["resolution"] + found["uncertainty"] + found["residual"]
    assert found["brier"] == pytest.approx(whole, abs=1e-12)


def test_groups_that_are_drawn_twice_count_twice(items: LabeledScores) -> None:
    counts = np.random.default_rng(1).integers(0, 3, (2, 20)).astype(float)
    found = GroupSums.from_items(items, bins=BINS).metrics(counts)
    for row, times in enumerate(counts[:, items.group_N].astype(int)):
        again = LabeledScores(
            *(np.repeat(each, times) for each in (items.log_odds_N, items.positive_N, items.group_N))
        )
        drawn = GroupSums.from_items(again, bins=BINS).metrics()  # whose bins of as many items each are others
        for name in ("expected_calibration_error", "brier", "negative_log_likelihood", "uncertainty"):
            assert found[name][row] == pytest.approx(drawn[name][0])


def test_bins_have_their_items(items: LabeledScores) -> None:
    curves = GroupSums.from_items(items, bins=BINS).curves()
    assert sum(one["count"] for one in curves["equal_width"]) == len(items.log_odds_N)
    assert {one["count"] for one in curves["equal_mass"]} <= {3000 // BINS - 1, 3000 // BINS, 3000 // BINS + 1}
    lowest = items.log_odds_N.argsort()[: 3000 // BINS]
    assert curves["equal_mass"][0]["share"] == pytest.approx(items.positive_N[lowest].mean(), abs=2e-3)
    one = LabeledScores(np.zeros(9), np.arange(9) < 3, np.arange(9))  # all alike: one bin, whatever was asked for
    assert GroupSums.from_items(one, bins=5).curves()["equal_mass"] == [
        {"count": 9, "probability": 0.5, "share": 1 / 3}
    ]


def test_lines_are_scikit_learns(items: LabeledScores) -> None:
    x, y = items.log_odds_N[:, None], items.positive_N
    for kind, intercept in (("platt", True), ("temperature", False)):
        found = fit_calibration(kind, items)
        other = LogisticRegression(C=1e10, fit_intercept=intercept, tol=1e-10, max_iter=1000).fit(x, y)
        assert found.slope == pytest.approx(other.coef_[0, 0], rel=1e-4)
        assert found.intercept == pytest.approx(other.intercept_[0] if intercept else 0, abs=1e-4)
        assert found.prior == y.mean()
    assert fit_calibration("platt", items).slope == pytest.approx(0.5, abs=0.05)
    assert fit_calibration("platt", items).intercept == pytest.approx(-0.25, abs=0.15)


def test_isotonic_is_scikit_learns_but_never_sure(items: LabeledScores) -> None:
    found = fit_calibration("isotonic", items)
    other = IsotonicRegression(out_of_bounds="clip").fit(items.log_odds_N, items.positive_N)
    x = np.linspace(-15, 12, 400)
    least = 1 / (len(items.positive_N) + 2)
    np.testing.assert_allclose(sigmoid(found(x)), other.predict(x).clip(least, 1 - least), atol=1e-4)
    assert np.isfinite(found(np.array([-1e9, 1e9]))).all()


def test_what_is_told_apart_without_a_mistake_has_an_end() -> None:
    items = LabeledScores(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]), np.arange(4))
    assert 1 < fit_calibration("temperature", items).slope <= 1e3
    assert math.isfinite(fit_calibration("platt", items).intercept)


def test_cross_validation_prefers_what_was_wrong(items: LabeledScores) -> None:
    found = {kind: cross_validate(kind, items, seed=0) for kind in ("none", "temperature", "platt")}
    assert found["platt"] < found["temperature"] < found["none"]
    # Half of the log-odds' error is undone by one number, which five folds find as well as the whole.
    assert found["temperature"] == pytest.approx(
        GroupSums.from_items(_corrected(items, "temperature"), bins=BINS).metrics()["negative_log_likelihood"][0],
        abs=2e-3,
    )


def test_cross_validation_judges_by_other_groups_alone() -> None:
    """Scores that say nothing, ten times the same in each group: who has seen the group knows the answer."""
    draws = np.random.default_rng(4)
    x, y, groups = (np.repeat(one, 10) for one in (draws.normal(size=60), draws.random(60) < 0.5, np.arange(60)))
    items = LabeledScores(x, y, groups)
    share = y.mean()
    knows_nothing = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert cross_validate("isotonic", items, seed=0) > knows_nothing
    seen = GroupSums.from_items(_corrected(items, "isotonic"), bins=BINS).metrics()["negative_log_likelihood"][0]
    assert seen < knows_nothing


def test_an_item_on_an_edge_is_in_the_lower_bin() -> None:
    found = GroupSums.from_items(
        LabeledScores(np.array([-1.0, 0.0, 1.0]), np.array([False, True, True]), np.arange(3)), bins=2
    )
    assert [one["count"] for one in found.curves()["equal_width"]] == [2, 1]


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
    found = estimate_prior(trained, 0.15)
    assert found == pytest.approx(prior, abs=1e-6) == pytest.approx(positive.mean(), abs=0.005)
