"""Figures of predictions beside their answers, by name; shares and correlations, from -1 or 0 to 1."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def accuracy(answers: Numbers, predictions: Numbers) -> float:
    """The share that is right."""
    return float((answers == predictions).mean())


def matthews_correlation(answers: Numbers, predictions: Numbers) -> float:
    """Matthews' correlation of two labels, 0 and 1; 0 where all predictions, or all answers, are one."""
    return pearson(answers, predictions)  # which is the same for labels that are 0 and 1


def f1(answers: Numbers, predictions: Numbers) -> float:
    """F1 of the second of two labels."""
    true = float(((answers == 1) & (predictions == 1)).sum())
    wrong = float((answers != predictions).sum())
    return 2 * true / (2 * true + wrong) if true else 0.0


def macro_f1(answers: Numbers, predictions: Numbers) -> float:
    """The mean of F1 over the labels that occur in answers or predictions."""
    labels = np.union1d(answers, predictions)
    return float(np.mean([f1((answers == label) * 1.0, (predictions == label) * 1.0) for label in labels]))


def pearson(answers: Numbers, predictions: Numbers) -> float:
    """Pearson's correlation; 0 where all predictions, or all answers, are one."""
    if answers.std() == 0 or predictions.std() == 0:
        return 0.0
    found = float(np.corrcoef(answers, predictions)[0, 1])
    return found if math.isfinite(found) else 0.0


def spearman(answers: Numbers, predictions: Numbers) -> float:
    """Spearman's rank correlation; 0 where all predictions, or all answers, are one."""
    from scipy.stats import rankdata

    return pearson(rankdata(answers), rankdata(predictions))


def mean_absolute_error(answers: Numbers, predictions: Numbers) -> float:
    """The mean absolute difference."""
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
    """The named figures, in this order."""
    both = np.array(answers, np.float64), np.array(predictions, np.float64)
    return {name: METRICS[name](*both) for name in names}
