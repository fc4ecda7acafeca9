"""Word error rates, before and after a fitted selection of hypotheses."""

from typing import Any

import jiwer
import numpy as np
import pytest

from electra.analysis.bootstrap import resample_counts
from electra.analysis.n_best import Utterance, normalize_words
from electra.analysis.rescoring import (
    HypothesisTable,
    InterpolationWeights,
    ModelScores,
    cross_fit,
    evaluate_rescoring,
    fit_weights,
    select_hypotheses,
    word_errors,
)
from electra.errors import ConfigError
from electra.serving.rescoring import rescore

WORDS = ["go", "home", "now", "please", "play", "the", "next", "song", "of", "my", "list"]


def distance(first: list[str], second: list[str]) -> int:
    """Levenshtein distance by the textbook table."""
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, start=1):
        above, row = row, [i]
        for j, other in enumerate(second, start=1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (one != other)))
    return row[-1]


def utterances(count: int, seed: int = 0) -> list[Utterance]:
    """Each reference is a number and some words; hypotheses have wrong, missing or repeated words."""
    random, actual = np.random.default_rng(seed), []
    for number in range(count):
        reference = [str(number), *random.choice(WORDS, random.integers(2, 7))]
        texts = []
        for _ in range(random.integers(2, 6)):
            kinds = random.random(len(reference))
            words = [
                word for word, kind in zip(reference, kinds, strict=True)
                for word in ([] if kind < 0.1 else ["wrong"] if kind < 0.3 else [word] * (1 + (kind < 0.35)))
            ]  # fmt: skip
            texts.append(" ".join(words) or "wrong")
        scores = sorted(random.normal(-5, 1, len(texts)), reverse=True)
        actual.append(Utterance(reference, texts, [float(score) for score in scores]))
    return actual


def lists(said: list[Utterance], folds: int = 4) -> HypothesisTable:
    return HypothesisTable.from_utterances(said, folds=folds, seed=0)


def perfect(said: list[Utterance]) -> Any:
    """Minus the errors of each hypothesis: a model that knows the reference."""
    return np.array([-float(distance(one.reference, normalize_words(text))) for one in said for text in one.texts])


def test_word_errors_equal_the_textbook_algorithm() -> None:
    said = utterances(30)
    pairs = [(one.reference, normalize_words(text)) for one in said for text in one.texts]
    pairs += [(["a", "b"], []), (["a"], ["<unk>", "a"])]
    actual = word_errors([one for one, _ in pairs], [other for _, other in pairs])
    assert actual == [distance(one, other) for one, other in pairs] and actual[-2:] == [2, 1]


def test_rates_equal_those_of_jiwer() -> None:
    said = utterances(40)
    results = evaluate_rescoring(lists(said), [], resamples=20)
    references = [" ".join(one.reference) for one in said]
    assert results["first_best"]["value"] == pytest.approx(jiwer.wer(references, [one.texts[0] for one in said]))
    best = [min(one.texts, key=lambda text, one=one: distance(one.reference, text.split())) for one in said]
    assert results["oracle"]["value"] == pytest.approx(jiwer.wer(references, best))
    assert results["reference_words"] == sum(len(one.reference) for one in said)
    assert results["hypotheses"] == sum(len(one.texts) for one in said)


def test_intervals_are_of_total_errors_over_total_words() -> None:
    said = utterances(40)
    table = lists(said)
    results = evaluate_rescoring(
        table, [ModelScores("m", "s", table.likelihoods(perfect(said)))], resamples=60, seed=3
    )
    counts_RU = resample_counts(40, resamples=60, seed=3)
    first_U = table.errors_UH[:, 0]
    length_U, rescored_U = (cross_fit(table, one)[0] for one in (None, table.likelihoods(perfect(said))))
    [one] = results["models"]
    for actual, errors_U in (
        (results["first_best"], first_U),
        (one["rescored"], rescored_U),
        (one["to_first_best"], rescored_U - first_U),
        (one["to_length_alone"], rescored_U - length_U),
    ):
        rates = [sum(n * e for n, e in zip(row, errors_U, strict=True)) for row in counts_RU]
        words = [sum(n * w for n, w in zip(row, table.reference_words_U, strict=True)) for row in counts_RU]
        assert actual["value"] == pytest.approx(errors_U.sum() / table.reference_words_U.sum())
        assert actual["interval"] == pytest.approx(np.quantile(np.divide(rates, words), [0.025, 0.975]).tolist())


