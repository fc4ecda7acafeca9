"""Relative attention: the fast form and PyTorch's kernel against the plain form."""

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
MEMORY_MASK_BM = torch.arange(M) >= torch.tensor([0, 3, 6])[:, None]
POSITIONS_BN = torch.tensor([[1, 2], [3, 8], [4, 0]])
POSITIONS = {"all": None, "some": POSITIONS_BN, "none": POSITIONS_BN[:, :0]}


def make_query_mask(*, causal: bool, masked: bool, positions: str, targets: bool) -> QueryMask:
    random = torch.Generator().manual_seed(0)
    ids_BL = torch.zeros(B, L, dtype=torch.long)
    masks = MaskSpec(ids_BL, memory_length=M, causal=causal)
    if masked:
        permutation_BLL = torch.rand(B, L, L, generator=random) < 0.5
        masks = MaskSpec(ids_BL, SEGMENT_IDS_BL, TOKENS_BL, MEMORY_MASK_BM, M, permutation_BLL, causal=causal)
    return masks.query_mask(POSITIONS[positions], POSITIONS_BN if targets else None)


def tensors(query_mask: QueryMask) -> Iterator[Tensor]:
    """Yield queries, keys and values, distances, both biases and segment scores."""
    X = query_mask.positions_BX.shape[1]
    for shape in ((B, X, H, K), (B, M + L, 2, H, K), (query_mask.distances, H, K), (H, K), (H, K), (B, X, H)):
        yield torch.randn(shape, dtype=torch.float64, requires_grad=True)


class Factors:
    """A replacement for `DropoutMask`: a fixed mask for all queries and keys, given out tile by tile."""

    def __init__(self, query_mask: QueryMask) -> None:
        torch.manual_seed(1)
        self.query_mask, self.mask = (
            query_mask,
            DropoutMask.draw((H, B, query_mask.positions_BX.shape[1], query_mask.keys), 0.3),
        )
        self.tiles = iter(relative_attention._Tile.all(query_mask, B))

    def draw(self, shape: tuple[int, ...], p: float) -> DropoutMask:
        tile = next(self.tiles)
        bytes = self.mask.bytes[:, :, tile.rows, : tile.keys]
        assert bytes.shape == shape
        return DropoutMask(bytes.contiguous(), self.mask.threshold)

    @property
    def all(self) -> Tensor:
        return self.mask.write(torch.empty(self.mask.bytes.shape, dtype=torch.float64)) * self.mask.scale


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("positions", "targets"), [("all", 0), ("all", 1), ("some", 0), ("some", 1), ("none", 1)])
@pytest.mark.parametrize("form", ["by head", "by head, dropout", "fused"])
def test_values_and_gradients_equal_the_plain_form(
    causal: bool, masked: bool, positions: str, targets: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relative_attention, "CAUSAL_TILE", 5)  # 13 queries: tiles of 5, 5 and 3
    query_mask = make_query_mask(causal=causal, masked=masked, positions=positions, targets=bool(targets))
    torch.manual_seed(0)
    query, context, position, content, distance, segment = inputs = list(tensors(query_mask))
    factors: Tensor | float = 1.0
    if form == "by head, dropout":
        fixed = Factors(query_mask)
        monkeypatch.setattr(relative_attention.DropoutMask, "draw", fixed.draw)
        factors = fixed.all
    visible_BX11 = (
        torch.ones(1) if query_mask.fully_masked_BX is None else ~query_mask.fully_masked_BX[:, :, None, None]
    )
    weights_BXHK = torch.randn(query.shape, dtype=torch.float64) * visible_BX11
    results = []
    arguments = query, context, position, (content, distance), segment if masked else None, query_mask
    for y_BXHK in (
        attend_fused(*arguments, 0.0)
        if form == "fused"
        else attend_by_head(*arguments, 0.3 if isinstance(factors, Tensor) else 0.0),
        attend_plain(*arguments, factors),
    ):
        grads = torch.autograd.grad((y_BXHK * weights_BXHK).sum(), inputs[: 6 if masked else 5])
        results.append([y_BXHK * visible_BX11, *grads])
    for actual, plain in zip(*results, strict=True):
        torch.testing.assert_close(actual, plain, atol=1e-12, rtol=1e-12)


def test_values_without_gradients_are_the_same() -> None:
    query_mask = make_query_mask(causal=False, masked=True, positions="all", targets=True)
    query, context, position, content, distance, segment = tensors(query_mask)
    arguments = query, context, position, (content, distance), segment, query_mask, 0.0
    with_gradients = attend_by_head(*arguments)
    with torch.no_grad():
        assert torch.equal(attend_by_head(*arguments), with_gradients)


@pytest.mark.parametrize("causal", [False, True])
def test_bfloat16_is_as_exact_as_in_the_plain_form(causal: bool) -> None:
    torch.manual_seed(0)
    query_mask = MaskSpec(torch.zeros(2, 48, dtype=torch.long), memory_length=16, causal=causal).query_mask(
        None, None
    )
    shapes = (2, 48, 2, 32), (2, 64, 2, 2, 32), (query_mask.distances, 2, 32), (2, 32), (2, 32)
    rough = [torch.randn(shape).to(torch.bfloat16).requires_grad_() for shape in shapes]
    exact = [x.detach().double().requires_grad_() for x in rough]
    weights_BXHK, results = torch.randn(shapes[0], dtype=torch.float64), []
    for attend, inputs, last in (
        (attend_plain, exact, 1.0),
        (attend_plain, rough, 1.0),
        (attend_by_head, rough, 0.0),
    ):
        query, context, position, content, distance = inputs
        y = attend(query, context, position, (content, distance), None, query_mask, last)
        results.append([y, *torch.autograd.grad((y * weights_BXHK).sum(), inputs)])
    for full, plain, actual in zip(*results, strict=True):
        assert actual.dtype == torch.bfloat16
        assert (actual - full).norm() < 1.2 * (plain - full).norm() < 0.03 * full.norm()


def test_indices_select_the_distances() -> None:
    query_mask = make_query_mask(causal=False, masked=False, positions="some", targets=True)
    values = torch.tensor(list(distances(L, M + L, causal=False)))
    assert len(values) == query_mask.distances == M + 2 * L - 1
    distance_BXC = M + query_mask.positions_BX[:, :, None] - torch.arange(M + L)
    assert torch.equal(values[query_mask.distance_indices_BXC()], distance_BXC)


def test_products_of_sinusoids() -> None:
    """The product of the encodings of two distances depends only on their difference."""
    table_RD = sinusoids(range(20, -20, -1), 8, torch.device("cpu"))
    products_RR = table_RD @ table_RD.T
    assert table_RD.shape == (40, 8) and table_RD[20].tolist() == [0.0] * 4 + [1.0] * 4
    for diagonal in range(40):
        assert products_RR.diagonal(diagonal).std(correction=0) < 1e-5
