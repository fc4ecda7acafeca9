"""Linear probes of hidden states, with control tasks that show how much a probe memorizes.

A probe is trained on the states of one layer on some of the sentences, and evaluated on the others. The control
task (Hewitt and Liang 2019) has the same words and labels, but each word type has one random label wherever it
occurs, drawn with the frequencies of the labels: what a probe gets right there, it has memorized. Selectivity is
the difference.

Shapes: N words, S held-out sentences, Z layers, D hidden size.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import Interval, percentile_interval, resample_counts, resampled_means

TEST_FRACTION = 1 / 3
"""The fraction of the sentences that is held out."""
MIN_WORDS = 5
"""The minimum length of a sentence in which the order of depths is measured."""
LOGISTIC_C = 0.1
"""C of the logistic regression on standardized states."""
RIDGE_ALPHAS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)
"""Penalties of the ridge regression; the best on the training sentences is used (leave-one-out)."""
MAX_ITERATIONS = 300

States = NDArray[np.float32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Probe:
    """A property of words to predict.

    Attributes:
        name: such as "part of speech".
        values_N: the index of each word's label, or a depth; -1 for words without one.
        types_N: the index of each word's type, for the control task.
        sentences_N: the index of each word's sentence.
        ordered: whether the values are depths, whose order within a sentence is measured.
    """

    name: str
    values_N: Ints
    types_N: Ints
    sentences_N: Ints
    ordered: bool = False

    def control(self, seed: int) -> Ints:
        """A random value for each word type, drawn from the values of all words."""
        labeled_N = self.values_N >= 0
        by_type = np.random.default_rng(seed).choice(self.values_N[labeled_N], size=int(self.types_N.max()) + 1)
        return np.where(labeled_N, by_type[self.types_N], -1)

    def test_words(self, seed: int) -> NDArray[np.bool_]:
        """Whether each word's sentence is held out (N,)."""
        numbers = np.unique(self.sentences_N)
        test = np.random.default_rng(seed).permutation(numbers)[: max(1, round(TEST_FRACTION * len(numbers)))]
        return np.isin(self.sentences_N, test)

    def train_test_split(self, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The words to train on and the words to evaluate on, both (N,); only words with a value."""
        test_N, labeled_N = self.test_words(seed), self.values_N >= 0
        return labeled_N & ~test_N, labeled_N & test_N


@dataclass(frozen=True)
class ProbeResult:
    """The scores of a probe on each held-out sentence.

    Attributes:
        sums_ZS: the number of correct words, or the rank correlation, by layer.
        controls_ZS: the same for the control task.
        counts_S: the number of words, or 1.
    """

    sums_ZS: Floats
    controls_ZS: Floats
    counts_S: Floats

    @property
    def scores_Z(self) -> Floats:
        return np.asarray(self.sums_ZS.sum(1) / self.counts_S.sum())

    @property
    def control_scores_Z(self) -> Floats:
        return np.asarray(self.controls_ZS.sum(1) / self.counts_S.sum())


def fit_probe(
    probe: Probe, states: Sequence[States], *, seed: int, progress: Callable[[], None] = lambda: None
) -> ProbeResult:
    """Train and evaluate a probe and its control on each layer's states (N, D).

    Args:
        progress: called after each layer.
    """
    train_N, test_N = probe.train_test_split(seed)
    sentences = probe.sentences_N[test_N]
    sums: list[list[Floats]] = [[], []]
    counts_S = np.zeros(0)
    score = _rank_correlations if probe.ordered else _correct_words
    for layer in states:
        x_train, x_test = _standardize(layer[train_N], layer[test_N])
        for sums_of_layers, values_N in zip(sums, (probe.values_N, probe.control(seed)), strict=True):
            predicted = _fit_predict(x_train, values_N[train_N], x_test, seed=seed, ordered=probe.ordered)
            sums_S, counts_S = score(predicted, values_N[test_N], sentences)
            sums_of_layers.append(sums_S)
        progress()
    return ProbeResult(np.array(sums[0]), np.array(sums[1]), counts_S)


def majority_accuracy(probe: Probe, seed: int) -> float:
    """The accuracy of always predicting the most frequent label of the training sentences."""
    train_N, test_N = probe.train_test_split(seed)
    most_frequent = np.bincount(probe.values_N[train_N]).argmax()
    return float((probe.values_N[test_N] == most_frequent).mean())


@dataclass(frozen=True)
class Intervals:
    """The intervals of scores and selectivities, by layer."""

    scores: list[Interval]
    selectivities: list[Interval]


def bootstrap_intervals(result: ProbeResult, *, resamples: int, seed: int) -> Intervals:
    """Compute intervals by resampling held-out sentences."""
    counts_RS = resample_counts(len(result.counts_S), resamples=resamples, seed=seed)
    scores_ZR = resampled_means(result.sums_ZS, result.counts_S, counts_RS)
    controls_ZR = resampled_means(result.controls_ZS, result.counts_S, counts_RS)
    return Intervals(
        [percentile_interval(scores_R) for scores_R in scores_ZR],
        [percentile_interval(selectivities_R) for selectivities_R in scores_ZR - controls_ZR],
    )


def bootstrap_difference(
    first: ProbeResult, second: ProbeResult, *, resamples: int, seed: int
) -> tuple[float, Interval]:
    """The score of the second network's best layer minus that of the first one's, and its interval.

    Both networks have the same sentences in each resample, and each has the layer that is best in that resample.
    """
    counts_RS = resample_counts(len(first.counts_S), resamples=resamples, seed=seed)
    first_R, second_R = (
        resampled_means(result.sums_ZS, result.counts_S, counts_RS).max(0) for result in (first, second)
    )
    return float(second.scores_Z.max() - first.scores_Z.max()), percentile_interval(second_R - first_R)


def _standardize(train: States, test: States) -> tuple[States, States]:
    mean, deviation = train.mean(0), train.std(0)
    scale = np.where(deviation > 1e-6, deviation, 1)
    return (train - mean) / scale, (test - mean) / scale


def _fit_predict(x_train: States, values: Ints, x_test: States, *, seed: int, ordered: bool) -> Floats:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if ordered:
        ridge = RidgeCV(RIDGE_ALPHAS).fit(x_train, values.astype(np.float64))
        return np.asarray(ridge.predict(x_test), np.float64)
    if len(np.unique(values)) == 1:  # possible for a control task; there is nothing to fit
        return np.full(len(x_test), values[0], np.float64)
    model = LogisticRegression(C=LOGISTIC_C, max_iter=MAX_ITERATIONS, tol=1e-3, random_state=seed)
    with warnings.catch_warnings():  # after this many iterations the scores hardly change
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit(x_train, values).predict(x_test), np.float64)


def _correct_words(predicted: Floats, values: Ints, sentences: Ints) -> tuple[Floats, Floats]:
    """The number of correct words, and of words, in each sentence."""
    _, rows = np.unique(sentences, return_inverse=True)
    return np.bincount(rows, predicted == values).astype(np.float64), np.bincount(rows).astype(np.float64)


def _rank_correlations(predicted: Floats, values: Ints, sentences: Ints) -> tuple[Floats, Floats]:
    """Spearman's correlation within each sentence of at least `MIN_WORDS` words (Hewitt and Manning 2019).

    It is 0 if the predictions of all words are equal. Shorter sentences are not counted.
    """
    from scipy.stats import spearmanr

    numbers = np.unique(sentences)
    sums, counts = np.zeros(len(numbers)), np.zeros(len(numbers))
    for row, number in enumerate(numbers):
        inside = sentences == number
        if inside.sum() >= MIN_WORDS:
            counts[row] = 1
            if len(np.unique(predicted[inside])) > 1 and len(np.unique(values[inside])) > 1:
                sums[row] = spearmanr(predicted[inside], values[inside]).statistic
    return sums, counts
