"""Logistic regression on categories: known effects are recovered, and intervals cover them."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from electra.analysis.logistic_effects import Z_95, Factor, fit_effects

TRUE = {"tag": np.array([-0.8, 0.0, 0.9]), "place": np.array([0.5, -0.5])}


def made(seed: int, *, sentences: int = 300) -> tuple[np.ndarray, list[Factor], np.ndarray]:
    """Errors of tokens by tag and place, which are correlated: the third tag is mostly at the second place."""
    draw = np.random.default_rng(seed)
    sentence_N = np.repeat(np.arange(sentences), 10)
    tag_N = draw.integers(0, 3, len(sentence_N))
    place_N = (draw.random(len(sentence_N)) < np.array([0.2, 0.5, 0.9])[tag_N]).astype(np.int64)
    leaning_N = draw.normal(scale=0.7, size=sentences)[sentence_N]
    error_N = draw.random(len(sentence_N)) < expit(TRUE["tag"][tag_N] + TRUE["place"][place_N] + leaning_N - 1)
    factors = [Factor("tag", ("a", "b", "c"), tag_N), Factor("place", ("here", "there", "nowhere"), place_N)]
    return error_N, factors, sentence_N


def test_effects_equal_those_of_scikit_learn_and_sum_to_zero() -> None:
    error_N, factors, sentence_N = made(0)
    actual = fit_effects(error_N, factors, sentence_N)
    assert actual is not None
    # A model with a reference level and without a penalty has the same differences.
    x = np.stack([factors[0].level_N == 1, factors[0].level_N == 2, factors[1].level_N == 1], 1)
    theirs = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8).fit(x, error_N).coef_[0]
    tag, place = ([one.value for one in actual[name]] for name in ("tag", "place"))
    assert [tag[1] - tag[0], tag[2] - tag[0]] == pytest.approx(theirs[:2].tolist(), abs=0.02)
    assert place[1] - place[0] == pytest.approx(theirs[2], abs=0.02)
    assert [one.level for one in actual["place"]] == ["here", "there"]  # no token is nowhere
    for levels in actual.values():
        assert sum(one.tokens * one.value for one in levels) == pytest.approx(0, abs=1e-6)
        assert sum(one.tokens for one in levels) == len(error_N)


def test_intervals_cover_the_truth_over_sentences() -> None:
    """As wide as the deviation of the effects over texts; with independent tokens they would be too narrow by a
    third."""
    many = [fit_effects(*made(seed, sentences=120)) for seed in range(40)]
    values = np.array([[one.value for one in actual["place"]] for actual in many if actual])
    widths = np.array([[(one.high - one.low) / 2 / 1.96 for one in actual["place"]] for actual in many if actual])
    assert widths.mean(0) == pytest.approx(values.std(0), rel=0.25)


def test_dependent_tokens_widen_the_interval() -> None:
    """If all tokens of a sentence are equal, the interval is that of the sentences."""
    draw = np.random.default_rng(0)
    kind_S, error_S = np.arange(200) % 2, draw.random(200) < 0.4
    single = fit_effects(error_S, [Factor("kind", ("a", "b"), kind_S)], np.arange(200))
    repeated = fit_effects(
        np.repeat(error_S, 20), [Factor("kind", ("a", "b"), np.repeat(kind_S, 20))], np.repeat(np.arange(200), 20)
    )
    assert single is not None and repeated is not None
    for one, same in zip(single["kind"], repeated["kind"], strict=True):
        assert same.high - same.low == pytest.approx(one.high - one.low, rel=0.1)


def test_intervals_of_few_sentences_are_corrected() -> None:
    """The sandwich covariance of three sentences, by its formula; the factor 3 / 2 is the correction."""
    error_N = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0], bool)
    level_N, sentence_N = np.arange(12) // 2 % 2, np.repeat([4, 7, 9], 4)
    x_NK = np.stack([level_N == 0, level_N == 1, np.ones(12)], 1).astype(float)
    model = LogisticRegression(C=1, solver="newton-cholesky", max_iter=200).fit(x_NK[:, :2], error_N)
    p_N = model.predict_proba(x_NK[:, :2])[:, 1]
    bread = np.linalg.inv((x_NK.T * p_N * (1 - p_N)) @ x_NK + np.diag([1, 1, 0]))
    sums_SK = [((error_N - p_N)[:, None] * x_NK)[sentence_N == sentence].sum(0) for sentence in (4, 7, 9)]
    covariance = 3 / 2 * bread @ sum(np.outer(one, one) for one in sums_SK) @ bread
    contrast = np.array([0.5, -0.5, 0])  # of either level with the mean of both
    error = np.sqrt(contrast @ covariance @ contrast)
    actual = fit_effects(error_N, [Factor("kind", ("a", "b"), level_N)], sentence_N)
    assert actual is not None
    assert [one.high - one.value for one in actual["kind"]] == pytest.approx([Z_95 * error] * 2)


def test_a_level_without_an_error_has_a_finite_effect() -> None:
    error_N = np.array([False] * 30 + [True, False] * 30)
    levels_N = np.repeat([0, 1], [30, 60])
    actual = fit_effects(error_N, [Factor("kind", ("never", "half"), levels_N)], np.arange(90))
    assert actual is not None
    never, half = actual["kind"]
    assert -10 < never.low < never.value < -1 < 0 < half.value
    assert fit_effects(np.zeros(9, bool), [Factor("kind", ("a",), np.zeros(9, np.int64))], np.arange(9)) is None