def test_a_model_that_knows_the_reference_reaches_the_oracle() -> None:
    said = utterances(80)
    table = lists(said)
    results = evaluate_rescoring(table, [ModelScores("m", "s", table.likelihoods(perfect(said)))], resamples=200)
    [one] = results["models"]
    assert one["alone"]["value"] == results["oracle"]["value"]
    assert one["rescored"]["value"] < 0.5 * (results["first_best"]["value"] + results["oracle"]["value"])
    assert one["to_first_best"]["interval"][1] < 0 and one["better"] > 10 > one["worse"]
    assert one["curve"][0]["rate"] == pytest.approx(results["first_best"]["value"])
    assert one["curve"][-1]["rate"] <= one["curve"][5]["rate"]


def test_a_constant_model_changes_nothing() -> None:
    said = utterances(40)
    table = lists(said)
    results = evaluate_rescoring(
        table, [ModelScores("m", "s", table.likelihoods(np.ones(int(table.mask_UH.sum()))))], resamples=20
    )
    [one] = results["models"]
    assert one["weights"] == [0.0] * 4 and one["alone"]["value"] == results["first_best"]["value"]
    assert one["to_length_alone"] == {"value": 0.0, "interval": [0.0, 0.0]}


def test_of_equally_good_weights_those_nearest_to_0_are_taken() -> None:
    """The first best is right, and all hypotheses have two words and fit equally well."""
    said = [Utterance([word, "now"], [f"{word} now", f"{word} song"], [-1.0, -2.0]) for word in ("go", "play")]
    table = lists(said, folds=2)
    for likelihoods in (None, table.likelihoods(perfect(said))):
        assert fit_weights(table, likelihoods, np.ones(2, bool)) == InterpolationWeights(0.0, 0.0, 0.0)


def test_fitting_uses_only_the_training_utterances() -> None:
    said = utterances(40)
    table, values = lists(said), perfect(said)
    there_U = np.arange(40) < 20
    before = fit_weights(table, table.likelihoods(values), there_U)
    table.errors_UH[20:] = 99.0
    table.scores_UH[20:] *= 1000
    changed = table.likelihoods(values)
    changed[20:] *= -5
    assert fit_weights(table, changed, there_U) == before and before.weight > 0


def test_each_utterance_is_evaluated_once_with_the_other_folds() -> None:
    said = utterances(41)
    table, values = lists(said), perfect(said)
    likelihoods_UH = table.likelihoods(values)
    errors_U, points = cross_fit(table, likelihoods_UH)
    for number, point in enumerate(points):
        assert point == fit_weights(table, likelihoods_UH, table.fold_U != number)
        for place in np.flatnonzero(table.fold_U == number):
            best = select_hypotheses(table, likelihoods_UH, point)[place]
            assert errors_U[place] == distance(said[place].reference, normalize_words(said[place].texts[best]))
    assert sorted(np.bincount(table.fold_U).tolist()) == [10, 10, 10, 11]


def test_the_selection_equals_that_of_serving() -> None:
    said = utterances(30)
    table, values = lists(said), perfect(said)
    places = select_hypotheses(table, table.likelihoods(values), InterpolationWeights(0.7, 0.3, 1.0))
    first = 0
    for one, place in zip(said, places, strict=True):
        of_list = values[first : first + len(one.texts)]
        first += len(one.texts)
        assert rescore(one.texts, one.scores, of_list, weight=0.7, length_penalty=0.3)[0].index == place


def test_equal_references_are_in_one_fold() -> None:
    said = [Utterance([str(number % 7)], ["a"], [0.0]) for number in range(40)]
    table = lists(said, folds=3)
    for number in range(7):
        assert len(set(table.fold_U[number::7])) == 1
    with pytest.raises(ConfigError, match="--folds: 8 folds are too many for 7 distinct references"):
        lists(said, folds=8)


def test_a_hypothesis_without_words_is_the_least_likely() -> None:
    said = [Utterance(["a"], ["", "b", "c"], [0.0, 0.0, 0.0]), Utterance(["b"], [""], [0.0])]
    found_UH = lists(said, folds=2).likelihoods(np.array([0.0, -3.0, -2.0, 0.0]))
    assert found_UH.tolist() == [[-3.0, -3.0, -2.0], [0.0, 0.0, 0.0]]
