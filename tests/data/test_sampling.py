"""The order of visits: permutations, disjoint ranks, no state, no pattern."""

import numpy as np
import pytest

from electra.data.sampling import Sampler, epoch_rows, permute, sequences_before, shard_seed, step_seed
from electra.errors import ConfigError


def whole_epoch(examples: int, *, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return permute(np.arange(examples), examples=examples, seed=seed, epoch=epoch)


@pytest.mark.parametrize("examples", [1, 2, 3, 4, 5, 7, 16, 17, 99, 100, 101, 1000, 12_345, 65_536])
def test_an_epoch_is_a_permutation(examples: int) -> None:
    for seed, epoch in ((0, 0), (0, 1), (-7, 3), (2**70, 10**6)):
        order = whole_epoch(examples, seed=seed, epoch=epoch)
        assert np.array_equal(np.sort(order), np.arange(examples))


def test_the_cost_does_not_depend_on_the_number_of_examples() -> None:
    positions = np.array([0, 1, 10**12 - 1, 10**12 // 2])
    order = permute(positions, examples=10**12, seed=1, epoch=0)
    assert len(set(order.tolist())) == 4 and order.min() >= 0 and order.max() < 10**12
    one_by_one = [int(permute(positions[i : i + 1], examples=10**12, seed=1, epoch=0)[0]) for i in range(4)]
    assert order.tolist() == one_by_one


def test_epochs_and_seeds_have_different_orders() -> None:
    orders = [whole_epoch(1000, seed=seed, epoch=epoch) for seed in range(3) for epoch in range(3)]
    for i, order in enumerate(orders):
        for other in orders[:i]:
            assert (order == other).sum() < 12  # 1 expected; 12 or more has probability 1e-9


def chi_square_is_likely(counts: np.ndarray) -> bool:
    """Whether counts are within five standard deviations of equally likely cells."""
    freedom = counts.size - 1
    expected = counts.mean()
    return bool(abs(((counts - expected) ** 2 / expected).sum() - freedom) < 5 * np.sqrt(2 * freedom))


@pytest.mark.parametrize("examples", [3, 5, 10, 20])
def test_every_example_is_as_likely_at_a_position(examples: int) -> None:
    orders = np.array([whole_epoch(examples, seed=5, epoch=epoch) for epoch in range(2000)])
    for position in (0, 1, -1):
        assert chi_square_is_likely(np.bincount(orders[:, position], minlength=examples))
    pairs = np.bincount(orders[:, 0] * examples + orders[:, 1], minlength=examples**2).reshape(examples, examples)
    assert chi_square_is_likely(pairs[~np.eye(examples, dtype=bool)])


def test_neighbors_in_an_epoch_look_random() -> None:
    order = whole_epoch(40_000, seed=2)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.025  # standard error .005
    cells = np.histogram2d(np.arange(40_000), order, bins=20)[0]
    assert chi_square_is_likely(cells[:-1, :-1])  # the rest follows from these
    steps = np.bincount(np.diff(order) % 40_000, minlength=40_000)
    assert steps.max() < 12  # no common stride: about Poisson(1)


@pytest.mark.parametrize(("examples", "batch_size"), [(10, 3), (7, 20), (64, 16), (1, 5), (1000, 32)])
def test_batches_are_windows_of_the_sequence_of_epochs(examples: int, batch_size: int) -> None:
    epochs = 20
    endless = np.concatenate([whole_epoch(examples, seed=9, epoch=epoch) for epoch in range(epochs)])
    steps = len(endless) // batch_size
    batches = [Sampler(seed=9, batch_size=batch_size, examples=examples).rows(step) for step in range(steps)]
    assert np.array_equal(np.concatenate(batches), endless[: steps * batch_size])


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6, 12])
def test_ranks_take_the_parts_of_one_batch(world: int) -> None:
    for step in (0, 1, 5, 1000):
        whole = Sampler(seed=1, batch_size=12, examples=31).rows(step)
        parts = [
            Sampler(seed=1, batch_size=12, examples=31, rank=rank, world_size=world).rows(step)
            for rank in range(world)
        ]
        assert np.array_equal(np.concatenate(parts), whole)


def test_a_step_is_the_same_whenever_it_is_computed() -> None:
    forward = [Sampler(seed=4, batch_size=8, examples=100).rows(step).tolist() for step in range(50)]
    backward = [Sampler(seed=4, batch_size=8, examples=100).rows(step).tolist() for step in reversed(range(50))]
    assert forward == backward[::-1]
    assert Sampler(seed=4, batch_size=8, examples=100).rows(0).dtype == np.int64


def test_the_order_is_pinned() -> None:
    """A change of these numbers breaks the exact resumption of older runs."""
    assert Sampler(seed=42, batch_size=6, examples=1000).rows(3).tolist() == [203, 446, 110, 656, 416, 59]
    assert step_seed(42, 3, rank=1, micro_step=2) == 5949945263139915851
    assert shard_seed(42, 3) == 2670773369372123796


def test_invalid_batches_are_refused() -> None:
    with pytest.raises(ConfigError, match="no examples"):
        Sampler(seed=0, batch_size=4, examples=0).rows(0)
    with pytest.raises(ConfigError, match="multiple of 3"):
        Sampler(seed=0, batch_size=4, examples=10, world_size=3).rows(0)
    with pytest.raises(ConfigError, match="batch size 0"):
        Sampler(seed=0, batch_size=0, examples=10).rows(0)


def test_step_seeds_are_mixed() -> None:
    seeds = [
        step_seed(seed, step, rank=rank, micro_step=micro_step)
        for seed in range(4)
        for step in range(500)
        for rank in range(4)
        for micro_step in range(3)
    ]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 0 and max(seeds) < 2**63
    assert step_seed(1, 2) == step_seed(1, 2)
    bits = (np.array(seeds, dtype=np.uint64)[:, None] >> np.arange(63, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(seeds))
    flips = (bits[1:] ^ bits[:-1]).mean()
    assert abs(flips - 0.5) < 0.01


def test_seeds_for_different_purposes_differ() -> None:
    assert step_seed(1, 2) != shard_seed(1, 2)
    assert len({shard_seed(seed, shard) for seed in range(30) for shard in range(30)}) == 900


@pytest.mark.parametrize("examples", [1, 2, 15, 16, 17, 1003])
def test_separate_epochs_have_every_example_once(examples: int) -> None:
    batches = -(-examples // 16)
    for number in (0, 1, 7):
        steps = range(number * batches, (number + 1) * batches)
        batches_of_epoch = [epoch_rows(step, seed=3, batch_size=16, examples=examples) for step in steps]
        assert sorted(np.concatenate(batches_of_epoch).tolist()) == list(range(examples))
        assert [len(batch) for batch in batches_of_epoch[:-1]] == [16] * (batches - 1)


def test_separate_epochs_differ_in_order_and_by_seed() -> None:
    first, second, other = (
        np.concatenate([epoch_rows(step, seed=seed, batch_size=16, examples=1003) for step in steps])
        for seed, steps in ((3, range(63)), (3, range(63, 126)), (4, range(63)))
    )
    for one, two in ((first, second), (first, other)):
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.15 and (one == two).mean() < 0.02


def test_the_seed_of_a_row_depends_only_on_its_visit() -> None:
    whole = Sampler(seed=1, batch_size=8, examples=30).seeds(6)
    parts = [Sampler(seed=1, batch_size=8, examples=30, rank=rank, world_size=2).seeds(6) for rank in (0, 1)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(
        np.concatenate([Sampler(seed=1, batch_size=4, examples=30).seeds(s) for s in (12, 13)]), whole
    )
    many = np.concatenate([Sampler(seed=1, batch_size=8, examples=30).seeds(s) for s in range(100)])
    assert len(set(many.tolist())) == 800, "an example has other masks at every visit"
    assert not np.array_equal(Sampler(seed=2, batch_size=8, examples=30).seeds(6), whole)


def test_static_masks_repeat_after_their_copies() -> None:
    examples, copies = 12, 3
    seeds_by_example: dict[int, list[int]] = {}
    for step in range(9):  # nine epochs
        numbers = Sampler(seed=0, batch_size=examples, examples=examples).rows(step).tolist()
        seeds = Sampler(seed=0, batch_size=examples, examples=examples, copies=copies).seeds(step).tolist()
        for number, seed in zip(numbers, seeds, strict=True):
            seeds_by_example.setdefault(number, []).append(seed)
    assert all(seeds == seeds[:copies] * 3 and len(set(seeds)) == copies for seeds in seeds_by_example.values())
    assert len({seed for seeds in seeds_by_example.values() for seed in seeds}) == examples * copies


def test_a_growing_batch_visits_all_in_the_same_order() -> None:
    whole = np.concatenate([Sampler(seed=4, batch_size=10, examples=1000).rows(step) for step in range(20)])
    steps = [Sampler(seed=4, batch_size=10, examples=1000, ramp_steps=8).rows(step) for step in range(12)]
    assert [len(step) for step in steps] == [2, 2, 2, 5, 5, 5, 7, 7, 10, 10, 10, 10]
    assert np.array_equal(np.concatenate(steps), whole[: sum(map(len, steps))])
    seeds = np.concatenate(
        [Sampler(seed=4, batch_size=10, examples=1000, ramp_steps=8).seeds(step) for step in range(12)]
    )
    assert len(set(seeds.tolist())) == sum(map(len, steps)) == sequences_before(12, batch_size=10, ramp_steps=8)
