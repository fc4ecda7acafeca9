"""Which examples make the batch of a step: a pure function, so that a resumed run sees what it would have seen.

Examples are visited in epochs, each of which is one permutation of all examples; batches are consecutive
windows of the endless row of epochs, so that no tail is dropped. The permutation is computed, not stored: a
Feistel network over Z_a x Z_b (a b >= examples, barely) with round functions keyed by (seed, epoch), walked
until it lands inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). A query costs its own
rows, however large the data.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from math import isqrt
from typing import Protocol

import numpy as np
import numpy.typing as npt

from electra.errors import ConfigError

Rows = npt.NDArray[np.int64]

_ROUNDS = 8


class Order(Protocol):
    """Another order than that of epochs over all examples."""

    def drawn(self, visits: Rows, *, seed: int) -> tuple[Rows, Rows]:
        """The epoch that each visit is in, and its example, (visits,) each."""
        ...

    def epochs(self, visits: int) -> float:
        """How often the example that comes round most often is seen in so many visits."""
        ...


def rows(
    step: int,
    *,
    seed: int,
    batch_size: int,
    examples: int,
    rank: int = 0,
    world: int = 1,
    ramp: int = 0,
    order: Order | None = None,
) -> Rows:
    """The examples of one step's batch, or of one rank's share of it.

    Args:
        step: from 0 (the number of steps done before this one).
        seed: decides the order of every epoch.
        batch_size: rows of the batch over all ranks together.
        examples: size of the example set.
        rank, world: this process takes the `rank`-th of `world` equal parts; joined in order of rank they are
            the batch of `world=1`.
        ramp: steps over which the batch grows to its size.
        order: None: every epoch has all examples.

    Returns:
        (batch_size / world,) int64 indices in 0..examples - 1.

    Raises:
        ConfigError: nothing to draw from, or the batch does not divide into `world` equal parts.
    """
    if examples < 1:
        raise ConfigError("there are no examples to draw from: the data have no text in this split")
    return _drawn(_visits(step, batch_size, rank, world, ramp), examples, seed, order)[1]


def _drawn(visits: Rows, examples: int, seed: int, order: Order | None) -> tuple[Rows, Rows]:
    """The epoch that each visit is in, and its example."""
    if order is not None:
        return order.drawn(visits, seed=seed)
    epochs, positions = np.divmod(visits, examples)
    parts = [
        permuted(positions[epochs == epoch], examples=examples, seed=seed, epoch=epoch)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1)  # one, save where an epoch ends in the batch
    ]
    return epochs, np.concatenate(parts)


def sequences_before(step: int, *, batch_size: int, ramp: int) -> int:
    """How many rows the steps before this one have."""
    ends = [-(-third * ramp // 3) for third in range(4)]  # in three sizes, since every size is compiled apart
    counts = [min(step, end) - min(step, start) for start, end in pairwise(ends)]
    grown = sum(count * max(1, batch_size * quarters // 4) for quarters, count in enumerate(counts, start=1))
    return grown + batch_size * max(0, step - ramp)


def _visits(step: int, batch_size: int, rank: int, world: int, ramp: int) -> Rows:
    """The places of a batch's rows in the endless row of epochs."""
    assert 0 <= rank < world and step >= 0
    first = sequences_before(step, batch_size=batch_size, ramp=ramp)
    size = sequences_before(step + 1, batch_size=batch_size, ramp=ramp) - first
    if size < 1 or size % world:
        raise ConfigError(
            f"the batch size {size} does not divide into {world} equal parts, one a process; "
            f"choose a multiple of {world}"
        )
    share = size // world
    return first + rank * share + np.arange(share, dtype=np.int64)


def epoch_rows(step: int, *, seed: int, batch_size: int, examples: int) -> Rows:
    """The same for few examples, whose epochs are kept apart: the last batch of each may be smaller.

    Returns:
        (batch_size or fewer,) int64 indices.
    """
    epoch, number = divmod(step, -(-examples // batch_size))
    positions = np.arange(number * batch_size, min((number + 1) * batch_size, examples), dtype=np.int64)
    return permuted(positions, examples=examples, seed=seed, epoch=epoch)


def permuted(positions: Rows, *, examples: int, seed: int, epoch: int) -> Rows:
    """The examples at these positions of an epoch: a permutation of 0..examples - 1 keyed by (seed, epoch)."""
    width = isqrt(examples - 1) + 1
    height = -(-examples // width)
    keys = _round_keys(seed, epoch)
    values = positions.astype(np.uint64)
    outside = np.ones(values.shape, dtype=np.bool_)
    while outside.any():  # fewer than sqrt(examples) of width * height values lie outside, so this ends soon
        values[outside] = _feistel(values[outside], np.uint64(width), np.uint64(height), keys)
        outside = values >= examples
    return values.astype(np.int64)


def row_seeds(
    step: int,
    *,
    seed: int,
    batch_size: int,
    examples: int,
    rank: int = 0,
    world: int = 1,
    ramp: int = 0,
    copies: int = 0,
    order: Order | None = None,
) -> npt.NDArray[np.int64]:
    """A seed for the random draws of each row that `rows` gives, whatever batch or process it comes to.

    Args:
        copies: the draws of an example come again after so many epochs; 0: they are new at every visit.

    Returns:
        (batch_size / world,) of all 64 bits.
    """
    visits = _visits(step, batch_size, rank, world, ramp)
    key = np.uint64(_mixed("row", seed))
    if not copies:
        return splitmix(visits.astype(np.uint64) ^ key).astype(np.int64)
    if order is not None:
        epochs, numbers = order.drawn(visits, seed=seed)
    else:
        epochs = visits // examples
        numbers = rows(
            step, seed=seed, batch_size=batch_size, examples=examples, rank=rank, world=world, ramp=ramp
        )
    copy = splitmix((epochs % copies).astype(np.uint64) ^ key)
    return splitmix(numbers.astype(np.uint64) ^ copy).astype(np.int64)


def step_seed(seed: int, step: int, *, rank: int = 0, micro_step: int = 0) -> int:
    """A 63-bit seed for the random draws (masks, samples, dropout) of one step; close steps share nothing."""
    return _mixed("step", seed, step, rank, micro_step) >> 1


def shard_seed(seed: int, shard: int) -> int:
    """A 63-bit seed for the packing of one shard."""
    return _mixed("shard", seed, shard) >> 1


def part_seed(seed: int, part: int) -> int:
    """A 63-bit seed for the order of one of several parts of the data."""
    return _mixed("part", seed, part) >> 1


def _mixed(purpose: str, *numbers: int) -> int:
    text = ":".join((purpose, *map(str, numbers)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _round_keys(seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    return np.array([_mixed("epoch", seed, epoch, number) for number in range(_ROUNDS)], dtype=np.uint64)


def _feistel(
    values: npt.NDArray[np.uint64], width: np.uint64, height: np.uint64, keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """A permutation of 0..width * height - 1; each round adds to one digit a function of the other."""
    high, low = np.divmod(values, width)
    for even, odd in zip(keys[0::2], keys[1::2], strict=True):
        low = (low + splitmix(high ^ even) % width) % width
        high = (high + splitmix(low ^ odd) % height) % height
    mixed: npt.NDArray[np.uint64] = high * width + low
    return mixed


def splitmix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014), modulo 2^64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
