"""Geometry of hidden states: the similarity of layers, and how evenly the states of a layer fill their space.

The similarity is linear centered kernel alignment (CKA, Kornblith et al. 2019): HSIC(K, L) / sqrt(HSIC(K, K)
HSIC(L, L)), where K and L are the inner products of all pairs of words in each network. The plain estimate of HSIC
is too high for few words and many dimensions, most of all between unrelated networks. So the unbiased estimate is
used (Song et al. 2012, "Feature selection via dependence maximization"), with which CKA may be negative. It is
computed from sums over words, without the words x words matrices.

Shapes: N words, D, E hidden sizes, Y, Z layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_WORDS = 4
"""The unbiased estimate is undefined for fewer words."""

States = NDArray[np.float32]


def unbiased_hsic(x_ND: NDArray[np.float64], y_NE: NDArray[np.float64]) -> float:
    """The unbiased estimate of HSIC with linear kernels, times n (n - 3)."""
    n = len(x_ND)
    assert n >= MIN_WORDS
    diagonal_x_N, diagonal_y_N = (x_ND**2).sum(1), (y_NE**2).sum(1)  # excluded from both kernels
    rows_x_N, rows_y_N = x_ND @ x_ND.sum(0) - diagonal_x_N, y_NE @ y_NE.sum(0) - diagonal_y_N
    trace = ((x_ND.T @ y_NE) ** 2).sum() - diagonal_x_N @ diagonal_y_N
    product_of_sums = rows_x_N.sum() * rows_y_N.sum() / ((n - 1) * (n - 2))
    return float(trace + product_of_sums - 2 / (n - 2) * (rows_x_N @ rows_y_N))


def linear_cka(first: Sequence[States], second: Sequence[States]) -> NDArray[np.float64]:
    """CKA of each layer of one network with each layer of another (Y, Z); 0 if all words have the same state.

    Args:
        first, second: the states (N, D) and (N, E) of the same words, layer by layer.
    """
    own_Y, own_Z = (np.array([unbiased_hsic(x, x) for x in map(_center, network)]) for network in (first, second))
    # Each layer is centered when it is needed: all of them in float64 might not fit into memory.
    cross_YZ = np.array([[unbiased_hsic(x, _center(y)) for y in second] for x in map(_center, first)])
    scale_YZ = np.sqrt(np.maximum(own_Y[:, None], 0) * np.maximum(own_Z, 0))
    return np.divide(cross_YZ, scale_YZ, out=np.zeros_like(cross_YZ), where=scale_YZ > 0)


def jackknife_standard_error(first: States, second: States, groups_N: NDArray[np.int64]) -> float:
    """The standard error of the CKA of two layers, by a jackknife that leaves out one group of words at a time.

    Args:
        groups_N: the group of each word, such as that of its sentence.
    """
    groups = np.unique(groups_N)
    estimates = [linear_cka([first[groups_N != group]], [second[groups_N != group]])[0, 0] for group in groups]
    return float(np.sqrt((len(groups) - 1) * np.var(estimates)))


def _center(states: States) -> NDArray[np.float64]:
    """Center and scale states. Neither changes CKA, but the sums would lose digits to a large mean."""
    x = states.astype(np.float64)
    x -= x.mean(0)
    return x / max(float(np.sqrt((x**2).mean())), 1e-12)


@dataclass(frozen=True)
class Isotropy:
    """How evenly the states of one layer fill their space.

    Attributes:
        cosine: the mean cosine over all pairs of words (Ethayarajh 2019, section 4.1): 0 if they point in all
            directions.
        participation: the participation ratio, (sum of the covariance's eigenvalues)^2 / sum of their squares: the
            number of equally used dimensions that would give this value.
        effective_rank: e to the entropy of the normalized eigenvalues (Roy and Vetterli 2007).
        score: IsoScore (Rudman et al. 2022), from 0 (one dimension) to 1 (all dimensions equally). Its steps
            amount to (participation - 1) / (D - 1).
        norm: the mean norm of a state.
    """

    cosine: float
    participation: float
    effective_rank: float
    score: float
    norm: float

    @classmethod
    def measure(cls, states_ND: States) -> "Isotropy":
        """Measure the states (N, D) of two words or more."""
        x_ND = states_ND.astype(np.float64)
        N, D = x_ND.shape
        norms_N = np.linalg.norm(x_ND, axis=1)
        units_ND = x_ND / np.maximum(norms_N, 1e-12)[:, None]
        cosine = ((units_ND.sum(0) ** 2).sum() - (norms_N > 0).sum()) / (N * (N - 1))
        eigenvalues_D = np.maximum(np.linalg.eigvalsh(np.cov(x_ND, rowvar=False).reshape(D, D)), 0)
        if not eigenvalues_D.sum() > 0:  # all words have the same state
            return cls(float(cosine), 1.0, 1.0, 0.0, float(norms_N.mean()))
        normalized_D = eigenvalues_D / eigenvalues_D.sum()
        participation = 1 / float((normalized_D**2).sum())
        positive = normalized_D[normalized_D > 0]
        return cls(
            float(cosine), participation, float(np.exp(-(positive * np.log(positive)).sum())),
            (participation - 1) / max(D - 1, 1), float(norms_N.mean()),
        )  # fmt: skip
