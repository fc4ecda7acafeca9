"""Replacements from n-grams, against counts of the text."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from electra.data.ngrams import trigram_table
from electra.data.shards import Split
from electra.data.tokenizer import SpecialTokens
from electra.objectives.masking import Masking
from electra.objectives.ngram_sampler import NgramSampler
from electra.objectives.vocabulary import Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
SIZE, DRAWS = 16, 4000
TEXT = [5, 6, 7, 5, 8, 7, 5, 6, 7, 5, 9, 7, 5, 6, 10, 11, 12, 13]


@dataclass(frozen=True)
class Tokens:
    tokens: np.ndarray


def draw(
    kind: str, row: list[int], *, text: list[int] = TEXT, slot: int = 1, power: float = 1.0
) -> dict[int, float]:
    """How often tokens are drawn for a slot of a row of three tokens."""
    split = Split([Tokens(np.array(text, np.uint16))])  # type: ignore[list-item]
    trigrams_M = torch.from_numpy(trigram_table(split, size=SIZE, special=SPECIAL.ids))
    counts_V = torch.zeros(SIZE, dtype=torch.int64)
    counts_V[15] = 10**9
    vocabulary = Vocabulary(SPECIAL, SIZE, counts_V=counts_V, trigrams_M=trigrams_M)
    ids_BL = torch.tensor([row]).repeat(DRAWS, 1)
    slots_BN = torch.full((DRAWS, 1), slot)
    used_BN = slots_BN >= 0
    masking = Masking(slots_BN, used_BN, used_BN, ids_BL)
    uniforms_n = torch.arange(DRAWS) / DRAWS
    sampler = NgramSampler(kind, vocabulary, power=power)  # type: ignore[arg-type]
    return shares(sampler(ids_BL, masking, uniforms_n).tolist())


def shares(tokens: Iterable[int]) -> dict[int, float]:
    counts = Counter(tokens)
    return {token: round(count / counts.total(), 2) for token, count in sorted(counts.items())}


def between(first: int, last: int, original: int) -> dict[int, float]:
    found = zip(TEXT, TEXT[1:], TEXT[2:], strict=False)
    return shares(b for a, b, c in found if (a, c) == (first, last) and b != original)


@pytest.mark.parametrize("original", [6, 8, 9, 10])
def test_a_trigram_is_drawn_as_often_as_the_text_has_it_without_the_original(original: int) -> None:
    assert draw("trigram", [5, original, 7]) == pytest.approx(between(5, 7, original), abs=0.011)


@pytest.mark.parametrize("original", [6, 10])
def test_a_bigram_is_drawn_as_often_as_the_text_has_it(original: int) -> None:
    expected = shares(b for a, b in pairwise(TEXT[:-1]) if a == 5)
    assert draw("bigram", [5, original, 12]) == pytest.approx(expected, abs=0.011)


def test_the_next_shorter_context_is_used_if_there_is_no_other_token() -> None:
    assert draw("trigram", [5, 6, 10]) == draw("bigram", [5, 6, 10])  # the text has only 6 between 5 and 10
    assert draw("trigram", [5, 6, 14]) == draw("bigram", [5, 6, 14])
    assert draw("trigram", [14, 6, 7]) == draw("bigram", [14, 6, 7])  # nothing follows 14
    assert draw("bigram", [14, 6, 7])[15] == 1.0
    assert draw("bigram", [14, 6, 7], power=0.0) == dict.fromkeys(range(5, SIZE), 0.09)  # 1 / 11


def test_the_ends_of_a_row_are_no_neighbors() -> None:
    # The text has 6 between 5 and 7, but 5 is the last token of the row here, not the one before the first.
    assert draw("trigram", [8, 7, 5], slot=0) == draw("trigram", [8, 7, 14], slot=0)
    assert draw("trigram", [7, 5, 8], slot=2) == draw("trigram", [14, 5, 8], slot=2)


def test_special_tokens_are_not_drawn() -> None:
    assert draw("trigram", [5, 6, 7], text=[5, 1, 7, 5, 8, 7, 5, 6, 7]) == {8: 1.0}


def test_the_last_draw_of_the_unit_interval_is_in_the_range() -> None:
    split = Split([Tokens(np.array(TEXT, np.uint16))])  # type: ignore[list-item]
    trigrams_M = torch.from_numpy(trigram_table(split, size=SIZE, special=SPECIAL.ids))
    vocabulary = Vocabulary(SPECIAL, SIZE, counts_V=torch.ones(SIZE, dtype=torch.int64), trigrams_M=trigrams_M)
    ids_BL = torch.tensor([[11, 5, 13], [5, 6, 7]])
    ones: Tensor = torch.ones((2, 1), dtype=torch.int64)
    masking = Masking(ones, ones > 0, ones > 0, ids_BL)
    sampler = NgramSampler("trigram", vocabulary, power=1.0)
    assert sampler(ids_BL, masking, torch.full((2,), 1 - 2**-24)).tolist() == [12, 9]
