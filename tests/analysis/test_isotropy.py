"""Figures of spaces that are known, and IsoScore by the steps of its paper."""

import numpy as np
import pytest
from numpy.typing import NDArray

from electra.analysis.isotropy import Isotropy


def states(scales: list[float], *, words: int = 4000, mean: float = 0.0, seed: int = 0) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).normal(size=(words, len(scales)))
    return (drawn * scales + mean).astype(np.float32)


def iso_score(x: NDArray[np.float32]) -> float:
    """Rudman et al. 2022, algorithm 1: variances along the principal axes, their distance from all being alike."""
    n = x.shape[1]
    variances = np.linalg.eigvalsh(np.cov(x.T))
    normed = np.sqrt(n) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(normed - 1) / np.sqrt(2 * (n - np.sqrt(n)))
    share = (n - defect**2 * (n - np.sqrt(n))) ** 2 / n**2
    return float((n * share - 1) / (n - 1))


@pytest.mark.parametrize("scales", [[1.0, 1.0, 1.0], [5.0, 1.0, 0.2, 0.1], [3.0] + [0.5] * 20])
def test_iso_score_is_that_of_the_paper(scales: list[float]) -> None:
    x = states(scales, mean=2.0)
    assert Isotropy.of(x).score == pytest.approx(iso_score(x), rel=1e-6)


def test_the_mean_cosine_is_that_of_all_pairs() -> None:
    x = states([1.0, 2.0, 0.5], words=30, mean=1.0)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    pairs = [float(units[a] @ units[b]) for a in range(30) for b in range(30) if a != b]
    found = Isotropy.of(x)
    assert found.cosine == pytest.approx(np.mean(pairs), rel=1e-5)
    assert found.norm == pytest.approx(np.linalg.norm(x, axis=1).mean(), rel=1e-6)


def test_spaces_that_are_known() -> None:
    ball = Isotropy.of(states([1.0] * 10))
    assert abs(ball.cosine) < 0.01 and ball.participation > 9.8 and ball.effective_rank > 9.9 and ball.score > 0.97
    cone = Isotropy.of(states([1.0] * 10, mean=3.0))  # where the mean is does not matter to the covariance
    assert cone.cosine > 0.85 and cone.participation == pytest.approx(ball.participation, rel=1e-3)
    two = Isotropy.of(states([1.0, 1.0] + [0.0] * 8))
    assert two.participation == pytest.approx(2, rel=0.01) and two.effective_rank == pytest.approx(2, rel=0.01)
    assert Isotropy.of(np.ones((5, 3), np.float32)).score == 0
