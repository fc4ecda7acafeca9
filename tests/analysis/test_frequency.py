"""Frequency bands, compared with ranks by hand."""

import numpy as np

from electra.analysis.frequency import FrequencyBands, pad_counts


def test_bands_have_their_number_of_tokens() -> None:
    draw = np.random.default_rng(0)
    counts_V = draw.integers(1, 10**6, 12_000)
    counts_V[draw.choice(12_000, 500, replace=False)] = 0
    bands = FrequencyBands.from_counts(counts_V)
    sizes = np.bincount(bands.band_V, minlength=len(bands.names)).tolist()
    assert dict(zip(bands.names, sizes, strict=True)) == {
        "top 10": 10, "top 100": 90, "top 1,000": 900, "top 3,000": 2000, "top 10,000": 7000, "rarer": 1500,
        "never seen": 500,
    }  # fmt: skip
    for better, worse in zip(bands.names[:-2], bands.names[1:-1], strict=True):
        one, other = (counts_V[bands.band_V == bands.names.index(name)] for name in (better, worse))
        assert one.min() >= other.max()
    assert counts_V[np.argsort(bands.rank_V)].tolist() == sorted(counts_V.tolist(), reverse=True)


def test_padding() -> None:
    assert pad_counts(np.array([3, 4]), 4).tolist() == [3, 4, 0, 0]
    assert pad_counts(np.array([3, 4]), 1).tolist() == [3, 4]
