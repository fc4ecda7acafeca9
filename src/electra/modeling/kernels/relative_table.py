"""A table of relative positions, in which far distances share rows, as in the code of DeBERTa-v2.

Shapes: S = 2 L - 1 distances of inputs of length L, R rows of the table, D hidden size.
"""

import math

import torch
from torch import Tensor, nn

from electra.modeling.device import widest_float


class RelativeTable(nn.Module):
    """One vector for each distance, or for each bucket of distances, in both directions.

    Args:
        buckets: number of buckets for each direction; 0: each distance up to `max_distance` has a row. Longer ones
            share the last row.
        norm_epsilon: number added to the variance in the LayerNorm of the table; None: there is none.
    """

    def __init__(self, size: int, *, buckets: int, max_distance: int, norm_epsilon: float | None) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.span = buckets, max_distance, buckets or max_distance
        self.table = nn.Embedding(2 * self.span, size)
        self.norm: nn.Module = nn.Identity()
        if norm_epsilon is not None:
            self.norm = nn.LayerNorm(size, eps=norm_epsilon)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the rows (R, D) for inputs of this length, and the row of each distance (S).

        Distances are those from -(length - 1) to length - 1, of query minus key position.
        """
        first, last = (self._row(distance) for distance in (1 - length, length - 1))
        table_RD = self.norm(self.table(torch.arange(first, last + 1, device=self.table.weight.device)))
        return table_RD, self.rows(length, device=table_RD.device) - first

    def _row(self, distance: int) -> int:
        """Return the row of one distance: `rows` in plain numbers, which torch.compile needs for shapes."""
        size, middle = abs(distance), self.buckets // 2
        if self.buckets and size > middle:
            longest = (self.max_distance - 1) / middle
            size = math.ceil(math.log(size / middle) / math.log(longest) * (middle - 1)) + middle
        return min(max(self.span + (size if distance > 0 else -size), 0), 2 * self.span - 1)

    def rows(self, length: int, *, device: torch.device | None = None) -> Tensor:
        """Return the row of the table for each distance (S)."""
        distances_S = torch.arange(1 - length, length, device=device)
        if self.buckets:
            distances_S = log_bucket(distances_S, self.buckets, self.max_distance)
        return (distances_S + self.span).clamp(0, 2 * self.span - 1)


def log_bucket(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each distance, from -(buckets - 1) to buckets - 1, and beyond for longer distances.

    Up to half of the buckets, each distance has its own. Longer distances share buckets, evenly on a logarithmic
    scale, so that `max_distance` - 1 is in the last one.
    """
    middle = buckets // 2
    dtype = widest_float(distances.device)
    size = distances.abs().clamp(min=middle).to(dtype)
    longest = torch.tensor((max_distance - 1) / middle, dtype=dtype, device=distances.device)
    logarithmic = ((size / middle).log() / longest.log() * (middle - 1)).ceil().long() + middle
    return torch.where(distances.abs() <= middle, distances, logarithmic * distances.sign())
