"""Products of queries or keys with the vectors of distances, in tiles of rows (see `disentangled_attention`).

Shapes: B batch, M rows, T rows of a tile, C columns, S distances (R: of a tile), K head size.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

TILE = 64
"""Rows of a tile. A tile of T rows needs L + T - 1 distances; fewer rows are slower to multiply."""


@dataclass(frozen=True)
class Tile:
    """Rows whose products with the distances are computed together: queries, or keys.

    Attributes:
        rows: the rows.
        distances: the rows of `PositionVectors` that the tile needs: column minus row positions.
        columns: the number of columns: keys of queries, or queries of keys.
        indices_BTC: for each row and column the index in the distances; None: all are consecutive, so `shift`
            finds them.
    """

    rows: slice
    distances: slice
    columns: int
    indices_BTC: Tensor | None = None

    @classmethod
    def of_queries(cls, length: int, positions_BN: Tensor | None) -> "list[Tile]":
        if positions_BN is None:
            return list(cls._consecutive(length))
        offsets_BNL = torch.arange(length) - positions_BN[:, :, None] + length - 1
        return [cls(slice(0, positions_BN.shape[1]), slice(0, 2 * length - 1), length, offsets_BNL)]

    @classmethod
    def of_keys(cls, length: int, positions_BN: Tensor | None) -> "list[Tile]":
        tiles = list(cls._consecutive(length))
        if positions_BN is None:
            return tiles
        return [
            cls(
                tile.rows,
                tile.distances,
                positions_BN.shape[1],
                positions_BN[:, None] + (tile.rows.stop - 1 - torch.arange(length)[tile.rows, None]),
            )
            for tile in tiles
        ]

    @classmethod
    def _consecutive(cls, length: int) -> "Iterator[Tile]":
        for start in range(0, length, TILE):
            end = min(start + TILE, length)
            yield cls(slice(start, end), slice(length - end, 2 * length - 1 - start), length)

    def shift(self, scores_BTR: Tensor) -> Tensor:
        """Return a view (B, T, C) of products with distances: for each row the slice of its columns.

        The slice of the next row starts one distance earlier, so the row stride is R - 1. Slices do not overlap,
        so gradients can be written to the same view.
        """
        B, T, R = scores_BTR.shape
        return scores_BTR.as_strided((B, T, self.columns), (T * R, R - 1, 1), T - 1)

    def spread(self, scores_BTR: Tensor) -> Tensor:
        """Return the score of each row and column (B, T, C)."""
        return self.shift(scores_BTR) if self.indices_BTC is None else scores_BTR.gather(2, self.indices_BTC)

    def collect(self, grad_BTC: Tensor, out: Tensor) -> None:
        """Write the gradients of the scores of each row and column to `out` (B, T, R), which is 0 elsewhere."""
        if self.indices_BTC is None:
            if grad_BTC.stride(-1) != 1:  # rows whose distance is a power of 2 share places in the cache
                grad_BTC = grad_BTC.mT.contiguous().mT
            self.shift(out).copy_(grad_BTC)
        else:  # positions may occur twice
            out.zero_().scatter_add_(2, self.indices_BTC, grad_BTC)


def tile_products(tile: Tile, rows_BMK: Tensor, vectors_SK: Tensor, buffer: Tensor) -> Tensor:
    """Return the products of the rows of a tile with the vectors of its distances (B, T, R), in the buffer."""
    rows_BTK, vectors_RK = rows_BMK[:, tile.rows], vectors_SK[tile.distances]
    B, T, K = rows_BTK.shape
    scores_BTR = buffer[: B * T * len(vectors_RK)].view(B, T, -1)
    torch.mm(rows_BTK.reshape(B * T, K), vectors_RK.T, out=scores_BTR.view(B * T, -1))
    return scores_BTR


def distance_scores(length: int) -> int:
    """Return how many products with distances `attend_by_head` computes for the rows of one head, for one term."""
    return sum(
        (tile.rows.stop - tile.rows.start) * (tile.distances.stop - tile.distances.start)
        for tile in Tile.of_keys(length, None)
    )


def add_tile_gradients(
    tile: Tile,
    buffer: Tensor,
    grad_BMC: Tensor,
    inputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor],
    *,
    scale: float,
) -> None:
    """Add the gradients of the rows (B, M, K) and of the vectors (S, K) that one tile gives.

    Args:
        inputs: the rows, which are scaled already, and the vectors.
    """
    (rows_BMK, vectors_SK), (grad_rows_BMK, grad_vectors_SK) = inputs, grads
    rows_BTK, vectors_RK = rows_BMK[:, tile.rows], vectors_SK[tile.distances]
    B, T, K = rows_BTK.shape
    grad_BTR = buffer.view(B, T, -1)
    tile.collect(grad_BMC[:, tile.rows], grad_BTR)
    grad = grad_BTR.view(B * T, -1)
    grad_rows_BMK[:, tile.rows].add_((grad @ vectors_RK).view(B, T, K), alpha=scale)
    grad_vectors_SK[tile.distances].addmm_(grad.T, rows_BTK.reshape(B * T, K))


def buffer_size(batch: int, tiles: list[Tile]) -> int:
    """Return the numbers of the largest tile."""
    return max(
        batch * (tile.rows.stop - tile.rows.start) * (tile.distances.stop - tile.distances.start) for tile in tiles
    )
