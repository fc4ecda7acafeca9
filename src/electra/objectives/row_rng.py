"""Random numbers that depend on the seed of a row only, not on the batch, process or device of the row.

Each number is a function of (seed of the row, purpose, index): SplitMix64 (Steele, Lea and Flood, 2014) of their
sum. So micro-batches are masked and corrupted exactly like one batch with the same rows.

Shapes: B rows, N numbers a row.
"""

from enum import IntEnum

import torch
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
_BITS = 24
"""Random bits per number: as many as the significand of float32 has."""


class Purpose(IntEnum):
    """The use of the numbers. Numbers for different purposes are independent."""

    POSITIONS = 1
    """Which positions are chosen."""
    MASK_OR_KEEP = 2
    """What a chosen position shows: [MASK], its own token, or a random token."""
    RANDOM_TOKENS = 3
    SAMPLES = 4
    RANDOM_POSITIONS = 5
    """Positions that are drawn independently of the masks."""
    SPANS = 6
    NOISE = 7
    """Gumbel noise."""
    ORDER = 8
    """The order in which tokens are predicted."""
    NEGATIVES = 9
    """Tokens that a target is compared with in place of the whole vocabulary."""
    KEEP_MASKED = 10
    """Which chosen positions the discriminator sees as [MASK]."""


def uniforms(seeds_B: Tensor, purpose: Purpose, count: int) -> Tensor:
    """Uniform random numbers in [0, 1) (B, N), float32, for each row by its seed."""
    keys_B1 = _splitmix64(_splitmix64(seeds_B) + int(purpose))[:, None]
    numbers_BN = _splitmix64(keys_B1 + torch.arange(count, device=seeds_B.device) * _STEP)
    return _shift_right(numbers_BN, 64 - _BITS).float() / 2**_BITS


def _splitmix64(x: Tensor) -> Tensor:
    """The finalizer of SplitMix64; int64 overflows in the same way as uint64."""
    x = (x ^ _shift_right(x, 30)) * _FACTORS[0]
    x = (x ^ _shift_right(x, 27)) * _FACTORS[1]
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: zeros from the left, as for an unsigned number."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
