"""The sampler: which examples make the batch of each training step, as a pure function of the step.

Because nothing is remembered between steps, a resumed run reads exactly what it would have read without the
interruption.

Examples are visited in epochs. Each epoch is one permutation of all examples. Batches are consecutive windows of
the endless sequence of epochs, so no incomplete batch is dropped at the end of an epoch. The permutation is
computed and not stored: it is a Feistel network over Z_a x Z_b (a * b is barely above the number of examples) with
round functions keyed by (seed, epoch), applied again until the value is a valid index (Black and Rogaway, "Ciphers
with Arbitrary Finite Domains", 2002). The cost of a batch does not depend on the size of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from math import isqrt
from typing import Protocol

import numpy as np
import numpy.typing as npt

from electra.errors import ConfigError

Rows = npt.NDArray[np.int64]

_ROUNDS = 8


class VisitOrder(Protocol):
    """An order of visits other than plain epochs over all examples.

    A visit is one reading of one example. Visits are numbered from 0 over the whole run.
    """

    def locate(self, visits: Rows, *, seed: int) -> tuple[Rows, Rows]:
        """Return the epoch and the example of each visit, (visits,) each."""
        ...

    def epochs(self, visits: int) -> float:
        """Return how often the most frequent example is read in the first `visits` visits."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """The examples and the random seeds of every batch of a run, for one of its processes.

    Attributes:
        seed: decides the order of every epoch.
        batch_size: rows of a full batch, over all processes together.
        examples: number of examples to draw from.
        ramp_steps: number of steps over which the batch grows to `batch_size`.
        rank, world_size: this process reads the `rank`-th of `world_size` equal parts of each batch. The parts
            joined in order of rank are the batch of `world_size=1`.
        copies: the random draws (masks, samples) of an example repeat after this number of epochs; 0: they are new
            at every visit.
        order: another order of visits; None: every epoch has all examples.
    """

    seed: int
    batch_size: int
    examples: int
    ramp_steps: int = 0
    rank: int = 0
    world_size: int = 1
    copies: int = 0
    order: VisitOrder | None = None

    def rows(self, step: int) -> Rows:
        """Return the examples that this process reads in one step.

        Args:
            step: number of steps done before this one.

        Returns:
            (batch_size / world_size,) int64 indices in 0..examples - 1.

        Raises:
            ConfigError: there is no example, or the batch does not divide into `world_size` equal parts.
        """
        if self.examples < 1:
            raise ConfigError("there are no examples to draw from: the data have no text in this split")
        return self._locate(self._visits(step))[1]

    def seeds(self, step: int) -> Rows:
        """Return a seed for the random draws of each row that `rows` returns.

        The seed of a visit does not depend on the batch size or on the number of processes.

        Returns:
            (batch_size / world_size,) int64; all 64 bits are random.
        """
        visits = self._visits(step)
        key = np.uint64(_hash("row", self.seed))
        if not self.copies:
            return splitmix(visits.astype(np.uint64) ^ key).astype(np.int64)
        epochs, examples = self._locate(visits)
        copy = splitmix((epochs % self.copies).astype(np.uint64) ^ key)
        return splitmix(examples.astype(np.uint64) ^ copy).astype(np.int64)

    def _visits(self, step: int) -> Rows:
        """Return the numbers of the visits that this process makes in one step."""
        assert 0 <= self.rank < self.world_size and step >= 0
        first = sequences_before(step, batch_size=self.batch_size, ramp_steps=self.ramp_steps)
        size = sequences_before(step + 1, batch_size=self.batch_size, ramp_steps=self.ramp_steps) - first
        if size < 1 or size % self.world_size:
            raise ConfigError(
                f"the batch size {size} does not divide into {self.world_size} equal parts, one for each process; "
                f"choose a multiple of {self.world_size}"
            )
        share = size // self.world_size
        return first + self.rank * share + np.arange(share, dtype=np.int64)

    def _locate(self, visits: Rows) -> tuple[Rows, Rows]:
        """Return the epoch and the example of each visit."""
        if self.order is not None:
            return self.order.locate(visits, seed=self.seed)
        epochs, positions = np.divmod(visits, self.examples)
        parts = [
            permute(positions[epochs == epoch], examples=self.examples, seed=self.seed, epoch=epoch)
            for epoch in range(int(epochs[0]), int(epochs[-1]) + 1)  # one, unless an epoch ends in the batch
        ]
        return epochs, np.concatenate(parts)


def sequences_before(step: int, *, batch_size: int, ramp_steps: int) -> int:
    """Return the number of rows in all batches before this step."""
    ends = [-(-third * ramp_steps // 3) for third in range(4)]  # three sizes: each is compiled
    counts = [min(step, end) - min(step, start) for start, end in pairwise(ends)]
    grown = sum(count * max(1, batch_size * quarters // 4) for quarters, count in enumerate(counts, start=1))
    return grown + batch_size * max(0, step - ramp_steps)


def epoch_rows(step: int, *, seed: int, batch_size: int, examples: int) -> Rows:
    """Return the examples of one step where no batch crosses epochs: the last batch of an epoch may be smaller.

    Fine-tuning uses it, since its data sets are small.

    Returns:
        (batch_size or fewer,) int64 indices.
    """
    epoch, number = divmod(step, -(-examples // batch_size))
    positions = np.arange(number * batch_size, min((number + 1) * batch_size, examples), dtype=np.int64)
    return permute(positions, examples=examples, seed=seed, epoch=epoch)


def permute(positions: Rows, *, examples: int, seed: int, epoch: int) -> Rows:
    """Return the examples at these positions of an epoch, a permutation of 0..examples - 1."""
    width = isqrt(examples - 1) + 1
    height = -(-examples // width)
    keys = _round_keys(seed, epoch)
    values = positions.astype(np.uint64)
    outside = np.ones(values.shape, dtype=np.bool_)
    while outside.any():  # it ends soon: fewer than sqrt(examples) of the width * height values lie outside
        values[outside] = _feistel(values[outside], np.uint64(width), np.uint64(height), keys)
        outside = values >= examples
    return values.astype(np.int64)


def step_seed(seed: int, step: int, *, rank: int = 0, micro_step: int = 0) -> int:
    """Return a 63-bit seed for the random draws (masks, samples, dropout) of one step."""
    return _hash("step", seed, step, rank, micro_step) >> 1


def shard_seed(seed: int, shard: int) -> int:
    """Return a 63-bit seed for the packing of one shard."""
    return _hash("shard", seed, shard) >> 1


def part_seed(seed: int, part: int) -> int:
    """Return a 63-bit seed for the order of one part of a mixture."""
    return _hash("part", seed, part) >> 1


def _hash(purpose: str, *numbers: int) -> int:
    text = ":".join((purpose, *map(str, numbers)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _round_keys(seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    return np.array([_hash("epoch", seed, epoch, number) for number in range(_ROUNDS)], dtype=np.uint64)


def _feistel(
    values: npt.NDArray[np.uint64], width: np.uint64, height: np.uint64, keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Permute 0..width * height - 1: each round adds a function of one digit to the other digit."""
    high, low = np.divmod(values, width)
    for even, odd in zip(keys[0::2], keys[1::2], strict=True):
        low = (low + splitmix(high ^ even) % width) % width
        high = (high + splitmix(low ^ odd) % height) % height
    mixed: npt.NDArray[np.uint64] = high * width + low
    return mixed


def splitmix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), modulo 2^64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
