"""Selection on the tuning set, evaluation on the scored set, and paired differences of detectors."""

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, fbeta_score, precision_score

from electra.analysis.bootstrap import resample_counts
from electra.analysis.detect import (
    SentenceSet,
    WordScores,
    compare_to_first,
    evaluate_scores,
    score_words,
)
from electra.analysis.detectors import Detector, TokenScores
from electra.analysis.error_corpora import LabeledSentence

WORDS = ("a", "b", "c", "d", "e")


def part(sentences: int, seed: int) -> SentenceSet:
    """About every fifth word is wrong."""
    wrong = np.random.default_rng(seed).random((sentences, len(WORDS))) < 0.2
    return SentenceSet([LabeledSentence(WORDS, tuple(row)) for row in wrong.tolist()])


def scores(tune_W: np.ndarray, scored_W: np.ndarray, name: str = "one") -> WordScores:
    return WordScores(name, "discriminator", "max", tune_W, scored_W, [])


def noisy(of: SentenceSet, seed: int, *, by: float = 1.0) -> np.ndarray:
    """Scores that are higher for wrong words."""
    return (np.random.default_rng(seed).normal(size=len(of.wrong_W)) + by * of.wrong_W).round(1)


def best(wrong_W: np.ndarray, scores_W: np.ndarray) -> float:
    """The threshold with the best F0.5."""
    tried = {value: fbeta_score(wrong_W, scores_W >= value, beta=0.5) for value in np.unique(scores_W)}
    return float(max(tried, key=lambda value: tried[value]))


def test_the_threshold_is_the_best_on_the_tuning_set() -> None:
    tune, scored = part(60, 0), part(60, 1)
    tune_W, scored_W = noisy(tune, 2, by=2), noisy(scored, 3) + 1
    counts_RS = resample_counts(60, resamples=9, seed=0)
    results, _ = evaluate_scores(scores(tune_W, scored_W), tune, scored, counts_RS)
    assert results["threshold"] == best(tune.wrong_W, tune_W) != best(scored.wrong_W, scored_W)
    flagged_W = scored_W >= results["threshold"]
    assert results["precision"]["value"] == pytest.approx(precision_score(scored.wrong_W, flagged_W))
    assert results["f0.5"]["value"] == pytest.approx(fbeta_score(scored.wrong_W, flagged_W, beta=0.5))
    assert results["f0.5"]["value"] != pytest.approx(f1_score(scored.wrong_W, flagged_W))


def test_the_pooling_is_the_best_on_the_tuning_set() -> None:
    """In the tuning set a wrong word has one high token; in the scored set all of its tokens are a little
    higher."""
    tune, scored = part(20, 0), part(20, 1)
    random, parts = np.random.default_rng(2), iter((tune, scored))

    def tokens(_: Sequence[Sequence[str]]) -> list[TokenScores]:
        actual, of = [], next(parts)
        for sentence in of.sentences:
            wrong_W = np.array(sentence.wrong)
            odds_W3 = random.normal(size=(len(WORDS), 3))
            odds_W3[wrong_W, 0] += 9 * (of is tune)
            odds_W3 -= odds_W3.mean(1, keepdims=True)  # so that the mean is uninformative
            if of is scored:
                odds_W3[wrong_W] = 1.0  # and the maximum nearly so here
            actual.append(TokenScores(odds_W3.ravel(), np.repeat(np.arange(len(WORDS)), 3), 15))
        return actual

    actual = score_words(
        Detector("one", "discriminator", lambda lengths: len(list(lengths)), tokens), tune, scored
    )
    assert actual.pooling == "max" and actual.long == 40 and actual.unseen == 0
    assert average_precision_score(tune.wrong_W, actual.tune_W) > 0.9
    assert average_precision_score(scored.wrong_W, actual.scored_W) < 0.9


def test_the_pooling_has_the_best_average_precision() -> None:
    """By the area under the ROC curve, it would be the mean."""
    highest_W = np.array([9.0, -9, *np.linspace(0, 0.7, 8)])
    means_W = np.array([-5.0, -9.5, -1, -2, *[-100.0] * 6])
    others_W = (3 * means_W - highest_W) / 2
    odds_W3 = np.stack([highest_W, others_W, others_W], 1)
    both = SentenceSet([LabeledSentence(WORDS * 2, (True, True, *[False] * 8))])
    tokens = TokenScores(odds_W3.ravel(), np.repeat(np.arange(10), 3), 30)
    detector = Detector("one", "discriminator", lambda lengths: 0, lambda sentences: [tokens])
    actual = score_words(detector, both, both)
    assert actual.pooling == "max"
    np.testing.assert_allclose(actual.tune_W, highest_W)


def test_differences_are_paired_by_resample() -> None:
    tune, scored = part(80, 0), part(80, 1)
    counts_RS = resample_counts(80, resamples=50, seed=0)
    good, bad = noisy(scored, 2, by=1.5), noisy(scored, 3, by=0.5)
    three = [scores(noisy(tune, 4), values, name) for name, values in (("a", bad), ("b", good), ("c", bad))]
    points, values = zip(*(evaluate_scores(one, tune, scored, counts_RS) for one in three), strict=True)
    second, third = compare_to_first(values, points)
    assert (second["model"], second["than"]) == ("b", "a")
    assert third["auc"] == {"value": 0.0, "interval": [0.0, 0.0]}  # the same scores in every resample
    weights_RW = counts_RS[:, scored.sentence_W]
    apart_R = [
        average_precision_score(scored.wrong_W, good, sample_weight=row)
        - average_precision_score(scored.wrong_W, bad, sample_weight=row)
        for row in weights_RW
    ]
    actual = second["average_precision"]
    assert actual["value"] == points[1]["average_precision"]["value"] - points[0]["average_precision"]["value"]
    np.testing.assert_allclose(actual["interval"], np.quantile(apart_R, [0.025, 0.975]))


def test_resamples_without_rewrites_are_ignored() -> None:
    tune, scored = part(30, 0), part(30, 1)
    rewrites = [(1.0, np.array([0.0] if number == 3 else [])) for number in range(30)]
    one = WordScores("one", "discriminator", "max", noisy(tune, 2), noisy(scored, 3), rewrites)
    results, _ = evaluate_scores(one, tune, scored, resample_counts(30, resamples=200, seed=0))
    assert results["rewrites"] == {"pairs": 1, "accuracy": {"value": 1.0, "interval": [1.0, 1.0]}}
