"""Parts of the data that are drawn from by weight: which example a visit is to, a function of its number alone.

Visits come in blocks of 1,024, in each of which every part has the same number of them, by its weight, in an order
of the block's own. The n-th visit to a part is the n-th of its own epochs. So nothing needs to be remembered, and
a resumed run sees what it would have seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from electra.data.sampling import Rows, part_seed, permute

BLOCK = 1024


def quotas(weights: Sequence[float]) -> npt.NDArray[np.int64]:
    """Visits to each of at most 1,024 parts in a block, (parts,): the nearest whole numbers, and one at least."""
    assert 0 < len(weights) <= BLOCK
    shares = [BLOCK * weight / sum(weights) for weight in weights]
    whole = [max(1, int(share)) for share in shares]
    behind = sorted(range(len(weights)), key=lambda part: whole[part] - shares[part])  # of equals the first
    for part in behind[: max(0, BLOCK - sum(whole))]:
        whole[part] += 1
    whole[whole.index(max(whole))] -= sum(whole) - BLOCK  # where the least of one was too much
    return np.array(whole, np.int64)


@dataclass(frozen=True)
class Mixture:
    """Parts of the examples, one behind the other.

    Attributes:
        examples: how many each part has.
        weights: of the rows of a batch, in any unit.
    """

    examples: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def quotas(self) -> npt.NDArray[np.int64]:
        """Visits to each part in a block, (parts,)."""
        return quotas(self.weights)

    def epochs(self, visits: int) -> float:
        """How often every example of the part that comes round most often is seen in so many visits."""
        return max(visits * quota / BLOCK / count for quota, count in zip(self.quotas, self.examples, strict=True))

    def locate(self, visits: Rows, *, seed: int) -> tuple[Rows, Rows]:
        """Return the epoch (of its part) and the example of each visit, (visits,) each."""
        quotas = self.quotas
        past = np.cumsum(quotas)
        blocks, places = np.divmod(visits, BLOCK)
        slots = np.empty_like(visits)
        for block in np.unique(blocks):
            here = blocks == block
            slots[here] = permute(places[here], examples=BLOCK, seed=part_seed(seed, -1), epoch=int(block))
        parts = np.searchsorted(past, slots, side="right")
        numbers = blocks * quotas[parts] + slots - (past - quotas)[parts]
        epochs, examples = np.empty_like(visits), np.empty_like(visits)
        before = np.cumsum([0, *self.examples])
        for part, count in enumerate(self.examples):
            here = parts == part
            epochs[here], positions = np.divmod(numbers[here], count)
            for epoch in np.unique(epochs[here]):
                now = np.flatnonzero(here)[epochs[here] == epoch]
                order = positions[epochs[here] == epoch]
                found = permute(order, examples=count, seed=part_seed(seed, part), epoch=int(epoch))
                examples[now] = before[part] + found
        return epochs, examples
