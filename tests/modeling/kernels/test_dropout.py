"""Cheap dropout: rate, independence, gradients, seeds."""

import pytest
import torch

from electra.modeling.kernels.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.001])
def test_elements_are_dropped_with_probability_p_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    rates = []
    for _ in range(400):
        y = Dropout(p)(torch.ones(100, 101))
        rates.append(float((y == 0).float().mean()))
        assert len(y.unique()) <= 2 and float(y.mean()) == pytest.approx(1.0, abs=6 * (p / (1 - p) / 1e4) ** 0.5)
    deviation = (max(p * (1 - p) / 1e4, 1 / 256**2) / 400) ** 0.5
    assert sum(rates) / 400 == pytest.approx(p, abs=4 * deviation)
    # The rate of a call differs from p by less than 1/256, plus five standard deviations.
    assert max(abs(p - rate) for rate in rates) < 1 / 256 + 5 * (p * (1 - p) / 1e4) ** 0.5


@pytest.mark.parametrize("p", [0.125, 0.5])  # multiples of 1/256: every call has the same rate
def test_elements_are_dropped_independently(p: float) -> None:
    torch.manual_seed(0)
    y = Dropout(p)(torch.ones(1000, 1001))
    dropped = y == 0
    assert float(y[~dropped].unique()) == pytest.approx(1 / (1 - p))
    # Neighbors, and elements that have the same place in a word of 8 random bytes.
    flat = dropped.flatten().float() - p
    for distance in (1, 2, 3, 4, 7, 8, 16, 1001):
        covariance = float((flat[:-distance] * flat[distance:]).mean())
        assert covariance == pytest.approx(0.0, abs=4 * p * (1 - p) / 1000)
    for byte in range(8):  # every byte of a word has the same rate
        assert float((flat[byte::8]).mean()) == pytest.approx(0.0, abs=4 * (p * (1 - p) * 8e-6) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_has_the_same_mask(dtype: torch.dtype) -> None:
    x = torch.randn(37, 5, dtype=dtype, requires_grad=True)
    y = Dropout(0.3)(x)
    y.backward(torch.ones_like(y))
    assert x.grad is not None and x.grad.dtype == y.dtype == dtype
    assert torch.equal(x.grad == 0, y == 0)
    assert torch.allclose(x.grad * x.detach(), y.detach(), atol=0.03 if dtype == torch.bfloat16 else 1e-6)


def test_a_residual_is_added() -> None:
    x, residual = (torch.randn(37, 5, requires_grad=True) for _ in range(2))
    torch.manual_seed(3)
    dropped = Dropout(0.3)(x)
    torch.manual_seed(3)
    added = Dropout(0.3)(x, residual=residual)
    assert torch.allclose(added, residual + dropped)
    grads = torch.autograd.grad(dropped.sum(), x)[0], *torch.autograd.grad(added.sum(), (x, residual))
    assert torch.equal(grads[0], grads[1]) and torch.equal(grads[2], torch.ones_like(residual))
    # Under autocast x is bfloat16 and the residual is float32.
    mixed = Dropout(0.3)(x.bfloat16(), residual=residual)
    assert mixed.dtype == torch.float32
    mixed.sum().backward()
    assert x.grad is not None and residual.grad is not None
    assert x.grad.dtype == residual.grad.dtype == torch.float32
    for p, training in ((0.0, True), (0.3, False)):
        assert torch.equal(Dropout(p).train(training)(x, residual=residual), residual + x)


def test_p_is_at_most_255_of_256() -> None:
    torch.manual_seed(0)
    for _ in range(20):
        y = Dropout(0.9999)(torch.ones(100, 100))
        assert set(y.unique().tolist()) == {0.0, 256.0}


def test_the_seed_decides_the_mask_and_evaluation_drops_nothing() -> None:
    dropout, x = Dropout(0.2), torch.randn(64, 3)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(dropout(x))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert dropout.eval()(x) is x and Dropout(0.0)(x) is x
