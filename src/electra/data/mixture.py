"""Mixtures: parts of the data that are sampled by weight. The example of a visit depends only on its number.

Visits come in blocks of 1,024. In each block every part has the same number of visits, by its weight, and the
order is another one in each block. The n-th visit to a part is the n-th visit of the epochs of this part. So
nothing is remembered, and a resumed run reads what it would have read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from electra.data.sampling import Rows, part_seed, permute

BLOCK = 1024


def visits_per_block(weights: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return the visits to each of at most 1,024 parts in a block, (parts,): the nearest whole numbers, at least
    1."""
    assert 0 < len(weights) <= BLOCK
    shares = [BLOCK * weight / sum(weights) for weight in weights]
    whole = [max(1, int(share)) for share in shares]
    by_deficit = sorted(range(len(weights)), key=lambda part: whole[part] - shares[part])  # ties: the first
    for part in by_deficit[: max(0, BLOCK - sum(whole))]:
        whole[part] += 1
    whole[whole.index(max(whole))] -= sum(whole) - BLOCK  # if the minimum of 1 was too much
    return np.array(whole, np.int64)


@dataclass(frozen=True)
class Mixture:
    """A mixture of parts; the examples of each part follow those of the part before.

    Attributes:
        examples: number of examples of each part.
        weights: weight of each part in a batch, in any unit.
    """

    examples: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def visits_per_block(self) -> npt.NDArray[np.int64]:
        """Visits to each part in a block, (parts,)."""
        return visits_per_block(self.weights)

    def epochs(self, visits: int) -> float:
        """Return the epochs of the part that is repeated most, after this number of visits."""
        return max(
            visits * quota / BLOCK / count
            for quota, count in zip(self.visits_per_block, self.examples, strict=True)
        )

    def locate(self, visits: Rows, *, seed: int) -> tuple[Rows, Rows]:
        """Return the epoch (of its part) and the example of each visit, (visits,) each."""
        quotas = self.visits_per_block
        slot_ends = np.cumsum(quotas)
        blocks, positions_in_block = np.divmod(visits, BLOCK)
        slots = np.empty_like(visits)
        for block in np.unique(blocks):
            here = blocks == block
            slots[here] = permute(
                positions_in_block[here], examples=BLOCK, seed=part_seed(seed, -1), epoch=int(block)
            )
        parts = np.searchsorted(slot_ends, slots, side="right")
        numbers = blocks * quotas[parts] + slots - (slot_ends - quotas)[parts]
        epochs, examples = np.empty_like(visits), np.empty_like(visits)
        before = np.cumsum([0, *self.examples])
        for part, count in enumerate(self.examples):
            here = parts == part
            epochs[here], positions = np.divmod(numbers[here], count)
            for epoch in np.unique(epochs[here]):
                now = np.flatnonzero(here)[epochs[here] == epoch]
                order = positions[epochs[here] == epoch]
                permuted = permute(order, examples=count, seed=part_seed(seed, part), epoch=int(epoch))
                examples[now] = before[part] + permuted
        return epochs, examples
