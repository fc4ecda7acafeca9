"""Effects of several properties on an error at once: logistic regression on categorical properties.

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
"""L2 penalty (ridge) of the effects: it keeps the effect of a level without any error finite."""
Z_95 = 1.959964
"""Half the width of a 95% interval, in standard errors."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A categorical property, and the index of each token's level."""

    name: str
    levels: Sequence[str]
    level_N: NDArray[np.int64]


@dataclass(frozen=True)
class Effect:
    """The effect of a level on the probability of an error, with all other factors held equal.

    Attributes:
        value, low, high: log-odds relative to the mean over the factor's tokens, with a 95% interval.
    """

    level: str
    tokens: int
    value: float
    low: float
    high: float


def fit_effects(
    error_N: NDArray[np.bool_], factors: Sequence[Factor], sentence_N: NDArray[np.int64]
) -> dict[str, list[Effect]] | None:
    """Estimate the effect of each level that occurs; None if all tokens are errors, or none is.

    The tokens of one sentence are not independent, so intervals come from the sandwich covariance with sentences
    as clusters (Liang and Zeger 1986).
    """
    if error_N.all() or not error_N.any():
        return None
    observed_levels = [np.unique(factor.level_N) for factor in factors]
    x_NK = np.concatenate(
        [factor.level_N[:, None] == levels for factor, levels in zip(factors, observed_levels, strict=True)], 1
    ).astype(np.float64)
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky", max_iter=200)
    model.fit(x_NK, error_N)
    covariance_KK = _clustered_covariance(model, x_NK, error_N, sentence_N)
    effects, first = {}, 0
    for factor, levels in zip(factors, observed_levels, strict=True):
        columns = slice(first, first + len(levels))
        counts = x_NK[:, columns].sum(0)
        # The contrast of each level with the mean over all tokens.
        contrast = np.eye(len(levels)) - counts / counts.sum()
        values = contrast @ model.coef_[0, columns]
        errors = np.sqrt(np.diag(contrast @ covariance_KK[columns, columns] @ contrast.T).clip(min=0))
        effects[factor.name] = [
            Effect(factor.levels[level], int(count), value, value - Z_95 * error, value + Z_95 * error)
            for level, count, value, error in zip(
                levels.tolist(), counts.tolist(), values.tolist(), errors.tolist(), strict=True
            )
        ]
        first += len(levels)
    return effects


def _clustered_covariance(
    model: Any, x_NK: NDArray[np.float64], error_N: NDArray[np.bool_], sentence_N: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The covariance of the coefficients (K, K), without the intercept."""
    with_intercept = np.concatenate([x_NK, np.ones((len(x_NK), 1))], 1)
    probability_N = expit(with_intercept @ np.concatenate([model.coef_[0], model.intercept_]))
    penalty = np.diag([PENALTY] * x_NK.shape[1] + [0.0])
    weights_N1 = (probability_N * (1 - probability_N))[:, None]
    inverse_hessian = np.linalg.inv(with_intercept.T @ (with_intercept * weights_N1) + penalty)
    _, cluster_N = np.unique(sentence_N, return_inverse=True)
    gradients = with_intercept * (error_N - probability_N)[:, None]
    cluster_sums = np.zeros((cluster_N.max() + 1, with_intercept.shape[1]))
    np.add.at(cluster_sums, cluster_N, gradients)
    correction = len(cluster_sums) / max(1, len(cluster_sums) - 1)  # for a small number of clusters
    covariance: NDArray[np.float64] = (
        correction * inverse_hessian @ (cluster_sums.T @ cluster_sums) @ inverse_hessian
    )
    return covariance[:-1, :-1]
