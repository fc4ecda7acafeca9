"""The trigrams of a text as sorted codes."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from electra.data import ngrams
from electra.data.shards import Split
from electra.errors import DataError


@dataclass(frozen=True)
class Tokens:
    tokens: npt.NDArray[np.uint16]


def split(*shards: list[int]) -> Split:
    return Split([Tokens(np.array(shard, np.uint16)) for shard in shards])  # type: ignore[list-item]


def decoded(codes: npt.NDArray[np.int64], size: int) -> list[tuple[int, int, int]]:
    """(first, last, middle)"""
    return [(int(code) // size**2, int(code) // size % size, int(code) % size) for code in codes]


def test_all_trigrams_are_there_in_order() -> None:
    random = np.random.default_rng(0)
    shards = [random.integers(0, 7, 300).tolist() for _ in range(2)]
    expected = Counter((a, c, b) for ids in shards for a, b, c in zip(ids, ids[1:], ids[2:], strict=False))
    found = decoded(ngrams.trigram_table(split(*shards), size=1_000_000, special=()), 1_000_000)
    assert Counter(found) == expected and found == sorted(found)


def test_special_tokens_are_context_only() -> None:
    found = ngrams.trigram_table(split([5, 1, 6, 7, 1, 5]), size=10, special={1})
    assert decoded(found, 10) == [(1, 7, 6), (6, 1, 7)]


def test_the_number_of_tokens_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "TOKENS", 5)
    found = ngrams.trigram_table(split([5, 6, 7, 5, 5, 5], [8, 9, 5, 5]), size=10, special=())
    assert decoded(found, 10) == [(5, 7, 6)]  # half of each shard


def test_no_text_and_too_large_a_vocabulary_are_refused() -> None:
    for empty in (split(), split([5], [6, 7])):
        with pytest.raises(DataError, match="has no three tokens in a row"):
            ngrams.trigram_table(empty, size=10, special=())
    with pytest.raises(DataError, match="a vocabulary of 3,000,000 entries is too large"):
        ngrams.trigram_table(split([5, 6, 7]), size=3_000_000, special=())
