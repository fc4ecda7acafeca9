"""How answers are judged: the rules of SQuAD's official scripts, evaluate-v1.1 and evaluate-v2.0.

All figures are shares, 0 to 1 (the scripts show percentages).
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
    """Lower case, without ASCII punctuation and English articles, one space between words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> float:
    """1 where both are the same once normalised, else 0."""
    return float(normalize_answer(answer) == normalize_answer(gold))


def f1(answer: str, gold: str, *, impossible: bool) -> float:
    """The harmonic mean of precision and recall over words.

    Args:
        impossible: by the rules of 2.0, where two answers without any word agree; in 1.1 they do not.
    """
    found, wanted = normalize_answer(answer).split(), normalize_answer(gold).split()
    if not found or not wanted:
        return float(impossible and found == wanted)
    common = (Counter(found) & Counter(wanted)).total()
    precision, recall = common / len(found), common / len(wanted)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def exact_and_f1(
    answers: Sequence[str], golds: Sequence[Sequence[str]], *, impossible: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact match and F1 of each answer with the gold answer that it is closest to.

    Args:
        golds: right answers to each question; none where it has no answer (2.0), for which "" is right.
        impossible: by the rules of 2.0, where a gold answer without any word does not count.
    """
    pairs = [
        _score(answer, tuple(known), impossible=impossible) for answer, known in zip(answers, golds, strict=True)
    ]
    exact, overlap = np.array(pairs, np.float64).reshape(-1, 2).T
    return exact, overlap


@lru_cache(maxsize=100_000)  # a bootstrap scores the same answers a thousand times
def _score(answer: str, golds: tuple[str, ...], *, impossible: bool) -> tuple[float, float]:
    """Exact match and F1 with the closest gold answer."""
    if impossible:
        golds = tuple(gold for gold in golds if normalize_answer(gold)) or ("",)
    return (
        max(exact_match(answer, gold) for gold in golds),
        max(f1(answer, gold, impossible=impossible) for gold in golds),
    )


def compute_squad_metrics(
    answers: Sequence[str], golds: Sequence[Sequence[str]], *, impossible: bool
) -> dict[str, float]:
    """`exact` and `f1`; in 2.0 also those of questions with an answer (HasAns_) and without (NoAns_).

    The arguments are those of `exact_and_f1`.
    """
    known = dict(zip(("exact", "f1"), exact_and_f1(answers, golds, impossible=impossible), strict=True))
    found = {name: float(values.mean()) for name, values in known.items()}
    if impossible:
        answered = np.array([bool(gold) for gold in golds])
        for part, chosen in (("HasAns", answered), ("NoAns", ~answered)):
            if chosen.any():
                found |= {f"{part}_{name}": float(values[chosen].mean()) for name, values in known.items()}
    return found


def best_thresholds(
    answers: Sequence[str], golds: Sequence[Sequence[str]], null_odds: Sequence[float]
) -> dict[str, float]:
    """The best figures that a threshold of the null odds can give (2.0), and where.

    An answer is given where its odds are at most the threshold. Where no answer at all is best, the official
    script names the threshold 0, which is right for probabilities; here it is one below the least odds.

    Args:
        answers: the best answer to each question, whether or not it would be given.

    Returns:
        `best_exact` with `best_threshold`, `best_f1` with `best_f1_threshold`.
    """
    order = np.argsort(null_odds, kind="stable")
    odds = np.array(null_odds, np.float64)[order]
    answered = np.array([bool(gold) for gold in golds])[order]
    lost = -np.array([float(bool(answer)) for answer in answers])[order]
    found: dict[str, float] = {}
    for (name, place), values in zip(
        (("exact", "threshold"), ("f1", "f1_threshold")),
        exact_and_f1(answers, golds, impossible=True),
        strict=True,
    ):
        # One answer more is given at each step, the surest first; at the beginning only silence is right.
        steps = np.where(answered, values[order], lost)
        totals = np.cumsum(np.concatenate([[float(np.count_nonzero(~answered))], steps]))
        best = int(totals.argmax())
        found[f"best_{name}"] = float(totals[best] / len(answers))
        found[f"best_{place}"] = float(odds[best - 1] if best else odds[0] - 1)
    return found
