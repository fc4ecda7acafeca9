"""Random numbers that the seed of a row decides, whatever batch, process or device the row is in.

A number is a function of (seed of the row, purpose, place): SplitMix64 (Steele, Lea and Flood, 2014) of their sum.
So a batch and the same rows in micro-batches are masked and corrupted alike.

Shapes: B rows, N numbers a row.
"""

from enum import IntEnum

import torch
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
_BITS = 24
"""Of a number: as many as float32 has."""


class Purpose(IntEnum):
    """What numbers are for; those of two purposes have nothing in common."""

    POSITIONS = 1
    """Which positions are chosen."""
    KEPT = 2
    """What stands at a chosen position: [MASK], the token itself, or any other."""
    OTHER_TOKENS = 3
    SAMPLES = 4
    CONTROL = 5
    """Positions that are drawn apart from the masks."""
    SPANS = 6
    NOISE = 7
    """Of the Gumbel distribution."""
    ORDER = 8
    """In which tokens are predicted."""


def uniforms(seeds_B: Tensor, purpose: Purpose, count: int) -> Tensor:
    """Numbers in [0, 1) (B, N), float32."""
    keys_B1 = _mixed(_mixed(seeds_B) + int(purpose))[:, None]
    numbers_BN = _mixed(keys_B1 + torch.arange(count, device=seeds_B.device) * _STEP)
    return _shifted(numbers_BN, 64 - _BITS).float() / 2**_BITS


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64; int64 overflows as uint64 would."""
    x = (x ^ _shifted(x, 30)) * _FACTORS[0]
    x = (x ^ _shifted(x, 27)) * _FACTORS[1]
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, zeros from the left, as of an unsigned number."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
