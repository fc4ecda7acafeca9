"""CKA from sums equals CKA from the matrices of all pairs; isotropy equals the definitions."""

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from electra.analysis.geometry import Isotropy, jackknife_standard_error, linear_cka, unbiased_hsic


def states(words: int, size: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(1.0, 1.0, (words, size)).astype(np.float32)


def by_quadruples(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The U-statistic itself: the mean over all ordered quadruples of different words of
    K_ij (L_ij + L_kl - 2 L_ik), times n (n - 3) for the scale of `unbiased_hsic`."""
    k, other, n = x @ x.T, y @ y.T, len(x)
    actual = [k[a, b] * (other[a, b] + other[c, d] - 2 * other[a, c]) for a, b, c, d in permutations(range(n), 4)]
    return float(np.mean(actual)) * n * (n - 3)


def test_hsic_is_the_u_statistic() -> None:
    x, y = states(7, 3, 0).astype(float), states(7, 5, 1).astype(float)
    assert unbiased_hsic(x, y) == pytest.approx(by_quadruples(x, y), rel=1e-9)


def by_matrices(x: NDArray[np.float32], y: NDArray[np.float32]) -> float:
    """Song et al. 2012, equation 5, with the n x n matrices."""

    def hsic(k: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        n, one = len(k), np.ones(len(k))
        k, other = k * (1 - np.eye(n)), other * (1 - np.eye(n))
        sums = (one @ k @ one) * (one @ other @ one) / ((n - 1) * (n - 2))
        return float(np.trace(k @ other) + sums - 2 / (n - 2) * (one @ k @ other @ one)) / (n * (n - 3))

    k, other = (z.astype(float) @ z.astype(float).T for z in (x, y))
    return hsic(k, other) / (hsic(k, k) * hsic(other, other)) ** 0.5


def test_cka_of_all_pairs_of_layers() -> None:
    first = [states(40, size, seed) for seed, size in enumerate((4, 9))]
    second = [first[0][:, :3] * 5 + 100, states(40, 60, 9), first[1] ** 2]
    expected = [[by_matrices(x, y) for y in second] for x in first]
    np.testing.assert_allclose(linear_cka(first, second), expected, rtol=1e-5, atol=1e-8)


def test_cka_is_invariant_to_rotation_and_scale_and_0_for_unrelated_states() -> None:
    x = states(60, 100, 0)  # more dimensions than words: the plain estimate would be .6
    turned = (x @ np.linalg.qr(states(100, 100, 5))[0]) * 7
    assert linear_cka([x], [turned])[0, 0] == pytest.approx(1, abs=1e-5)
    strangers = [linear_cka([states(60, 100, seed)], [states(60, 100, seed + 50)])[0, 0] for seed in range(20)]
    assert abs(np.mean(strangers)) < 0.02 and min(strangers) < 0


def test_a_large_mean_costs_no_precision() -> None:
    x = states(60, 10, 0)
    assert linear_cka([x], [x + 10_000])[0, 0] == pytest.approx(1, abs=1e-5)
    assert linear_cka([x], [states(60, 10, 1) + 10_000]) == pytest.approx(
        linear_cka([x], [states(60, 10, 1)]), abs=1e-3
    )


def test_a_constant_layer_has_cka_0() -> None:
    assert linear_cka([np.ones((9, 4), np.float32)], [states(9, 4, 0)]).tolist() == [[0.0]]


def test_the_standard_error_is_the_deviation_over_texts() -> None:
    """The standard deviation over many samples of one distribution."""
    truth = states(8, 6, 0)

    def sample(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        x = states(200, 8, seed + 1)
        return x, x @ truth + 2 * states(200, 6, seed + 1000)

    actual = [linear_cka(*([side] for side in sample(seed)))[0, 0] for seed in range(60)]
    groups = np.arange(200) % 10
    said = [jackknife_standard_error(*sample(seed), groups) for seed in range(10)]
    assert 0.6 < np.mean(said) / np.std(actual) < 1.6


def scaled_states(
    scales: list[float], *, words: int = 4000, mean: float = 0.0, seed: int = 0
) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).normal(size=(words, len(scales)))
    return (drawn * scales + mean).astype(np.float32)


def iso_score(x: NDArray[np.float32]) -> float:
    """Rudman et al. 2022, algorithm 1: variances along the principal axes, and their distance from being all
    equal."""
    n = x.shape[1]
    variances = np.linalg.eigvalsh(np.cov(x.T))
    normed = np.sqrt(n) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(normed - 1) / np.sqrt(2 * (n - np.sqrt(n)))
    share = (n - defect**2 * (n - np.sqrt(n))) ** 2 / n**2
    return float((n * share - 1) / (n - 1))


@pytest.mark.parametrize("scales", [[1.0, 1.0, 1.0], [5.0, 1.0, 0.2, 0.1], [3.0] + [0.5] * 20])
def test_iso_score_equals_the_algorithm_of_the_paper(scales: list[float]) -> None:
    x = scaled_states(scales, mean=2.0)
    assert Isotropy.measure(x).score == pytest.approx(iso_score(x), rel=1e-6)


def test_the_mean_cosine_is_over_all_pairs() -> None:
    x = scaled_states([1.0, 2.0, 0.5], words=30, mean=1.0)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    pairs = [float(units[a] @ units[b]) for a in range(30) for b in range(30) if a != b]
    actual = Isotropy.measure(x)
    assert actual.cosine == pytest.approx(np.mean(pairs), rel=1e-5)
    assert actual.norm == pytest.approx(np.linalg.norm(x, axis=1).mean(), rel=1e-6)


def test_isotropy_of_known_distributions() -> None:
    ball = Isotropy.measure(scaled_states([1.0] * 10))
    assert abs(ball.cosine) < 0.01 and ball.participation > 9.8 and ball.effective_rank > 9.9 and ball.score > 0.97
    cone = Isotropy.measure(scaled_states([1.0] * 10, mean=3.0))  # the mean does not matter to the covariance
    assert cone.cosine > 0.85 and cone.participation == pytest.approx(ball.participation, rel=1e-3)
    two = Isotropy.measure(scaled_states([1.0, 1.0] + [0.0] * 8))
    assert two.participation == pytest.approx(2, rel=0.01) and two.effective_rank == pytest.approx(2, rel=0.01)
    assert Isotropy.measure(np.ones((5, 3), np.float32)).score == 0
