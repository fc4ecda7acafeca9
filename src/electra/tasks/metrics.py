"""Metrics of labels and values, by name. Shares and correlations are from 0, or -1, to 1."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def accuracy(answers: Numbers, predictions: Numbers) -> float:
    """Share of correct predictions."""
    return float((answers == predictions).mean())


def matthews_correlation(answers: Numbers, predictions: Numbers) -> float:
    """Matthews correlation of two labels, 0 and 1; 0 if all predictions, or all answers, are the same."""
    return pearson(answers, predictions)  # the same for labels 0 and 1


def f1(answers: Numbers, predictions: Numbers) -> float:
    """F1 of the second of two labels."""
    true = float(((answers == 1) & (predictions == 1)).sum())
    wrong = float((answers != predictions).sum())
    return 2 * true / (2 * true + wrong) if true else 0.0


def macro_f1(answers: Numbers, predictions: Numbers) -> float:
    """Mean F1 over the labels that occur in answers or predictions."""
    labels = np.union1d(answers, predictions)
    return float(np.mean([f1((answers == label) * 1.0, (predictions == label) * 1.0) for label in labels]))


def pearson(answers: Numbers, predictions: Numbers) -> float:
    """Pearson correlation; 0 if all predictions, or all answers, are the same."""
    if answers.std() == 0 or predictions.std() == 0:
        return 0.0
    correlation = float(np.corrcoef(answers, predictions)[0, 1])
    return correlation if math.isfinite(correlation) else 0.0


def spearman(answers: Numbers, predictions: Numbers) -> float:
    """Spearman rank correlation; 0 if all predictions, or all answers, are the same."""
    from scipy.stats import rankdata

    return pearson(rankdata(answers), rankdata(predictions))


def mean_absolute_error(answers: Numbers, predictions: Numbers) -> float:
    return float(np.abs(answers - predictions).mean())


METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": accuracy,
    "matthews": matthews_correlation,
    "f1": f1,
    "macro_f1": macro_f1,
    "pearson": pearson,
    "spearman": spearman,
    "error": mean_absolute_error,
}


def compute_metrics(
    names: Sequence[str], answers: Sequence[float], predictions: Sequence[float]
) -> dict[str, float]:
    """Return the named metrics, in this order."""
    both = np.array(answers, np.float64), np.array(predictions, np.float64)
    return {name: METRICS[name](*both) for name in names}
