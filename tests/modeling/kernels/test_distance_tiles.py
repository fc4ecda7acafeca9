"""Tiles of products with distances, against loops over rows and columns."""

import pytest
import torch
from torch import Tensor

from electra.modeling.kernels import distance_tiles
from electra.modeling.kernels.distance_tiles import Tile, add_tile_gradients, buffer_size, tile_products

B, K = 2, 3
POSITIONS_BN = torch.tensor([[0, 4, 4, 8], [8, 1, 0, 3]])  # one of them twice


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance_tiles, "TILE", 4)


def products(tiles: list[Tile], rows_BMK: Tensor, vectors_SK: Tensor) -> Tensor:
    """The scores of all rows and columns (B, M, C)."""
    scores = rows_BMK.new_full((B, rows_BMK.shape[1], tiles[0].columns), torch.nan)
    buffer = rows_BMK.new_empty(buffer_size(B, tiles))
    for tile in tiles:
        scores[:, tile.rows] = tile.spread(tile_products(tile, rows_BMK, vectors_SK, buffer))
    return scores


@pytest.mark.parametrize("positions_BN", [None, POSITIONS_BN], ids=["all", "selected"])
@pytest.mark.parametrize("side", ["queries", "keys"])
@pytest.mark.parametrize("length", [9, 12])
def test_scores_and_gradients_are_those_of_loops(length: int, side: str, positions_BN: Tensor | None) -> None:
    torch.manual_seed(0)
    queries_BN = torch.arange(length).expand(B, -1) if positions_BN is None else positions_BN
    keys_BL = torch.arange(length).expand(B, -1)
    rows, columns = (queries_BN, keys_BL) if side == "queries" else (keys_BL, queries_BN)
    rows_BMK = torch.randn(B, rows.shape[1], K, dtype=torch.float64, requires_grad=True)
    vectors_SK = torch.randn(2 * length - 1, K, dtype=torch.float64, requires_grad=True)
    expected = torch.stack([
        torch.stack([
            torch.stack([
                rows_BMK[b, m] @ vectors_SK[columns[b, c] - rows[b, m] + length - 1]
                for c in range(columns.shape[1])
            ])
            for m in range(rows.shape[1])
        ])
        for b in range(B)
    ])  # fmt: skip
    tiles = Tile.of_queries(length, positions_BN) if side == "queries" else Tile.of_keys(length, positions_BN)
    with torch.no_grad():
        torch.testing.assert_close(products(tiles, rows_BMK, vectors_SK), expected, rtol=0, atol=1e-12)
    weights = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * weights).sum(), (rows_BMK, vectors_SK))
    found = torch.zeros_like(rows_BMK), torch.zeros_like(vectors_SK)
    for tile in tiles:
        buffer = rows_BMK.new_zeros(buffer_size(B, [tile]))
        inputs = 0.5 * rows_BMK.detach(), vectors_SK.detach()  # the rows are scaled already
        add_tile_gradients(tile, buffer, weights, inputs, found, scale=0.5)
    torch.testing.assert_close(found[0], 0.5 * wanted[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1], 0.5 * wanted[1], rtol=0, atol=1e-12)


def test_a_tile_has_the_distances_of_its_rows_only() -> None:
    tiles = Tile.of_keys(10, None)
    assert [(t.rows.start, t.rows.stop) for t in tiles] == [(0, 4), (4, 8), (8, 10)]
    assert [t.distances.stop - t.distances.start for t in tiles] == [13, 13, 11]
    assert buffer_size(3, tiles) == 3 * 4 * 13
