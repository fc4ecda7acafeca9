"""Nearest neighbors, compared with a plain loop."""

import numpy as np

from electra.analysis.neighbors import distinct_names, nearest_neighbors, overlap


def test_the_nearest_by_cosine_without_excluded_states() -> None:
    random = np.random.default_rng(0)
    states = random.normal(size=(50, 6)).astype(np.float32) * random.uniform(0.1, 10, (50, 1)).astype(np.float32)
    queries = np.array([3, 20])
    left_out = random.random((2, 50)) < 0.3
    left_out[[0, 1], queries] = True
    actual = nearest_neighbors(states[queries], states, left_out, k=5)
    for row, query in enumerate(queries):
        cosines = {
            place: float(
                states[query] @ states[place] / np.linalg.norm(states[query]) / np.linalg.norm(states[place])
            )
            for place in range(50)
            if not left_out[row, place]
        }
        assert actual[row].tolist() == sorted(cosines, key=lambda place: -cosines[place])[:5]


def test_the_overlap_of_two_lists() -> None:
    first, second = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([[4, 9, 1, 0], [5, 6, 7, 8]])
    assert overlap(first, second).tolist() == [0.5, 1.0]


def test_distinct_names() -> None:
    assert distinct_names([4, 0, 1, 2, 3], ["a", "b", "a", "c", "b"], count=2) == ["b", "a"]
