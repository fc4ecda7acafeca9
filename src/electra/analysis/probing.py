"""What a linear model can read off the states of words, beside what it can learn by heart.

A probe is trained on the states of one layer, on some of the sentences, and measured on the others. The control
task (Hewitt and Liang 2019) has the same words and labels, but each word has one label by lot wherever it stands,
drawn as often as the labels occur: what a probe gets right there, it has learnt by heart. Selectivity is the
difference.

Shapes: N words, S held-out sentences, Z layers, D hidden size.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from electra.analysis.bootstrap import Interval, drawn, interval, means

TESTED = 1 / 3
"""The share of the sentences that is held out."""
SHORTEST = 5
"""Words of a sentence from which on the order of their depths is measured."""
REGULARIZATION = 0.1
"""C of the logistic regression on standardised states."""
ALPHAS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)
"""Penalties of the ridge regression, of which the best on its own sentences is taken (leave-one-out)."""
STEPS = 300

States = NDArray[np.float32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Probe:
    """What is asked of every word.

    Attributes:
        name: such as "part of speech".
        values_N: a label's number of each word, or a depth; -1 for words that are not asked.
        types_N: the number of each word's form, for the control task.
        sentences_N: the number of each word's sentence.
        ordered: whether the values are depths, of which the order within a sentence is measured.
    """

    name: str
    values_N: Ints
    types_N: Ints
    sentences_N: Ints
    ordered: bool = False

    def control(self, seed: int) -> Ints:
        """A value for each word by its form alone, drawn from those of all words."""
        asked = self.values_N >= 0
        by_type = np.random.default_rng(seed).choice(self.values_N[asked], size=int(self.types_N.max()) + 1)
        return np.where(asked, by_type[self.types_N], -1)

    def tested(self, seed: int) -> NDArray[np.bool_]:
        """Whether a word's sentence is held out (N,)."""
        numbers = np.unique(self.sentences_N)
        chosen = np.random.default_rng(seed).permutation(numbers)[: max(1, round(TESTED * len(numbers)))]
        return np.isin(self.sentences_N, chosen)

    def halves(self, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The words that are learnt from and those that are measured on, both (N,): only such as are asked."""
        tested_N, asked_N = self.tested(seed), self.values_N >= 0
        return asked_N & ~tested_N, asked_N & tested_N


@dataclass(frozen=True)
class Outcome:
    """How a probe did on each held-out sentence.

    Attributes:
        sums_ZS: words that it got right, or the rank correlation; by layer.
        controls_ZS: the same of the control task.
        counts_S: words, or 1.
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


def probed(
    probe: Probe, states: Sequence[States], *, seed: int, progress: Callable[[], None] = lambda: None
) -> Outcome:
    """Train and measure a probe and its control on each layer's states (N, D).

    Args:
        progress: called after each layer.
    """
    train_N, test_N = probe.halves(seed)
    sentences = probe.sentences_N[test_N]
    sums: list[list[Floats]] = [[], []]
    counts_S = np.zeros(0)
    for layer in states:
        x_train, x_test = _standardised(layer[train_N], layer[test_N])
        for found, values_N in zip(sums, (probe.values_N, probe.control(seed)), strict=True):
            predicted = _predicted(x_train, values_N[train_N], x_test, seed=seed, ordered=probe.ordered)
            measure = _orders if probe.ordered else _right
            sums_S, counts_S = measure(predicted, values_N[test_N], sentences)
            found.append(sums_S)
        progress()
    return Outcome(np.array(sums[0]), np.array(sums[1]), counts_S)


def majority(probe: Probe, seed: int) -> float:
    """What always giving the commonest label of the training sentences gets right."""
    train_N, test_N = probe.halves(seed)
    commonest = np.bincount(probe.values_N[train_N]).argmax()
    return float((probe.values_N[test_N] == commonest).mean())


@dataclass(frozen=True)
class Intervals:
    """Those of an outcome's scores and selectivities, by layer."""

    scores: list[Interval]
    selectivities: list[Interval]


def intervals(outcome: Outcome, *, resamples: int, seed: int) -> Intervals:
    """By drawing held-out sentences anew."""
    drawn_RS = drawn(len(outcome.counts_S), resamples=resamples, seed=seed)
    scores_ZR = means(outcome.sums_ZS, outcome.counts_S, drawn_RS)
    controls_ZR = means(outcome.controls_ZS, outcome.counts_S, drawn_RS)
    return Intervals([interval(one) for one in scores_ZR], [interval(one) for one in scores_ZR - controls_ZR])


def difference(first: Outcome, second: Outcome, *, resamples: int, seed: int) -> tuple[float, Interval]:
    """The second network's best layer less the first one's, and its interval.

    The same sentences are drawn for both, and in each resample each has the layer that is best there.
    """
    drawn_RS = drawn(len(first.counts_S), resamples=resamples, seed=seed)
    best = [means(one.sums_ZS, one.counts_S, drawn_RS).max(0) for one in (first, second)]
    return float(second.scores_Z.max() - first.scores_Z.max()), interval(best[1] - best[0])


def _standardised(train: States, test: States) -> tuple[States, States]:
    mean, deviation = train.mean(0), train.std(0)
    scale = np.where(deviation > 1e-6, deviation, 1)
    return (train - mean) / scale, (test - mean) / scale


def _predicted(x_train: States, values: Ints, x_test: States, *, seed: int, ordered: bool) -> Floats:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if ordered:
        return np.asarray(RidgeCV(ALPHAS).fit(x_train, values.astype(np.float64)).predict(x_test), np.float64)
    if len(np.unique(values)) == 1:  # a control may be so unlucky; there is nothing to fit
        return np.full(len(x_test), values[0], np.float64)
    model = LogisticRegression(C=REGULARIZATION, max_iter=STEPS, tol=1e-3, random_state=seed)
    with warnings.catch_warnings():  # after so many steps its figures hardly move
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit(x_train, values).predict(x_test), np.float64)


def _right(predicted: Floats, values: Ints, sentences: Ints) -> tuple[Floats, Floats]:
    _, places = np.unique(sentences, return_inverse=True)
    return np.bincount(places, predicted == values).astype(np.float64), np.bincount(places).astype(np.float64)


def _orders(predicted: Floats, values: Ints, sentences: Ints) -> tuple[Floats, Floats]:
    """Spearman's correlation within each sentence of `SHORTEST` words or more (Hewitt and Manning 2019); 0 where a
    probe says the same of all words. The others have no value, and count as none."""
    from scipy.stats import spearmanr

    numbers = np.unique(sentences)
    sums, counts = np.zeros(len(numbers)), np.zeros(len(numbers))
    for place, number in enumerate(numbers):
        chosen = sentences == number
        if chosen.sum() >= SHORTEST:
            counts[place] = 1
            if len(np.unique(predicted[chosen])) > 1 and len(np.unique(values[chosen])) > 1:
                sums[place] = spearmanr(predicted[chosen], values[chosen]).statistic
    return sums, counts
