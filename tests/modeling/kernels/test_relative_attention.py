"""Relative attention: the way that is written for speed and PyTorch's kernel, against the plain form."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from electra.modeling.kernels import relative_attention
from electra.modeling.kernels.dropout import DropoutMask
from electra.modeling.kernels.relative_attention import attend_by_head, attend_fused, attend_plain
from electra.modeling.kernels.relative_mask import MaskSpec, QueryMask, distances, sinusoids

B, L, M, H, K = 3, 13, 6, 2, 4
SEGMENT_IDS_BL = torch.arange(L).ge(7).long().expand(B, -1)
TOKENS_BL = torch.arange(L) < torch.tensor([13, 9, 5])[:, None]
HELD_BM = torch.arange(M) >= torch.tensor([0, 3, 6])[:, None]
CHOSEN_BN = torch.tensor([[1, 2], [3, 8], [4, 0]])
POSITIONS = {"all": None, "some": CHOSEN_BN, "none": CHOSEN_BN[:, :0]}


def sight(*, left: bool, masked: bool, positions: str, targets: bool) -> QueryMask:
    random = torch.Generator().manual_seed(0)
    ids_BL = torch.zeros(B, L, dtype=torch.long)
    allowed = MaskSpec(ids_BL, slots=M, left=left)
    if masked:
        permutation_BLL = torch.rand(B, L, L, generator=random) < 0.5
        allowed = MaskSpec(ids_BL, SEGMENT_IDS_BL, TOKENS_BL, HELD_BM, M, permutation_BLL, left=left)
    return allowed.query_mask(POSITIONS[positions], CHOSEN_BN if targets else None)


def tensors(given: QueryMask) -> Iterator[Tensor]:
    """Queries, keys and values, distances, both biases and scores of segments."""
    X = given.places_BX.shape[1]
    for shape in ((B, X, H, K), (B, M + L, 2, H, K), (given.distances, H, K), (H, K), (H, K), (B, X, H)):
        yield torch.randn(shape, dtype=torch.float64, requires_grad=True)


class Factors:
    """Stands in for `DropoutMask`: fixed factors for the tiles of one pass, and for all its queries and keys."""

    def __init__(self, given: QueryMask) -> None:
        torch.manual_seed(1)
        self.given, self.kept = given, DropoutMask.draw((H, B, given.places_BX.shape[1], given.keys), 0.3)
        self.tiles = iter(relative_attention._Tile.all(given, B))

    def draw(self, shape: tuple[int, ...], share: float) -> DropoutMask:
        tile = next(self.tiles)
        bytes = self.kept.bytes[:, :, tile.rows, : tile.keys]
        assert bytes.shape == shape
        return DropoutMask(bytes.contiguous(), self.kept.threshold)

    @property
    def all(self) -> Tensor:
        return self.kept.write(torch.empty(self.kept.bytes.shape, dtype=torch.float64)) * self.kept.scale


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("positions", "targets"), [("all", 0), ("all", 1), ("some", 0), ("some", 1), ("none", 1)])
@pytest.mark.parametrize("way", ["by head", "by head, dropout", "fused"])
def test_values_and_gradients_equal_the_plain_form(
    left: bool, masked: bool, positions: str, targets: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relative_attention, "QUERIES", 5)  # 13 are 5, 5 and 3
    given = sight(left=left, masked=masked, positions=positions, targets=bool(targets))
    torch.manual_seed(0)
    query, context, position, content, distance, segment = inputs = list(tensors(given))
    factors: Tensor | float = 1.0
    if way == "by head, dropout":
        drawn = Factors(given)
        monkeypatch.setattr(relative_attention.DropoutMask, "draw", drawn.draw)
        factors = drawn.all
    seen_BX11 = torch.ones(1) if given.fully_masked_BX is None else ~given.fully_masked_BX[:, :, None, None]
    weights_BXHK = torch.randn(query.shape, dtype=torch.float64) * seen_BX11
    results = []
    arguments = query, context, position, (content, distance), segment if masked else None, given
    for y_BXHK in (
        attend_fused(*arguments, 0.0)
        if way == "fused"
        else attend_by_head(*arguments, 0.3 if isinstance(factors, Tensor) else 0.0),
        attend_plain(*arguments, factors),
    ):
        grads = torch.autograd.grad((y_BXHK * weights_BXHK).sum(), inputs[: 6 if masked else 5])
        results.append([y_BXHK * seen_BX11, *grads])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-12, rtol=1e-12)


def test_without_a_gradient_the_values_are_the_same() -> None:
    given = sight(left=False, masked=True, positions="all", targets=True)
    query, context, position, content, distance, segment = tensors(given)
    arguments = query, context, position, (content, distance), segment, given, 0.0
    learning = attend_by_head(*arguments)
    with torch.no_grad():
        assert torch.equal(attend_by_head(*arguments), learning)


@pytest.mark.parametrize("left", [False, True])
def test_in_bfloat16_it_is_as_exact_as_the_plain_form(left: bool) -> None:
    torch.manual_seed(0)
    given = MaskSpec(torch.zeros(2, 48, dtype=torch.long), slots=16, left=left).query_mask(None, None)
    shapes = (2, 48, 2, 32), (2, 64, 2, 2, 32), (given.distances, 2, 32), (2, 32), (2, 32)
    rough = [torch.randn(shape).to(torch.bfloat16).requires_grad_() for shape in shapes]
    exact = [x.detach().double().requires_grad_() for x in rough]
    weights_BXHK, results = torch.randn(shapes[0], dtype=torch.float64), []
    for attend, inputs, last in (
        (attend_plain, exact, 1.0),
        (attend_plain, rough, 1.0),
        (attend_by_head, rough, 0.0),
    ):
        query, context, position, content, distance = inputs
        y = attend(query, context, position, (content, distance), None, given, last)
        results.append([y, *torch.autograd.grad((y * weights_BXHK).sum(), inputs)])
    for full, plain, ours in zip(*results, strict=True):
        assert ours.dtype == torch.bfloat16
        assert (ours - full).norm() < 1.2 * (plain - full).norm() < 0.03 * full.norm()


def test_runs_are_the_distances() -> None:
    given = sight(left=False, masked=False, positions="some", targets=True)
    rows = torch.tensor(list(distances(L, M + L, left=False)))
    assert len(rows) == given.distances == M + 2 * L - 1
    apart_BXC = M + given.places_BX[:, :, None] - torch.arange(M + L)
    assert torch.equal(rows[given.run_BXC()], apart_BXC)


def test_sinusoids_turn_with_the_distance() -> None:
    """The product of two is the same for any two that are equally far apart."""
    table_RD = sinusoids(range(20, -20, -1), 8, torch.device("cpu"))
    products_RR = table_RD @ table_RD.T
    assert table_RD.shape == (40, 8) and table_RD[20].tolist() == [0.0] * 4 + [1.0] * 4
    for diagonal in range(40):
        assert products_RR.diagonal(diagonal).std(correction=0) < 1e-5
