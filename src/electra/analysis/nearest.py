"""Which words and sentences a network takes for alike, and how far two networks agree in that.

Likeness is the cosine of states. A word's neighbours are other words: the same word elsewhere is left out, or
every network would agree with every other.

Shapes: N states, Q queries, D hidden size, k neighbours.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def neighbours(
    queries_QD: NDArray[np.float32], states_ND: NDArray[np.float32], left_out_QN: NDArray[np.bool_], *, k: int
) -> Ints:
    """The places (Q, k) of the nearest states, the nearest first.

    Args:
        left_out_QN: which may not be named for a query. At least k have to be left.
    """
    likeness_QN = _units(queries_QD) @ _units(states_ND).T
    likeness_QN[left_out_QN] = -np.inf
    found = np.argpartition(-likeness_QN, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(likeness_QN, found, 1), axis=1, kind="stable")
    return np.take_along_axis(found, order, 1)


def common(first_Qk: Ints, second_Qk: Ints) -> NDArray[np.float64]:
    """The share of neighbours that both have (Q,)."""
    same_Qkk = first_Qk[:, :, None] == second_Qk[:, None]
    return np.asarray(same_Qkk.any(2).mean(1), np.float64)


def distinct(places: Sequence[int], names: Sequence[str], *, count: int) -> list[str]:
    """The first names among the places, each once."""
    return list(dict.fromkeys(names[place] for place in places))[:count]


def _units(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), np.float32)
