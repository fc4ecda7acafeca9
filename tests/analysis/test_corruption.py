"""Tokens that a generator replaced: positions, samples, and the discriminator's logits."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import LENGTH, TEXTS, write_model

from electra.analysis.corruption import corrupt_texts, sample_tokens
from electra.data.tokenizer import vocabulary_size
from electra.errors import DataError
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scorer, MaskedTokenPredictor]:
    folder = tmp_path_factory.mktemp("towers")
    generator = write_model(folder / "generator", head=MaskedLanguageModelHead)
    return Scorer(write_model(folder / "scorer"), device="cpu"), MaskedTokenPredictor(generator, device="cpu")


@pytest.fixture(scope="module")
def ids(towers: tuple[Scorer, MaskedTokenPredictor]) -> list[list[int]]:
    return [[], *(towers[0].tokenizer.encode(text, add_special_tokens=False).ids[: LENGTH - 2] for text in TEXTS)]


def test_a_fraction_of_each_text_is_replaced_and_scored(
    towers: tuple[Scorer, MaskedTokenPredictor], ids: list[list[int]]
) -> None:
    scorer, generator = towers
    actual = corrupt_texts(scorer, generator, ids, share=0.3, seed=1)
    rows = [actual.text_N == text for text in range(len(ids))]
    shown = [actual.corrupted_N[row].tolist() for row in rows]
    assert [actual.original_N[row].tolist() for row in rows] == ids
    assert [actual.position_N[row].tolist() for row in rows] == [list(range(len(one))) for one in ids]
    assert [int(actual.masked_N[row].sum()) for row in rows] == [round(0.3 * len(one)) for one in ids]
    assert actual.corrupted_N.max() < vocabulary_size(generator.tokenizer)  # the table has more rows
    assert actual.replaced_N.any() and not actual.replaced_N[~actual.masked_N].any()
    np.testing.assert_allclose(actual.logits_N, np.concatenate(scorer.logits(shown)), atol=1e-5)
    np.testing.assert_allclose(actual.clean_logits_N, np.concatenate(scorer.logits(ids)), atol=1e-5)
    # The generator's predictions at the positions, one text at a time.
    places = [actual.position_N[row & actual.masked_N] for row in rows]
    n = 0
    for text, where in enumerate(places):
        for _, part, log_probabilities in generator([ids[text]], [where]):
            for place, each in zip(part, log_probabilities, strict=True):
                original, drawn = ids[text][place], shown[text][place]
                assert actual.original_log_probability_n[n] == pytest.approx(each[original].item(), abs=1e-4)
                assert actual.sampled_log_probability_n[n] == pytest.approx(each[drawn].item(), abs=1e-4)
                assert actual.rank_n[n] == (each > each[original]).sum()
                entropy = torch.distributions.Categorical(logits=each).entropy().item()
                assert actual.entropy_n[n] == pytest.approx(entropy, abs=1e-3)
                n += 1
    assert n == len(actual.rank_n)


def test_samples_do_not_depend_on_other_texts(
    towers: tuple[Scorer, MaskedTokenPredictor], ids: list[list[int]]
) -> None:
    whole, again = corrupt_texts(*towers, ids), corrupt_texts(*towers, ids)
    for field in fields(whole):
        np.testing.assert_array_equal(getattr(whole, field.name), getattr(again, field.name))
    assert (corrupt_texts(*towers, ids, seed=1).masked_N != whole.masked_N).any()


def test_at_a_low_temperature_the_most_likely_token_is_sampled(
    towers: tuple[Scorer, MaskedTokenPredictor], ids: list[list[int]]
) -> None:
    usual, cold = (corrupt_texts(*towers, ids, share=0.9, temperature=value) for value in (1.0, 1e-4))
    likelier = cold.sampled_log_probability_n - usual.sampled_log_probability_n
    assert likelier.min() > -1e-4 and likelier.max() > 0.1
    assert (cold.sampled_log_probability_n >= cold.original_log_probability_n - 1e-4).all()


def test_a_sample_that_is_the_original_replaces_nothing(
    towers: tuple[Scorer, MaskedTokenPredictor], ids: list[list[int]]
) -> None:
    actual = corrupt_texts(*towers, ids)
    right = replace(actual, corrupted_N=actual.original_N)
    assert right.masked_N.any() and not right.replaced_N.any()


def test_tokens_are_sampled_by_their_probabilities() -> None:
    logits = torch.tensor([0.5, 0.25, 0.0, 0.25]).log()
    uniforms = (np.arange(1000) + 0.5) / 1000
    actual = sample_tokens(logits.expand(1000, 4), uniforms)
    assert actual.bincount(minlength=4).tolist() == [500, 250, 0, 250]
    assert sample_tokens(logits.expand(1, 4), np.array([0.0])).item() == 0


def test_different_vocabularies_are_refused(towers: tuple[Scorer, MaskedTokenPredictor], tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", kind="bpe", head=MaskedLanguageModelHead)
    with pytest.raises(DataError, match="different vocabularies; give two of one run"):
        corrupt_texts(towers[0], MaskedTokenPredictor(other, device="cpu"), [[1]])
