"""Disentangled attention: the ways of devices against the plain form."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from electra.modeling.kernels import distance_tiles
from electra.modeling.kernels.disentangled_attention import (
    PositionVectors,
    attend_by_head,
    attend_fused,
    attend_plain,
)
from electra.modeling.kernels.distance_tiles import distance_scores
from electra.modeling.kernels.dropout import DropoutMask

B, H, K = 3, 2, 4


class Inputs:
    """Random inputs of a length, with queries at all or at some positions, some of them twice."""

    def __init__(self, length: int, *, selected: int | None, terms: tuple[bool, bool] = (True, True)) -> None:
        torch.manual_seed(length)

        def leaf(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=torch.float64, requires_grad=True)

        self.packed_BLGHK = leaf(B, length, 3 if selected is None else 2, H, K)
        self.vectors = PositionVectors(*(leaf(2 * length - 1, H, K) if term else None for term in terms))
        self.query_BNHK = None if selected is None else leaf(B, selected, H, K)
        self.positions_BN = None if selected is None else torch.randint(length, (B, selected))
        if self.positions_BN is not None:
            self.positions_BN[:, -1] = self.positions_BN[:, 0]
        self.mask_B11L = (torch.arange(length) < torch.tensor([length, length // 2 + 1, length])[:, None])[
            :, None, None
        ]

    def results(self, attend: Callable[..., Tensor], *others: Any) -> list[Tensor]:
        """The output and the gradients of all inputs."""
        y_BNHK = attend(
            self.query_BNHK, self.packed_BLGHK, self.vectors, self.positions_BN, self.mask_B11L, *others
        )
        leaves = [x for x in (self.packed_BLGHK, *self.vectors, self.query_BNHK) if x is not None]
        return [y_BNHK, *torch.autograd.grad((y_BNHK**3).sum(), leaves)]


@pytest.mark.parametrize("attend", [attend_by_head, attend_fused])
@pytest.mark.parametrize("terms", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("selected", [None, 6])
@pytest.mark.parametrize("length", [1, 5, 16, 37])
def test_output_and_gradients_are_those_of_the_plain_form(
    monkeypatch: pytest.MonkeyPatch, attend: Any, terms: tuple[bool, bool], selected: int | None, length: int
) -> None:
    monkeypatch.setattr(distance_tiles, "TILE", 16)
    inputs = Inputs(length, selected=selected, terms=terms)
    for one, other in zip(inputs.results(attend, 0.0), inputs.results(attend_plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("selected", [None, 6])
def test_dropout_drops_attention_probabilities(monkeypatch: pytest.MonkeyPatch, selected: int | None) -> None:
    inputs = Inputs(37, selected=selected)
    torch.manual_seed(1)
    mask_HBNL = DropoutMask.draw((H, B, selected or 37, 37), 0.3)
    factors_HBNL = (mask_HBNL.bytes >= mask_HBNL.threshold).double() * mask_HBNL.scale
    torch.manual_seed(1)
    found = inputs.results(attend_by_head, 0.3)
    for one, other in zip(found, inputs.results(attend_plain, factors_HBNL), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_without_gradients_the_output_is_the_same() -> None:
    inputs = Inputs(37, selected=None)
    expected = inputs.results(attend_by_head, 0.0)[0]
    with torch.no_grad():
        found = attend_by_head(None, inputs.packed_BLGHK, inputs.vectors, None, inputs.mask_B11L, 0.0)
    assert torch.equal(found, expected)


def test_tiles_leave_out_distances_that_no_pair_has() -> None:
    assert distance_scores(50) == 50 * 99
    assert distance_scores(512) == 512 * (512 + 63)
