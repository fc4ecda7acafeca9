"""Intervals over sentences, compared with scipy's bootstrap and scikit-learn's areas."""

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.metrics import roc_auc_score

from electra.analysis.group_bootstrap import MIN_BIN_TOKENS, GroupBootstrap, sum_by_group

SENTENCES = 60


@pytest.fixture(scope="module")
def tokens() -> dict[str, np.ndarray]:
    """Sentences of different lengths; errors and scores depend on the sentence, as in real text."""
    draw = np.random.default_rng(3)
    sentence_N = np.repeat(np.arange(SENTENCES), draw.integers(2, 12, SENTENCES))
    leaning_S = draw.normal(size=SENTENCES)
    size = len(sentence_N)
    scores_N = np.round(leaning_S[sentence_N] + draw.normal(size=size), 1)  # with ties
    return {
        "sentence": sentence_N,
        "group": draw.integers(0, 2, size),
        "scores": scores_N,
        "positive": draw.random(size) < 1 / (1 + np.exp(-scores_N)),
    }


def test_sums_and_ratios_with_intervals_equal_those_of_scipy(tokens: dict[str, np.ndarray]) -> None:
    sentence, group, positive = tokens["sentence"], tokens["group"], tokens["positive"]
    tops = sum_by_group(sentence, group, positive, sentences=SENTENCES, groups=3)
    bottoms = sum_by_group(sentence, group, np.ones(len(group)), sentences=SENTENCES, groups=3)
    slow = [[positive[(sentence == s) & (group == g)].sum() for g in range(3)] for s in range(SENTENCES)]
    np.testing.assert_array_equal(tops, slow)
    actual = GroupBootstrap(SENTENCES, count=4000, seed=1).ratios(tops, bottoms)
    assert actual[2] is None  # that group is empty
    for g in range(2):
        theirs = bootstrap(
            (tops[:, g], bottoms[:, g]),
            lambda top, bottom, axis: top.sum(axis) / bottom.sum(axis),
            paired=True, vectorized=True, n_resamples=4000, method="percentile", rng=2,
        ).confidence_interval  # fmt: skip
        one = actual[g]
        assert one is not None
        assert one.value == pytest.approx(positive[group == g].mean())
        assert one.low == pytest.approx(theirs.low, abs=0.01) and one.high == pytest.approx(theirs.high, abs=0.01)


def test_resampled_sentences_have_wider_intervals_than_tokens() -> None:
    """Ten equal tokens of a sentence count as one."""
    sentence = np.repeat(np.arange(40), 10)
    values = np.repeat(np.arange(40) % 2, 10)
    ones = np.ones(400)
    (actual,) = GroupBootstrap(40, count=2000).ratios(
        sum_by_group(sentence, 0 * sentence, values, sentences=40, groups=1),
        sum_by_group(sentence, 0 * sentence, ones, sentences=40, groups=1),
    )
    assert actual is not None
    assert (actual.high - actual.low) / 2 == pytest.approx(1.96 * np.sqrt(0.25 / 40), rel=0.1)


def test_areas_and_their_intervals_against_scikit_learn(tokens: dict[str, np.ndarray]) -> None:
    sentence, scores, positive = tokens["sentence"], tokens["scores"], tokens["positive"]
    resamples = GroupBootstrap(SENTENCES, count=50, seed=5)
    actual = resamples.roc_auc(sentence, scores, positive)
    assert actual is not None
    assert actual.value == pytest.approx(roc_auc_score(positive, scores))
    theirs = [roc_auc_score(positive, scores, sample_weight=row[sentence]) for row in resamples.weights_RS]
    assert [actual.low, actual.high] == pytest.approx(np.quantile(theirs, [0.025, 0.975]).tolist())
    assert resamples.roc_auc(sentence, scores, np.ones(len(scores), bool)) is None


def test_groups_that_differ_only_in_difficulty_are_equal_at_equal_difficulty() -> None:
    """Error rates: 1 in 5 for easy tokens, 4 in 5 for hard ones, in both groups, whose fractions of them
    differ."""
    tops = np.array([[[80, 80], [20, 320], [0, 30]]])
    bottoms = np.array([[[400, 100], [100, 400], [0, MIN_BIN_TOKENS * 2]]])
    actual, covered = GroupBootstrap(1, count=10).standardized_ratios(tops, bottoms)
    assert [one and round(one.value, 6) for one in actual[:2]] == [
        pytest.approx((500 * 0.2 + 540 * 0.8) / 1040, abs=1e-6)
    ] * 2
    assert covered == pytest.approx([1, 1, 540 / 1040])
    # The third group has only hard tokens, which are more than half of all.
    assert actual[2] is not None and actual[2].value == pytest.approx(30 / 40)


def test_bins_with_few_tokens_of_a_group_are_left_out() -> None:
    tops, bottoms = (
        np.array([[[9, MIN_BIN_TOKENS - 1], [1, 1]]]),
        np.array([[[90, MIN_BIN_TOKENS - 1], [500, 900]]]),
    )
    actual, covered = GroupBootstrap(1, count=10).standardized_ratios(tops, bottoms)
    assert actual[0] is None and covered[0] == pytest.approx(590 / (590 + 900 + MIN_BIN_TOKENS - 1))
    assert actual[1] is not None
