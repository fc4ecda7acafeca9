"""Copies of documents are found exactly, and counted in bounded memory."""

import numpy as np
import pytest

from electra.preparation.deduplication import DuplicateCounter, SeenHashes, document_hash


def test_hashes_are_new_once() -> None:
    random = np.random.default_rng(0)
    given = random.integers(0, 3000, size=5000).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    seen, plain, actual, expected = SeenHashes(), set[int](), list[bool](), list[bool]()
    for start in range(0, 5000, 37):
        part = given[start : start + 37]
        actual += seen.add(part).tolist()
        for one in part.tolist():
            expected.append(one not in plain)
            plain.add(one)
    assert actual == expected and sum(actual) == len(plain)
    assert len(seen._runs) < 14, "as many runs as the logarithm of what is in them"
    assert seen.add([]).tolist() == [] and not seen.add(given).any()


def test_duplicates_are_counted_exactly_while_they_fit() -> None:
    counter = DuplicateCounter()
    for i in [*range(800), *range(200)]:
        counter.add(document_hash(str(i)))
    assert counter.share == pytest.approx(0.2)


def test_duplicates_are_estimated_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuplicateCounter, "LIMIT", 1000)
    counter = DuplicateCounter()
    for i in [*range(16_000), *range(4_000)]:
        counter.add(document_hash(str(i)))
    assert len(counter.counts) <= 1000 and counter.modulus >= 16
    assert counter.share == pytest.approx(0.2, abs=0.05)


def test_a_counter_continues_from_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuplicateCounter, "LIMIT", 8)
    whole = DuplicateCounter()
    for i in range(100):
        whole.add(document_hash(str(i)))
    resumed = DuplicateCounter((whole.modulus, whole.counts))
    for i in range(50, 150):
        for counter in (whole, resumed):
            counter.add(document_hash(str(i)))
        assert (resumed.modulus, resumed.counts) == (whole.modulus, whole.counts)
