"""Replacements sampled by token frequency."""

import pytest
import torch

from electra.data.tokenizer import SpecialTokens
from electra.objectives.frequency_sampler import FrequencySampler
from electra.objectives.vocabulary import FakesKind, Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
COUNTS = torch.tensor([0, 50, 0, 0, 0, 99, 49, 24, 9, 0])
TAGS = torch.tensor([0, 0, 0, 0, 0, 1, 1, 2, 2, 2])


def shares(kind: FakesKind, target: int, *, power: float = 1.0, draws: int = 20_000) -> torch.Tensor:
    vocabulary = Vocabulary(SPECIAL, 10, counts_V=COUNTS, tags_V=TAGS)
    uniforms_n = torch.rand(draws, generator=torch.Generator().manual_seed(0))
    found_n = FrequencySampler(kind, vocabulary, power=power).sample(torch.full((draws,), target), uniforms_n)
    return torch.bincount(found_n, minlength=10) / draws


def close(found: torch.Tensor, weights: list[float]) -> None:
    expected = torch.tensor(weights)
    torch.testing.assert_close(found[5:], expected / expected.sum(), rtol=0, atol=0.02)
    assert not found[:5].any()  # special tokens are never drawn


def test_uniform_samples_are_any_token_of_text() -> None:
    close(shares("uniform", 6), [1, 1, 1, 1, 1])


@pytest.mark.parametrize("power", [1.0, 0.5, 0.0])
def test_unigram_samples_follow_the_counts(power: float) -> None:
    close(shares("unigram", 6, power=power), [100**power, 50**power, 25**power, 10**power, 1])


def test_same_tag_samples_follow_the_counts_within_the_tag() -> None:
    close(shares("same-tag", 6), [100, 50, 0, 0, 0])
    close(shares("same-tag", 9), [0, 0, 25, 10, 1])


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_unit_interval_give_tokens_of_the_tag(uniform: float) -> None:
    vocabulary = Vocabulary(SPECIAL, 10, counts_V=COUNTS, tags_V=TAGS)
    fakes = FrequencySampler("same-tag", vocabulary, power=1.0)
    found = fakes.sample(torch.tensor([5, 9]), torch.full((2,), uniform))
    assert TAGS[found].tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["uniform", "unigram", "same-tag"])
def test_rows_that_pad_the_table_are_never_sampled(kind: FakesKind) -> None:
    vocabulary = Vocabulary(SPECIAL, 10, entries=8, counts_V=COUNTS, tags_V=TAGS)
    assert vocabulary.usable_n.tolist() == [5, 6, 7] and vocabulary.sampled_entries == 8
    sampler = FrequencySampler(kind, vocabulary, power=0.0)
    assert int(sampler.sample(torch.tensor([5, 7]).repeat(500), torch.rand(1000)).max()) < 8
    assert Vocabulary(SPECIAL, 10).sampled_entries == 0
