"""Probes find information, controls show memorization; scores compared with scikit-learn and scipy."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.preprocessing import StandardScaler

from electra.analysis.probing import (
    LOGISTIC_C,
    MIN_WORDS,
    RIDGE_ALPHAS,
    Probe,
    bootstrap_difference,
    bootstrap_intervals,
    fit_probe,
    majority_accuracy,
)

SENTENCES, LENGTH, FORMS = 60, 10, 40
random = np.random.default_rng(0)
TYPES = random.integers(FORMS, size=SENTENCES * LENGTH)
OF_SENTENCE = np.repeat(np.arange(SENTENCES), LENGTH)
LABELS = random.integers(3, size=len(TYPES))  # by position, not by type
DEPTHS = random.integers(8, size=len(TYPES))


def shown(values: np.ndarray, count: int, noise: float = 0.5) -> np.ndarray:
    """States in which each value is a direction."""
    return (np.eye(count)[values] + noise * random.normal(size=(len(values), count))).astype(np.float32)


KNOWS = np.concatenate([shown(LABELS, 3, 0.3), shown(TYPES, FORMS, 0.1)], 1)
KNOWS_FORMS = shown(TYPES, FORMS, 0.1)
PROBE = Probe("label", LABELS, TYPES, OF_SENTENCE)


def test_probes_find_information_and_controls_show_memorization() -> None:
    actual = fit_probe(PROBE, [KNOWS, KNOWS_FORMS], seed=0)
    assert actual.scores_Z[0] > 0.85 and actual.scores_Z[1] < 0.5
    assert min(actual.control_scores_Z) > 0.9  # states that encode the type solve the control task
    assert actual.counts_S.tolist() == [LENGTH] * (SENTENCES // 3)


def test_the_probe_is_scikit_learns_logistic_regression() -> None:
    train = ~PROBE.test_words(seed=3)
    scaler = StandardScaler().fit(KNOWS[train])
    for values, name in ((LABELS, "scores_Z"), (PROBE.control(3), "control_scores_Z")):
        model = LogisticRegression(C=LOGISTIC_C, max_iter=3000, tol=1e-6).fit(
            scaler.transform(KNOWS[train]), values[train]
        )
        expected = model.score(scaler.transform(KNOWS[~train]), values[~train])
        assert getattr(fit_probe(PROBE, [KNOWS], seed=3), name)[0] == pytest.approx(expected, abs=0.011)


def test_depths_are_evaluated_by_their_order_within_a_sentence() -> None:
    x = shown(DEPTHS, 8, 0.3)
    probe = Probe("depth", DEPTHS, TYPES, OF_SENTENCE, ordered=True)
    train = ~probe.test_words(seed=0)
    scaler = StandardScaler().fit(x[train])
    said = RidgeCV(RIDGE_ALPHAS).fit(scaler.transform(x[train]), DEPTHS[train]).predict(scaler.transform(x))
    held = np.unique(OF_SENTENCE[~train])
    expected = [spearmanr(said[s == OF_SENTENCE], DEPTHS[s == OF_SENTENCE]).statistic for s in held]
    actual = fit_probe(probe, [x], seed=0)
    np.testing.assert_allclose(actual.sums_ZS[0], expected, atol=0.03)
    assert actual.scores_Z[0] > 0.5 > 0.3 > abs(actual.control_scores_Z[0])


def test_short_sentences_and_unlabeled_words_do_not_count() -> None:
    unknown = np.where(OF_SENTENCE % 2, -1, LABELS)
    actual = fit_probe(Probe("label", unknown, TYPES, OF_SENTENCE), [KNOWS], seed=0)
    tested = Probe("label", unknown, TYPES, OF_SENTENCE).test_words(0)
    assert actual.counts_S.sum() == ((unknown >= 0) & tested).sum()
    short = Probe("depth", DEPTHS, TYPES, np.arange(len(TYPES)) // 4, ordered=True)
    assert fit_probe(short, [KNOWS], seed=0).counts_S.sum() == 0
    long = Probe("depth", DEPTHS, TYPES, np.arange(len(TYPES)) // MIN_WORDS, ordered=True)
    assert set(fit_probe(long, [KNOWS], seed=0).counts_S) == {1}


def test_a_control_depends_on_the_type_and_has_the_frequencies_of_the_labels() -> None:
    uneven = (random.random(len(TYPES)) < 0.1).astype(int)
    many = np.arange(len(TYPES))
    drawn = Probe("label", uneven, many, OF_SENTENCE).control(0)
    assert 0.05 < drawn.mean() < 0.16
    control = PROBE.control(1)
    for form in range(FORMS):
        assert len({*control[form == TYPES].tolist()}) <= 1
    assert (PROBE.control(2) != control).any() and (PROBE.control(1) == control).all()


def test_majority_accuracy() -> None:
    mostly = np.where(np.arange(len(TYPES)) % 5, 1, 0)
    assert majority_accuracy(Probe("label", mostly, TYPES, OF_SENTENCE), 0) == 0.8


def test_the_majority_is_that_of_the_training_sentences() -> None:
    """Its label is not the most frequent one of the sentences it is evaluated on."""
    probe = Probe("label", np.zeros_like(LABELS), TYPES, OF_SENTENCE)
    held_out = probe.test_words(0)
    values = np.where(held_out, np.where(np.arange(len(TYPES)) % 10 < 3, 0, 1), 0)
    assert majority_accuracy(Probe("label", values, TYPES, OF_SENTENCE), 0) == 0.3


def test_intervals_contain_the_score_and_distinguish_networks() -> None:
    good, bad = fit_probe(PROBE, [KNOWS, KNOWS_FORMS], seed=0), fit_probe(PROBE, [KNOWS_FORMS], seed=0)
    around = bootstrap_intervals(good, resamples=300, seed=0)
    for score, (low, high) in zip(good.scores_Z, around.scores, strict=True):
        assert low <= score <= high and 0 < high - low < 0.3
    between, (low, high) = bootstrap_difference(bad, good, resamples=300, seed=0)
    assert between == pytest.approx(good.scores_Z[0] - bad.scores_Z[0]) and 0.2 < low < between < high
    assert bootstrap_difference(good, good, resamples=300, seed=0) == (0.0, (0.0, 0.0))
