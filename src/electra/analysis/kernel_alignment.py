"""How alike two networks see the same words: linear centred kernel alignment (CKA, Kornblith et al. 2019).

CKA is HSIC(K, L) / root(HSIC(K, K) HSIC(L, L)), where K and L are the inner products of all pairs of words in
either network. The plain estimate of HSIC is too high where there are few words for many dimensions, most of all
between networks that have nothing in common, so the unbiased one is used (Song et al. 2012, "Feature selection via
dependence maximization"), with which the value may fall below 0. It is computed from sums over words, without the
words x words matrices.

Shapes: N words, D, E hidden sizes, Y, Z layers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST = 4
"""Words below which the unbiased estimate is not defined."""

States = NDArray[np.float32]


def unbiased_hsic(x_ND: NDArray[np.float64], y_NE: NDArray[np.float64]) -> float:
    """The unbiased estimate of HSIC with linear kernels, times n (n - 3)."""
    n = len(x_ND)
    assert n >= LEAST
    own_x_N, own_y_N = (x_ND**2).sum(1), (y_NE**2).sum(1)  # the diagonals, which are left out
    rows_x_N, rows_y_N = x_ND @ x_ND.sum(0) - own_x_N, y_NE @ y_NE.sum(0) - own_y_N
    both = ((x_ND.T @ y_NE) ** 2).sum() - own_x_N @ own_y_N
    all_of_both = rows_x_N.sum() * rows_y_N.sum() / ((n - 1) * (n - 2))
    return float(both + all_of_both - 2 / (n - 2) * (rows_x_N @ rows_y_N))


def alignments(first: Sequence[States], second: Sequence[States]) -> NDArray[np.float64]:
    """CKA of each layer of one network with each of another (Y, Z); 0 where all words have the same state.

    Args:
        first, second: the states (N, D) and (N, E) of the same words, layer by layer.
    """
    own_Y, own_Z = (np.array([unbiased_hsic(x, x) for x in map(_centred, network)]) for network in (first, second))
    # Each layer is centred as it comes: all of them in float64 might not fit.
    crossed_YZ = np.array([[unbiased_hsic(x, _centred(y)) for y in second] for x in map(_centred, first)])
    scale_YZ = np.sqrt(np.maximum(own_Y[:, None], 0) * np.maximum(own_Z, 0))
    return np.divide(crossed_YZ, scale_YZ, out=np.zeros_like(crossed_YZ), where=scale_YZ > 0)


def standard_error(first: States, second: States, groups_N: NDArray[np.int64]) -> float:
    """That of the CKA of two layers, by a jackknife that leaves out one group of words after the other.

    Args:
        groups_N: the group of each word, such as that of its sentence.
    """
    groups = np.unique(groups_N)
    left_out = [alignments([first[groups_N != group]], [second[groups_N != group]])[0, 0] for group in groups]
    return float(np.sqrt((len(groups) - 1) * np.var(left_out)))


def _centred(states: States) -> NDArray[np.float64]:
    """The estimate does not feel the mean, but its sums lose digits to it; nor does CKA feel the scale."""
    x = states.astype(np.float64)
    x -= x.mean(0)
    return x / max(float(np.sqrt((x**2).mean())), 1e-12)
