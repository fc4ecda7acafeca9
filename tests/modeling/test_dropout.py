"""Cheap dropout against what dropout is."""

import pytest
import torch

from electra.modeling.dropout import Dropout
from electra.modeling.encoder import Attention, EncoderConfig


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_dropped_and_the_mean_stays(share: float) -> None:
    torch.manual_seed(0)
    y = Dropout(share)(torch.ones(1000, 1001))
    dropped = y == 0
    assert float(dropped.float().mean()) == pytest.approx(share, abs=0.002)
    assert float(y[~dropped].unique()) == pytest.approx(1 / (1 - share), rel=1e-4)
    assert float(y.mean()) == pytest.approx(1.0, abs=0.01)
    # Neighbours do not know of each other, nor do elements four apart, which share a word of random bits.
    flat = dropped.flatten().float() - share
    for distance in (1, 2, 3, 4, 1001):
        together = float((flat[:-distance] * flat[distance:]).mean())
        assert together == pytest.approx(0.0, abs=4 * share * (1 - share) / 1000)
    for lane in range(4):  # no part of a word is different
        assert float((flat[lane::4]).mean()) == pytest.approx(0.0, abs=0.004)


def test_the_gradient_takes_the_same_way() -> None:
    x = torch.randn(37, 5, requires_grad=True)
    y = Dropout(0.3)(x)
    y.backward(torch.ones_like(y))
    assert x.grad is not None
    assert torch.equal(x.grad == 0, y == 0)
    assert torch.allclose(x.grad * x.detach(), y.detach())


def test_the_seed_decides_and_evaluation_drops_nothing() -> None:
    dropout, x = Dropout(0.2), torch.randn(64, 3)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(dropout(x))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert dropout.eval()(x) is x and Dropout(0.0)(x) is x


@pytest.mark.parametrize("form", ["none", "padding", "pairs"])
def test_attention_with_next_to_no_dropout_is_attention(form: str) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(hidden_size=32, heads=4, attention_dropout=1e-9, linear_initializer_range=0.3)
    attention = Attention(config)
    x_BLD = torch.randn(3, 11, 32)
    keys_BL = torch.arange(11) < torch.tensor([11, 6, 2])[:, None]
    mask = {
        "none": None,
        "padding": keys_BL[:, None, None],
        "pairs": torch.where(keys_BL[:, None, None] & torch.ones(11, 11, dtype=torch.bool).tril(), 0.0, -1e4),
    }[form]
    with_dropout = attention(x_BLD, mask)  # rounded to none, but by the plain form
    assert torch.allclose(with_dropout, attention.eval()(x_BLD, mask), atol=1e-5)
    attention.train().dropout.share = 0.5
    assert not torch.allclose(attention(x_BLD, mask), with_dropout, atol=1e-2)
