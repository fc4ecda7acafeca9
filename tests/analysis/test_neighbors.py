"""Nearest neighbors, compared with a plain loop."""

import numpy as np
import pytest

from electra.analysis.annotated_text import AnnotatedSentence
from electra.analysis.neighbors import compare_neighbors, distinct_names, nearest_neighbors, overlap
from electra.analysis.paired_states import PairedStates


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


def test_chance_is_that_among_other_words() -> None:
    """The word that occurs five times has five candidates, and each of the other words has nine."""
    sentences = [AnnotatedSentence(("the", word)) for word in ("fox", "river", "boat", "clock", "town")]
    states = np.random.default_rng(0).normal(size=(2, 2, 10, 4)).astype(np.float32)
    pair = PairedStates(sentences, np.ones(10, bool), (states[0], states[1]), (0, 0))
    actual = compare_neighbors(pair, k=2, resamples=10, seed=0)
    assert actual["chance"] == pytest.approx((5 * 2 / 5 + 5 * 2 / 9) / 10)
    assert actual["chance_of_sentences"] == pytest.approx(2 / 4)


def test_layers_of_the_same_relative_depth_are_compared() -> None:
    """Of 5 and 3 layers; the states of the second network are those of the first one's layers 0, 2 and 4."""
    sentences = [AnnotatedSentence((f"word{number}", f"other{number}")) for number in range(10)]
    states = np.random.default_rng(0).normal(size=(5, 20, 4)).astype(np.float32)
    pair = PairedStates(sentences, np.ones(20, bool), (states, states[::2]), (0, 0))
    rows = compare_neighbors(pair, k=2, resamples=10, seed=0)["words"]
    assert [row["layers"] for row in rows] == [[0, 0], [1, 0], [2, 1], [3, 2], [4, 2]]
    assert [rows[layer]["overlap"] for layer in (0, 2, 4)] == [1.0] * 3 and rows[1]["overlap"] < 0.9
