"""Random numbers by the seed of a row."""

import pytest
import torch
from scipy.stats import kstest

from electra.objectives.row_rng import Purpose, uniforms


def splitmix(x: int) -> int:
    """The finalizer of SplitMix64 as published, on numbers of 64 bits."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


@pytest.mark.parametrize("seed", [0, 1, 2**62 + 3, -5])
def test_they_equal_the_plain_version(seed: int) -> None:
    key = splitmix((splitmix(seed % 2**64) + Purpose.SAMPLES) % 2**64)
    plain = [splitmix((key + n * 0x9E3779B97F4A7C15) % 2**64) >> 40 for n in range(50)]
    assert uniforms(torch.tensor([seed]), Purpose.SAMPLES, 50)[0].tolist() == [number / 2**24 for number in plain]


def test_they_are_uniform_and_unlike_between_rows_and_purposes() -> None:
    seeds_B = torch.arange(200)
    one, other = (uniforms(seeds_B, purpose, 100) for purpose in (Purpose.POSITIONS, Purpose.MASK_OR_KEEP))
    assert kstest(one.flatten().numpy(), "uniform").pvalue > 0.01
    assert float(one.min()) >= 0 and float(one.max()) < 1
    for a, b in ((one, other), (one[:-1], one[1:]), (one[:, :-1], one[:, 1:])):
        assert abs(float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])) < 0.03
