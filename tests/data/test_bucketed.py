"""Batches of like length: every row once an epoch, in company that changes, with hardly any padding."""

import numpy as np
import pytest

from electra.data.sampling import bucketed

LENGTHS = np.random.default_rng(0).lognormal(3, 0.8, 1003).astype(np.int64) + 3


def epoch(number: int, *, lengths: np.ndarray = LENGTHS, size: int = 16, seed: int = 0) -> list[np.ndarray]:
    batches = -(-len(lengths) // size)
    return [
        bucketed(step, lengths, seed=seed, batch_size=size)
        for step in range(number * batches, (number + 1) * batches)
    ]


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 64 * 16, 64 * 16 + 1, 2000])
def test_each_epoch_sees_every_row_once(rows: int) -> None:
    lengths = np.resize(LENGTHS, rows)
    for number in (0, 1, 7):
        seen = np.concatenate(epoch(number, lengths=lengths))
        assert np.array_equal(np.sort(seen), np.arange(rows))


def test_one_batch_of_an_epoch_holds_what_is_left_over() -> None:
    sizes = sorted(len(batch) for batch in epoch(0))
    assert sizes == [1003 % 16] + [16] * (1003 // 16)
    assert [len(batch) for batch in epoch(0, lengths=LENGTHS[:64])] == [16] * 4


def test_fewer_rows_than_a_batch_are_one_batch_each_step() -> None:
    for step in range(3):
        found = bucketed(step, LENGTHS[:5], seed=0, batch_size=32)
        assert sorted(found.tolist()) == [0, 1, 2, 3, 4]


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    one = bucketed(37, LENGTHS, seed=3, batch_size=16)
    list(epoch(0))
    assert np.array_equal(one, bucketed(37, LENGTHS, seed=3, batch_size=16))
    assert not np.array_equal(one, bucketed(37, LENGTHS, seed=4, batch_size=16))


def test_who_comes_together_changes_with_each_epoch() -> None:
    def pairs(batches: list[np.ndarray]) -> set[tuple[int, int]]:
        return {(a, b) for batch in batches for a in batch.tolist() for b in batch.tolist() if a < b}

    first, second = pairs(epoch(0)), pairs(epoch(1))
    # 64 batches of 16 in one pool, sorted by length: those of few lengths meet again, most others do not
    assert len(first & second) < 0.5 * len(first)
    alike = np.full(1003, 20)
    first, second = pairs(epoch(0, lengths=alike)), pairs(epoch(1, lengths=alike))
    assert len(first & second) < 0.05 * len(first)


def test_the_order_of_lengths_is_random_and_changes() -> None:
    def longest(batches: list[np.ndarray]) -> np.ndarray:
        return np.array([LENGTHS[batch].max() for batch in batches])

    first, second = longest(epoch(0)), longest(epoch(1))
    assert abs(np.corrcoef(np.arange(len(first)), first)[0, 1]) < 0.4
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.4


def test_there_is_little_padding() -> None:
    def computed(batches: list[np.ndarray]) -> int:
        return sum(len(batch) * int(LENGTHS[batch].max()) for batch in batches)

    as_drawn = np.random.default_rng(1).permutation(1003)
    tokens = int(LENGTHS.sum())
    assert computed(np.array_split(as_drawn, 63)) > 2 * tokens
    assert computed(epoch(0)) < 1.08 * tokens  # half of it in the one batch with the longest rows
