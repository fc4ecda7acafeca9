"""Parts by weight: exact in every block, each part with separate epochs, a function of the step."""

from dataclasses import replace

import numpy as np
import pytest

from electra.data.mixture import BLOCK, Mixture
from electra.data.sampling import Sampler


@pytest.mark.parametrize(
    ("weights", "quotas"),
    [
        ((3.0, 1.0), [768, 256]),
        ((1.0, 1.0, 1.0), [342, 341, 341]),
        ((5.0, 3.0, 2.0), [512, 307, 205]),  # of 512, 307.2 and 204.8
        ((1e9, 1.0, 1.0), [1022, 1, 1]),
        ((5.0,), [1024]),
    ],
)
def test_every_block_has_its_share_of_each_part(weights: tuple[float, ...], quotas: list[int]) -> None:
    mixture = Mixture(tuple(100 + part for part in range(len(weights))), weights)
    assert mixture.visits_per_block.tolist() == quotas
    ends = np.cumsum(mixture.examples)
    for block in (0, 7, 10**9):
        _, examples = mixture.locate(np.arange(block * BLOCK, (block + 1) * BLOCK), seed=3)
        parts = np.searchsorted(ends, examples, side="right")
        assert np.array_equal(np.bincount(parts, minlength=len(weights)), mixture.visits_per_block)


def test_each_part_has_separate_epochs() -> None:
    mixture = Mixture((1000, 300), (3.0, 1.0))
    epochs, examples = mixture.locate(np.arange(8 * BLOCK), seed=0)
    for part, (first, count) in enumerate(((0, 1000), (1000, 300))):
        here = (examples >= first) & (examples < first + count)
        assert here.sum() == 8 * mixture.visits_per_block[part]
        orders = [examples[here & (epochs == epoch)] - first for epoch in range(epochs[here].max())]
        assert len(orders) >= 6
        for order in orders:
            assert np.array_equal(np.sort(order), np.arange(count)), "all of it, once"
        assert not np.array_equal(orders[0], orders[1])
    assert mixture.epochs(8 * BLOCK) == pytest.approx(8 * 256 / 300)


def test_a_part_has_another_order_in_each_epoch() -> None:
    mixture = Mixture((1000, 512), (3.0, 1.0))  # an epoch of the second part is two blocks
    _, examples = mixture.locate(np.arange(4 * BLOCK), seed=0)
    first, second = (
        set(examples[block * BLOCK : (block + 1) * BLOCK].tolist()) - set(range(1000)) for block in (0, 2)
    )
    assert len(first) == len(second) == 256 and first != second


def test_a_visit_does_not_depend_on_its_batch() -> None:
    mixture = Mixture((1000, 300), (3.0, 1.0))
    together = mixture.locate(np.arange(3000, 3500), seed=1)
    for start in range(3000, 3500, 61):
        separate = mixture.locate(np.arange(start, min(start + 61, 3500)), seed=1)
        for one, all_ in zip(separate, together, strict=True):
            assert np.array_equal(one, all_[start - 3000 : start - 3000 + len(one)])
    sampler = Sampler(seed=5, batch_size=12, examples=1300, order=mixture)
    whole = sampler.rows(40)
    halves = [replace(sampler, rank=rank, world_size=2).rows(40) for rank in (0, 1)]
    assert np.array_equal(np.concatenate(halves), whole) and not np.array_equal(whole, sampler.rows(41))


def test_static_masks_repeat_with_an_example() -> None:
    sampler = Sampler(seed=5, batch_size=64, examples=40, order=Mixture((30, 10), (1.0, 1.0)), copies=2)
    seeds: dict[int, set[int]] = {}
    for step in range(40):
        for row, seed in zip(sampler.rows(step), sampler.seeds(step), strict=True):
            seeds.setdefault(int(row), set()).add(int(seed))
    assert set(seeds) == set(range(40)) and {len(row_seeds) for row_seeds in seeds.values()} == {2}
