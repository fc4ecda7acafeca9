"""Which documents are kept."""

import numpy as np
import pytest

from electra.preparation.cleaning import Filters, Seen

GERMAN = "Die Fähre verlässt die Insel um sieben und kommt am Mittag zurück."
ENGLISH = "The ferry leaves the island at seven and comes back at noon."


def test_hashes_are_new_once() -> None:
    random = np.random.default_rng(0)
    given = random.integers(0, 3000, size=5000).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    seen, plain, found, expected = Seen(), set[int](), list[bool](), list[bool]()
    for start in range(0, 5000, 37):
        part = given[start : start + 37]
        found += seen.add(part).tolist()
        for one in part.tolist():
            expected.append(one not in plain)
            plain.add(one)
    assert found == expected and sum(found) == len(plain)
    assert len(seen._runs) < 14, "as many runs as the logarithm of what is in them"
    assert seen.add([]).tolist() == [] and not seen.add(given).any()


def test_lengths() -> None:
    filters = Filters(least_characters=10, most_characters=20)
    assert filters.reason("a" * 9) == "too short" and filters.reason("a" * 21) == "too long"
    assert filters.reason("a" * 10) is None and filters.reason("a" * 20) is None
    assert list(Filters(-5, -1).problems()) == [
        "least_characters = -5 must not be negative", "most_characters = -1 must not be negative"
    ]  # fmt: skip
    assert list(Filters(30, 20).problems()) == ["most_characters = 20 is less than least_characters"]


def test_languages() -> None:
    pytest.importorskip("py3langid")
    filters = Filters(languages=("de", "fr"))
    assert filters.reason(GERMAN) is None and filters.reason(ENGLISH) == "another language"
    assert filters.reason("1234 " * 400 + GERMAN * 20 + "5678 " * 400) is None, "told by its middle"
    assert not list(filters.problems())
    [problem] = Filters(languages=("en", "german")).problems()
    assert problem == "language = 'german' is no code that is known; did you mean 'de'?"
    [problem] = Filters(languages=("xx",)).problems()
    assert problem == "language = 'xx' is no code that is known; docs/guides/data-preparation.md lists them"
