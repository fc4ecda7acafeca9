"""Rotary positions against complex numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from electra.modeling.kernels.rotary import rotary_angles, rotate, rotate_in_place

B, L, H, K, THETA = 2, 7, 3, 8, 100.0


def rotate_plainly(x_BLGHK: Tensor, positions_BL: Tensor) -> Tensor:
    """Pairs as complex numbers, times exp(i position θ^(-2 pair / K))."""
    frequencies_P = THETA ** (-torch.arange(0, K, 2, dtype=torch.float64) / K)
    angles_BLP = positions_BL[..., None] * frequencies_P
    turns = torch.polar(torch.ones_like(angles_BLP), angles_BLP)[:, :, None, None]
    pairs = torch.complex(*x_BLGHK.chunk(2, -1)) * turns
    return torch.cat([pairs.real, pairs.imag], -1)


def angles(positions: Tensor) -> list[Tensor]:
    return [x.double() for x in rotary_angles(positions, K, THETA)]


@pytest.mark.parametrize(
    "positions", [torch.arange(L), torch.tensor([[0, 1, 2, 0, 1, 2, 3], [5, 4, 3, 9, 0, 1, 1]])]
)
def test_queries_and_keys_are_rotated_by_their_position(positions: Tensor) -> None:
    x_BLGHK = torch.randn(B, L, 2, H, K, dtype=torch.float64, requires_grad=True)
    y_BLGHK = rotate(x_BLGHK, *angles(positions))
    expected = rotate_plainly(x_BLGHK, positions.expand(B, L))
    torch.testing.assert_close(y_BLGHK, expected, rtol=0, atol=1e-6)  # angles are in float32
    assert torch.autograd.gradcheck(lambda x: rotate(x, *angles(positions)), x_BLGHK)


@pytest.mark.parametrize("rows", [True, False], ids=["rows", "tokens"])
def test_in_place_rotates_queries_and_keys_and_leaves_values(rows: bool) -> None:
    torch.manual_seed(0)
    shape = (B, L, 3 * H * K) if rows else (L, 3 * H * K)
    product = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    cos_sin = angles(torch.arange(L))
    given = product.clone()
    packed = rotate_in_place(given, H, *cos_sin)
    assert packed.data_ptr() == given.data_ptr()  # no copy
    plain = product.unflatten(-1, (3, H, K))
    expected = torch.cat([rotate(plain.narrow(-3, 0, 2), *cos_sin), plain.narrow(-3, 2, 1)], -3)
    assert torch.equal(packed, expected)
    weights = torch.randn_like(packed)
    gradients = [torch.autograd.grad((y * weights).sum(), product)[0] for y in (packed, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(lambda x: rotate_in_place(x.clone(), H, *cos_sin), product)


def test_the_score_of_two_positions_depends_on_their_distance() -> None:
    query_K, key_K = torch.randn(2, K, dtype=torch.float64)
    rotated = rotate(torch.stack([query_K, key_K]).expand(1, L, 2, K)[:, :, :, None], *angles(torch.arange(L)))
    scores_LL = rotated[0, :, 0, 0] @ rotated[0, :, 1, 0].T
    for distance in range(-L + 1, L):
        diagonal = scores_LL.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-5)


@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_it_is_the_same(in_place: bool) -> None:
    torch.manual_seed(0)
    product_BLX = torch.randn(B, L, 3 * H * K, dtype=torch.float64, requires_grad=True)
    cos_sin = angles(torch.arange(L))

    def compute(product_BLX: Tensor) -> Tensor:
        if in_place:
            return rotate_in_place(product_BLX * 1.0, H, *cos_sin)
        return rotate(product_BLX.unflatten(-1, (3, H, K)), *cos_sin)

    results: list[Any] = []
    for function in (compute, torch.compile(compute, backend="aot_eager", fullgraph=True)):
        y = function(product_BLX)
        results.append((y, torch.autograd.grad((y**2 * torch.arange(K)).sum(), product_BLX)[0]))
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_in_half_precision_the_angles_are_still_exact() -> None:
    x_BLGHK = torch.randn(1, 1, 2, H, K)
    cos_sin = rotary_angles(torch.tensor([8191]), K, 160_000.0)
    exact = rotate(x_BLGHK, *cos_sin)
    rough = rotate(x_BLGHK.bfloat16(), *cos_sin)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), exact, rtol=0, atol=0.06)
