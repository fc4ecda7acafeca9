"""The fast attention with dropout against the plain form and PyTorch's kernel."""

import pytest
import torch
from torch import Tensor

from electra.modeling.encoders.bert import Attention
from electra.modeling.kernels import attention as attention_file
from electra.modeling.kernels.attention import attend_by_head, attend_plain
from electra.modeling.kernels.dropout import DropoutMask

B, L, H, K = 3, 11, 4, 8
KEYS_BL = torch.arange(L) < torch.tensor([11, 6, 2])[:, None]


def mask(form: str, queries: int) -> Tensor | None:
    pairs = KEYS_BL[:, None, None] & torch.ones(queries, L, dtype=torch.bool).tril(L - queries)
    return {"none": None, "padding": KEYS_BL[:, None, None], "pairs": torch.where(pairs, 0.0, -1e4)}[form]


@pytest.mark.parametrize("queries", [None, 4])
@pytest.mark.parametrize("form", ["none", "padding", "pairs"])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_values_and_gradients_equal_the_plain_form(
    form: str, queries: int | None, p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    dropout_mask = DropoutMask.draw((H, B, queries or L, L), p)  # keeps all elements if p is 0
    monkeypatch.setattr(attention_file.DropoutMask, "draw", lambda shape, p: dropout_mask)
    factors_HBNL = dropout_mask.write(torch.empty(dropout_mask.bytes.shape)) * dropout_mask.scale
    packed_BLGHK = torch.randn(B, L, 2 if queries else 3, H, K, requires_grad=True)
    query_BNHK = torch.randn(B, queries, H, K, requires_grad=True) if queries else None
    inputs = [x for x in (query_BNHK, packed_BLGHK) if x is not None]
    mask_B11L, weights_BNHK = mask(form, queries or L), torch.randn(B, queries or L, H, K)
    results = []
    for y_BNHK in (
        attend_by_head(query_BNHK, packed_BLGHK, mask_B11L, p),
        attend_plain(query_BNHK, packed_BLGHK, mask_B11L, factors_HBNL),
    ):
        results.append([y_BNHK, *torch.autograd.grad((y_BNHK * weights_BNHK).sum(), inputs)])
    for actual, plain in zip(*results, strict=True):
        assert torch.allclose(actual, plain, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("form", ["none", "padding", "pairs"])
@pytest.mark.parametrize("queries", [None, 4])
def test_tiny_dropout_equals_no_dropout(form: str, queries: int | None) -> None:
    torch.manual_seed(0)
    attention = Attention(32, 4, dropout=1e-9)
    torch.nn.init.normal_(attention.query_key_value.weight, std=0.3)
    x_BLD = torch.randn(B, L, 32)
    query_states_BND = None if queries is None else x_BLD[:, :queries]
    mask_B11L = mask(form, queries or L)
    with_dropout = attention(x_BLD, mask_B11L, query_states_BND)  # rounded to 0, but uses the kernel with dropout
    assert torch.allclose(with_dropout, attention.eval()(x_BLD, mask_B11L, query_states_BND), atol=1e-5)
    attention.train().dropout.p = 0.5
    assert not torch.allclose(attention(x_BLD, mask_B11L, query_states_BND), with_dropout, atol=1e-2)


@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_under_bfloat16_autocast(dropout: float) -> None:
    torch.manual_seed(0)
    attention = Attention(32, 4, dropout=dropout)
    x_BLD = torch.randn(B, L, 32, requires_grad=True)
    exact = attention(x_BLD, mask("padding", L))
    with torch.autocast("cpu", torch.bfloat16):
        rough = attention(x_BLD, mask("padding", L))
    assert rough.dtype == torch.bfloat16 and torch.allclose(exact, rough.float(), atol=0.02)
    grads = [torch.autograd.grad(y.float().square().sum(), x_BLD)[0] for y in (exact, rough)]
    assert torch.allclose(*grads, atol=0.03)


def test_without_gradients_the_output_needs_none() -> None:
    attention = Attention(32, 4, dropout=0.5)
    with torch.no_grad():
        assert not attention(torch.randn(B, L, 32), None).requires_grad
