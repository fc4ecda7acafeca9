"""Effects of several properties on an error at once: a logistic regression whose properties are all categories.

Shapes: N tokens, F factors, K levels of all factors together, S sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

PENALTY = 1.0
"""Of the squared effects (ridge): so a level without an error has a finite one."""
SURE = 1.959964
"""Standard errors on each side of a 95 % interval."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A property, and the number of each token's level."""

    name: str
    levels: Sequence[str]
    level_N: NDArray[np.int64]


@dataclass(frozen=True)
class Effect:
    """How much likelier an error is at a level than on average over the factor's tokens, all other factors equal.

    Attributes:
        value, low, high: in log-odds, with a 95 % interval.
    """

    level: str
    tokens: int
    value: float
    low: float
    high: float


def effects(
    error_N: NDArray[np.bool_], factors: Sequence[Factor], sentence_N: NDArray[np.int64]
) -> dict[str, list[Effect]] | None:
    """The effect of each level that occurs; None where there are not both errors and none.

    Intervals are from the sandwich covariance with sentences as clusters (Liang and Zeger 1986), since tokens of
    one sentence are not independent.
    """
    if error_N.all() or not error_N.any():
        return None
    seen = [np.unique(factor.level_N) for factor in factors]
    x_NK = np.concatenate(
        [factor.level_N[:, None] == levels for factor, levels in zip(factors, seen, strict=True)], 1
    ).astype(np.float64)
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky", max_iter=200)
    model.fit(x_NK, error_N)
    covariance_KK = _covariance(model, x_NK, error_N, sentence_N)
    found, first = {}, 0
    for factor, levels in zip(factors, seen, strict=True):
        here = slice(first, first + len(levels))
        counts = x_NK[:, here].sum(0)
        # Each level less the mean of all tokens' levels.
        contrast = np.eye(len(levels)) - counts / counts.sum()
        values = contrast @ model.coef_[0, here]
        errors = np.sqrt(np.diag(contrast @ covariance_KK[here, here] @ contrast.T).clip(min=0))
        found[factor.name] = [
            Effect(factor.levels[level], int(count), value, value - SURE * error, value + SURE * error)
            for level, count, value, error in zip(
                levels.tolist(), counts.tolist(), values.tolist(), errors.tolist(), strict=True
            )
        ]
        first += len(levels)
    return found


def _covariance(
    model: Any, x_NK: NDArray[np.float64], error_N: NDArray[np.bool_], sentence_N: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Of the effects (K, K)."""
    with_one = np.concatenate([x_NK, np.ones((len(x_NK), 1))], 1)
    chance_N = expit(with_one @ np.concatenate([model.coef_[0], model.intercept_]))
    penalty = np.diag([PENALTY] * x_NK.shape[1] + [0.0])
    inverse = np.linalg.inv(with_one.T @ (with_one * (chance_N * (1 - chance_N))[:, None]) + penalty)
    _, cluster_N = np.unique(sentence_N, return_inverse=True)
    scores = with_one * (error_N - chance_N)[:, None]
    sums = np.zeros((cluster_N.max() + 1, with_one.shape[1]))
    np.add.at(sums, cluster_N, scores)
    few = len(sums) / max(1, len(sums) - 1)
    found: NDArray[np.float64] = few * inverse @ (sums.T @ sums) @ inverse
    return found[:-1, :-1]
