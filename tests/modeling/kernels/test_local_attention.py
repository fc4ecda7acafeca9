"""Attention in blocks against a mask of all pairs."""

import pytest
import torch
from torch import Tensor

from electra.modeling.kernels.attention import MASKED_SCORE, attend_plain
from electra.modeling.kernels.local_attention import attend_locally, splits_into_windows, within_window

B, H, K = 2, 2, 4


def packed(length: int) -> Tensor:
    torch.manual_seed(length)
    return torch.randn(B, length, 3, H, K, dtype=torch.float64, requires_grad=True)


def padding(length: int) -> Tensor:
    """True at tokens (B, 1, 1, L): a full row and a short one."""
    return (torch.arange(length) < torch.tensor([[length], [length // 3]]))[:, None, None]


def attend_slowly(packed_BLGHK: Tensor, mask_B11L: Tensor | None, reach: int) -> Tensor:
    """One query at a time."""
    rows = []
    for row in range(B):
        outputs = []
        for query in range(packed_BLGHK.shape[1]):
            keys = [
                key
                for key in range(packed_BLGHK.shape[1])
                if abs(query - key) <= reach and (mask_B11L is None or bool(mask_B11L[row, 0, 0, key]))
            ] or [query]
            query_HK, key_nHK, value_nHK = (
                packed_BLGHK[row, query, 0], packed_BLGHK[row, keys, 1], packed_BLGHK[row, keys, 2],
            )  # fmt: skip
            weights_nH = ((query_HK * key_nHK).sum(-1) / K**0.5).softmax(0)
            outputs.append((weights_nH[..., None] * value_nHK).sum(0))
        rows.append(torch.stack(outputs))
    return torch.stack(rows)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("length", "reach"), [(1, 2), (2, 2), (7, 2), (8, 2), (13, 4), (16, 4), (9, 1), (5, 8)])
def test_outputs_and_gradients_are_those_of_one_query_at_a_time(length: int, reach: int, padded: bool) -> None:
    packed_BLGHK, mask_B11L = packed(length), padding(length) if padded else None
    tokens = torch.ones(B, length) if mask_B11L is None else mask_B11L[:, 0, 0].double()
    results = []
    for y_BLHK in (
        attend_locally(packed_BLGHK, mask_B11L, reach, 0.0), attend_slowly(packed_BLGHK, mask_B11L, reach),
    ):  # fmt: skip
        seen = y_BLHK * tokens[..., None, None]
        results.append((seen, torch.autograd.grad((seen**3).sum(), packed_BLGHK)[0]))
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_gradients_are_those_of_small_differences() -> None:
    mask_B11L = padding(9)
    assert torch.autograd.gradcheck(lambda x: attend_locally(x, mask_B11L, 2, 0.0), packed(9))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_of_padding_are_finite(dtype: torch.dtype) -> None:
    packed_BLGHK, mask_B11L = packed(13).to(dtype).detach().requires_grad_(), torch.zeros(B, 1, 1, 13).bool()
    y_BLHK = attend_locally(packed_BLGHK, mask_B11L, 4, 0.0)
    (gradient,) = torch.autograd.grad(y_BLHK.square().sum(), packed_BLGHK)
    assert y_BLHK.isfinite().all() and gradient.isfinite().all()
    dense = attend_plain(
        None,
        packed_BLGHK,
        within_window(mask_B11L, 13, 4, device=mask_B11L.device),
        torch.ones(H, 1, 1, 1, dtype=packed_BLGHK.dtype),
    )
    assert dense.isfinite().all()


@pytest.mark.parametrize("padded", [False, True])
def test_the_mask_of_all_pairs_is_the_same(padded: bool) -> None:
    packed_BLGHK, mask_B11L = packed(13), padding(13) if padded else None
    mask = within_window(mask_B11L, 13, 4, device=packed_BLGHK.device)
    dense = attend_plain(None, packed_BLGHK, mask, torch.ones(H, 1, 1, 1, dtype=packed_BLGHK.dtype))
    at_tokens = torch.ones(B, 13).bool() if mask_B11L is None else mask_B11L[:, 0, 0]
    expected = attend_locally(packed_BLGHK, mask_B11L, 4, 0.0)
    torch.testing.assert_close(dense[at_tokens], expected[at_tokens], rtol=0, atol=1e-12)


def test_numbers_for_pairs_stay_within_the_window_and_hide_all_others() -> None:
    bias = torch.randn(B, 1, 9, 9)
    mask = within_window(bias, 9, 2, device=bias.device)
    near = (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 2
    assert torch.equal(mask[..., near], bias[..., near]) and bool((mask[..., ~near] == MASKED_SCORE).all())


def test_rows_are_split_where_windows_are_fewer_scores_than_pairs() -> None:
    assert not splits_into_windows(12, 4) and splits_into_windows(13, 4)
