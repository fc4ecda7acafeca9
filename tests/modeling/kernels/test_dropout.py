"""Cheap dropout against what dropout is."""

import pytest
import torch

from electra.modeling.kernels.dropout import Dropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.001])
def test_the_share_is_dropped_and_the_mean_stays(share: float) -> None:
    torch.manual_seed(0)
    shares = []
    for _ in range(400):
        y = Dropout(share)(torch.ones(100, 101))
        shares.append(float((y == 0).float().mean()))
        assert len(y.unique()) <= 2 and float(y.mean()) == pytest.approx(
            1.0, abs=6 * (share / (1 - share) / 1e4) ** 0.5
        )
    deviation = (max(share * (1 - share) / 1e4, 1 / 256**2) / 400) ** 0.5
    assert sum(shares) / 400 == pytest.approx(share, abs=4 * deviation)
    # No call is further from it than one of the 256 values of a byte is worth (and five deviations of chance).
    assert max(abs(share - x) for x in shares) < 1 / 256 + 5 * (share * (1 - share) / 1e4) ** 0.5


@pytest.mark.parametrize("share", [0.125, 0.5])  # whole numbers of 256ths: every call drops the same share
def test_no_element_knows_of_another(share: float) -> None:
    torch.manual_seed(0)
    y = Dropout(share)(torch.ones(1000, 1001))
    dropped = y == 0
    assert float(y[~dropped].unique()) == pytest.approx(1 / (1 - share))
    # Neighbours do not, nor do elements eight apart, which have the same place in a word of random bits.
    flat = dropped.flatten().float() - share
    for distance in (1, 2, 3, 4, 7, 8, 16, 1001):
        together = float((flat[:-distance] * flat[distance:]).mean())
        assert together == pytest.approx(0.0, abs=4 * share * (1 - share) / 1000)
    for lane in range(8):  # no part of a word is different
        assert float((flat[lane::8]).mean()) == pytest.approx(0.0, abs=4 * (share * (1 - share) * 8e-6) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_takes_the_same_way(dtype: torch.dtype) -> None:
    x = torch.randn(37, 5, dtype=dtype, requires_grad=True)
    y = Dropout(0.3)(x)
    y.backward(torch.ones_like(y))
    assert x.grad is not None and x.grad.dtype == y.dtype == dtype
    assert torch.equal(x.grad == 0, y == 0)
    assert torch.allclose(x.grad * x.detach(), y.detach(), atol=0.03 if dtype == torch.bfloat16 else 1e-6)


def test_added_to_another_tensor_it_drops_the_same() -> None:
    x, to = (torch.randn(37, 5, requires_grad=True) for _ in range(2))
    torch.manual_seed(3)
    alone = Dropout(0.3)(x)
    torch.manual_seed(3)
    added = Dropout(0.3)(x, to=to)
    assert torch.allclose(added, to + alone)
    grads = torch.autograd.grad(alone.sum(), x)[0], *torch.autograd.grad(added.sum(), (x, to))
    assert torch.equal(grads[0], grads[1]) and torch.equal(grads[2], torch.ones_like(to))
    # Under autocast what is dropped comes in bfloat16 and what it is added to does not.
    mixed = Dropout(0.3)(x.bfloat16(), to=to)
    assert mixed.dtype == torch.float32
    mixed.sum().backward()
    assert x.grad is not None and to.grad is not None and x.grad.dtype == to.grad.dtype == torch.float32
    for share, training in ((0.0, True), (0.3, False)):
        assert torch.equal(Dropout(share).train(training)(x, to=to), to + x)


def test_a_share_near_one_is_at_most_what_a_byte_can_say() -> None:
    torch.manual_seed(0)
    for _ in range(20):
        y = Dropout(0.9999)(torch.ones(100, 100))
        assert set(y.unique().tolist()) == {0.0, 256.0}


def test_the_seed_decides_and_evaluation_drops_nothing() -> None:
    dropout, x = Dropout(0.2), torch.randn(64, 3)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(dropout(x))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert dropout.eval()(x) is x and Dropout(0.0)(x) is x
