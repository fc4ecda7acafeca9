"""Metrics of extractive question answering, by the rules of SQuAD's scripts evaluate-v1.1 and evaluate-v2.0.

All metrics are shares, 0 to 1 (the scripts print percentages).
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and English articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if both are the same after normalization, else 0."""
    return float(normalize_answer(answer) == normalize_answer(gold))


def f1(answer: str, gold: str, *, impossible: bool) -> float:
    """Return the harmonic mean of precision and recall over words.

    Args:
        impossible: use the rules of 2.0, where two answers without any word agree; in 1.1 they do not.
    """
    words, gold_words = normalize_answer(answer).split(), normalize_answer(gold).split()
    if not words or not gold_words:
        return float(impossible and words == gold_words)
    common = (Counter(words) & Counter(gold_words)).total()
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def exact_and_f1(
    answers: Sequence[str], golds: Sequence[Sequence[str]], *, impossible: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return exact match and F1 of each answer with its most similar gold answer.

    Args:
        golds: gold answers of each question; empty if it has no answer (2.0), so that "" is right.
        impossible: use the rules of 2.0, where a gold answer without any word does not count.
    """
    pairs = [
        _score(answer, tuple(gold), impossible=impossible) for answer, gold in zip(answers, golds, strict=True)
    ]
    exact, overlap = np.array(pairs, np.float64).reshape(-1, 2).T
    return exact, overlap


@lru_cache(maxsize=100_000)  # a bootstrap scores the same answers a thousand times
def _score(answer: str, golds: tuple[str, ...], *, impossible: bool) -> tuple[float, float]:
    if impossible:
        golds = tuple(gold for gold in golds if normalize_answer(gold)) or ("",)
    return (
        max(exact_match(answer, gold) for gold in golds),
        max(f1(answer, gold, impossible=impossible) for gold in golds),
    )


def compute_squad_metrics(
    answers: Sequence[str], golds: Sequence[Sequence[str]], *, impossible: bool
) -> dict[str, float]:
    """Return `exact` and `f1`; in 2.0 also for questions with an answer (HasAns_) and without one (NoAns_).

    Args: those of `exact_and_f1`.
    """
    scores = dict(zip(("exact", "f1"), exact_and_f1(answers, golds, impossible=impossible), strict=True))
    metrics = {name: float(values.mean()) for name, values in scores.items()}
    if impossible:
        has_answer = np.array([bool(gold) for gold in golds])
        for part, mask in (("HasAns", has_answer), ("NoAns", ~has_answer)):
            if mask.any():
                metrics |= {f"{part}_{name}": float(values[mask].mean()) for name, values in scores.items()}
    return metrics


def best_thresholds(
    answers: Sequence[str], golds: Sequence[Sequence[str]], null_odds: Sequence[float]
) -> dict[str, float]:
    """Return the best metrics that a threshold of the null odds can give (2.0), and that threshold.

    An answer is given if its null odds are at most the threshold. If it is best to give no answer at all, the
    official script returns the threshold 0, which is right for probabilities; here it is one below the smallest
    odds.

    Args:
        answers: the best answer to each question, whether or not it would be given.

    Returns:
        `best_exact` with `best_threshold`, `best_f1` with `best_f1_threshold`.
    """
    order = np.argsort(null_odds, kind="stable")
    odds = np.array(null_odds, np.float64)[order]
    has_answer = np.array([bool(gold) for gold in golds])[order]
    loss = -np.array([float(bool(answer)) for answer in answers])[order]
    best: dict[str, float] = {}
    names = ("exact", "threshold"), ("f1", "f1_threshold")
    for (name, threshold), values in zip(names, exact_and_f1(answers, golds, impossible=True), strict=True):
        # Each step gives one more answer, the most certain first. At the start, only "no answer" is right.
        steps = np.where(has_answer, values[order], loss)
        totals = np.cumsum(np.concatenate([[float(np.count_nonzero(~has_answer))], steps]))
        step = int(totals.argmax())
        best[f"best_{name}"] = float(totals[step] / len(answers))
        best[f"best_{threshold}"] = float(odds[step - 1] if step else odds[0] - 1)
    return best
