"""Precision, recall and areas of weighted rankings, compared with scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, fbeta_score, precision_score, recall_score, roc_auc_score

from electra.analysis.ranking import Ranking


@pytest.fixture(scope="module")
def items() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with many ties, labels, and weights, some of which are 0."""
    draws = np.random.default_rng(0)
    positive = draws.random(300) < 0.2
    scores = (draws.normal(size=300) + positive).round(1)
    return scores, positive, draws.integers(0, 4, 300).astype(float)


def test_areas_equal_those_of_scikit_learn(items: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, positive, weights = items
    ranking = Ranking(scores, positive)
    for each in (None, weights):
        average, area = ranking.areas(each)
        assert average == pytest.approx(average_precision_score(positive, scores, sample_weight=each), abs=1e-12)
        assert area == pytest.approx(roc_auc_score(positive, scores, sample_weight=each), abs=1e-12)


def test_metrics_at_a_threshold_equal_those_of_scikit_learn(
    items: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    scores, positive, weights = items
    for threshold in (-0.5, 0.3, 1.25):
        flagged = scores >= threshold
        actual = Ranking(scores, positive).metrics_at(threshold, weights)
        assert actual.flagged == pytest.approx(np.average(flagged, weights=weights))
        assert actual.precision == pytest.approx(precision_score(positive, flagged, sample_weight=weights))
        assert actual.recall == pytest.approx(recall_score(positive, flagged, sample_weight=weights))
        assert actual.f_half == pytest.approx(fbeta_score(positive, flagged, beta=0.5, sample_weight=weights))


def test_the_best_threshold_equals_an_exhaustive_search(items: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, positive, _ = items
    tried = {score: fbeta_score(positive, scores >= score, beta=0.5) for score in np.unique(scores)}
    assert Ranking(scores, positive).best_threshold() == max(tried, key=lambda score: tried[score])


def test_the_curve_ends_where_everything_is_flagged(items: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, positive, _ = items
    curve = Ranking(scores, positive).precision_recall_curve(20)
    assert 5 < len(curve) <= 20 and [recall for recall, _ in curve] == sorted(recall for recall, _ in curve)
    assert curve[-1][0] == 1
    flagged = [scores >= threshold for threshold in np.unique(scores)]
    possible = {
        (round(positive[each].sum() / positive.sum(), 4), round(positive[each].mean(), 4)) for each in flagged
    }
    assert {*curve} <= possible


def test_undefined_metrics_are_nan() -> None:
    ranking = Ranking(np.array([1.0, 2.0, 3.0]), np.array([False, True, False]))
    assert np.isnan(ranking.areas(np.array([1.0, 0.0, 1.0]))).all()  # the resample has no positive item
    assert np.isnan(ranking.metrics_at(9.0).precision) and ranking.metrics_at(9.0).recall == 0
