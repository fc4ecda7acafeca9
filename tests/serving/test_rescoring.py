"""N-best rescoring, with totals computed by hand."""

import pytest

from electra.serving.rescoring import RescoredHypothesis, rescore

TEXTS, SCORES, LIKELIHOODS = ["a b c", "a b", "d"], [-1.0, -2.0, -3.0], [-30.0, -10.0, -20.0]


def test_the_totals_and_the_order() -> None:
    actual = rescore(TEXTS, SCORES, LIKELIHOODS, weight=0.5, length_penalty=0.25)
    assert actual == [
        RescoredHypothesis("a b", 1, -2 - 5 - 0.5),
        RescoredHypothesis("d", 2, -3 - 10 - 0.25),
        RescoredHypothesis("a b c", 0, -1 - 15 - 0.75)
    ]  # fmt: skip


def test_weight_zero_keeps_the_recognizers_order_and_a_penalty_prefers_few_words() -> None:
    assert [one.index for one in rescore(TEXTS, SCORES, LIKELIHOODS, weight=0)] == [0, 1, 2]
    assert [one.index for one in rescore(TEXTS, SCORES, LIKELIHOODS, weight=0, length_penalty=3)] == [2, 1, 0]


def test_ties_keep_their_order() -> None:
    assert [one.text for one in rescore(["b", "a"], [-1, -1], [-5, -5], weight=2)] == ["b", "a"]
    assert rescore([], [], [], weight=1) == []


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        rescore(TEXTS, SCORES, [0.0], weight=1)
