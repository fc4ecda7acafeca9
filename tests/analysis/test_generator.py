"""A model's proposals, compared with a computation for one masked token at a time."""

import math

import numpy as np
import pytest
import torch
from small_model import LENGTH, TEXTS, write_model

from electra.analysis.frequency import FrequencyBands
from electra.analysis.generator import (
    example_proposals,
    measure_diversity,
    summarize_proposals,
    token_classes,
    top_token_calibration,
)
from electra.analysis.proposals import (
    MaskedTexts,
    Proposals,
    TokenClasses,
    measure_proposals,
    same_class_probability,
)
from electra.data import tokenizer as tokenizers
from electra.data.tags import TagTable
from electra.modeling.heads import MaskedLanguageModelHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.masked_token_predictor import MaskedTokenPredictor

ROWS = 400
"""Embeddings of the small model, more than its tokenizer has tokens."""


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> MaskedTokenPredictor:
    folder = tmp_path_factory.mktemp("generator")
    return MaskedTokenPredictor(write_model(folder / "generator", head=MaskedLanguageModelHead), device="cpu")


@pytest.fixture(scope="module")
def masked(predictor: MaskedTokenPredictor) -> MaskedTexts:
    ids = [predictor.tokenizer.encode(text, add_special_tokens=False).ids[: LENGTH - 2] for text in TEXTS]
    return MaskedTexts.sample(ids, share=0.4, seed=3)


def test_a_fraction_of_each_text_is_masked(masked: MaskedTexts) -> None:
    assert [len(where) for where in masked.positions] == [max(1, round(0.4 * len(one))) for one in masked.ids]
    assert all((np.diff(where) > 0).all() for where in masked.positions)
    n = 0
    for text, where in enumerate(masked.positions):
        for place in where:
            assert (masked.text_n[n], masked.original_n[n]) == (text, masked.ids[text][place])
            n += 1


def test_values_of_each_token_at_each_temperature(predictor: MaskedTokenPredictor, masked: MaskedTexts) -> None:
    class_V = np.arange(ROWS) % 7
    ways = [TokenClasses("seventh", class_V, np.ones(ROWS, bool))]
    actual = measure_proposals(predictor, masked, temperatures=(1.0, 0.5), classes=ways, special=(0, 1, 2, 3, 4))
    n = 0
    for text, where in enumerate(masked.positions):
        for _, part, log_probabilities in predictor([masked.ids[text]], [where]):
            for place, row_V in zip(part, log_probabilities, strict=True):
                original = masked.ids[text][place]
                for temperature, one in actual.items():
                    p_V = (row_V / temperature).softmax(-1)
                    like = sum(p_V[i].item() for i in range(ROWS) if i % 7 == original % 7 and i != original)
                    assert one.loss_n[n] == pytest.approx(-math.log(p_V[original]), abs=1e-4)
                    assert one.probability_n[n] == pytest.approx(p_V[original].item(), abs=1e-5)
                    assert one.rank_n[n] == (p_V > p_V[original]).sum()
                    entropy = torch.distributions.Categorical(probs=p_V).entropy().item()
                    assert one.entropy_n[n] == pytest.approx(entropy, abs=1e-3)
                    assert one.top_probability_n[n] == pytest.approx(p_V.max().item(), abs=1e-5)
                    assert one.special_n[n] == pytest.approx(p_V[:5].sum().item(), abs=1e-5)
                    assert one.same_class_Kn[0, n] == pytest.approx(like, abs=1e-4)
                    assert p_V[int(one.sampled_n[n])] > 0
                    assert one.sampled_n[n] < tokenizers.vocabulary_size(predictor.tokenizer)
                n += 1
    assert n == len(actual[1.0].loss_n)


def test_same_class_probability_excludes_the_original() -> None:
    probabilities = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    classes = torch.tensor([[0, 0, 1, 1], [0, 1, 2, 0]])
    by_pair, by_three = same_class_probability(probabilities, torch.tensor([0, 3]), classes)
    torch.testing.assert_close(by_pair, torch.tensor([0.2, 0.2]))
    torch.testing.assert_close(by_three, torch.tensor([0.4, 0.4]))


def known(**changed: object) -> Proposals:
    """Four tokens of two texts, by hand."""
    values: dict[str, object] = {
        "text_n": np.array([0, 0, 1, 1]),
        "original_n": np.array([5, 6, 7, 5]),
        "sampled_n": np.array([5, 7, 5, 6]),
        "loss_n": -np.log([0.5, 0.25, 0.2, 0.1]),
        "rank_n": np.array([0, 3, 9, 60]),
        "entropy_n": np.array([1.0, 2.0, 3.0, 4.0]),
        "top_probability_n": np.array([0.5, 0.5, 0.75, 0.75]),
        "special_n": np.array([0.0, 0.0, 0.1, 0.1]),
        "same_class_Kn": np.array([[0.25, 0.25, 0.3, 0.4]]),
    }
    return Proposals(**(values | changed))  # type: ignore[arg-type]


def test_a_summary_by_hand() -> None:
    counts_V = np.array([0, 0, 0, 0, 0, 50, 30, 20])
    bands = FrequencyBands.from_counts(counts_V)
    ways = [TokenClasses("evenness", np.arange(8) % 2, np.arange(8) != 6)]
    one = summarize_proposals(known(), bands=bands, classes=ways, counts_V=counts_V, resamples=50)
    assert one["tokens"] == 4 and one["loss"]["value"] == pytest.approx(-math.log(0.0025) / 4)
    assert one["loss"]["low"] == pytest.approx(-math.log(0.125) / 2)  # the first text twice
    assert one["perplexity"] == pytest.approx(0.0025**-0.25)
    assert [one[f"top_{k}"]["value"] for k in (1, 5, 10, 50)] == [0.25, 0.5, 0.75, 0.75]
    assert one["original"]["value"] == pytest.approx(1.05 / 4) and one["same"]["value"] == 0.25
    assert one["special"] == pytest.approx(0.05)
    # The class of 6 is unknown. Fakes: .25 of .5, .3 of .8, .4 of .9.
    (way,) = one["alike"]
    assert (way["tokens"], way["fakes"]) == (3, pytest.approx(0.95 / 2.2))
    assert way["chance"] == pytest.approx((0.2 + 0.5 + 0.2) / (0.5 + 0.8 + 0.5))
    assert one["diversity"] | {"entropy_fakes": 0, "entropy_text": 0} == {
        "fakes": 3, "distinct_fakes": 3, "distinct_text": 3, "entropy_fakes": 0, "entropy_text": 0,
    }  # fmt: skip
    (band,) = one["bands"]  # all three are in the top 10
    assert (band["name"], band["tokens"], band["share_of_fakes"], band["share_of_replaced"]) == ("top 10", 4, 1, 1)


def test_bands_of_originals_and_of_fakes() -> None:
    counts_V = np.zeros(30, np.int64)
    counts_V[np.arange(8, 28)] = 100
    counts_V[5:8] = [1000, 10, 0]
    one = summarize_proposals(
        known(), bands=FrequencyBands.from_counts(counts_V), classes=[], counts_V=counts_V, resamples=9
    )
    actual = {band["name"]: band for band in one["bands"]}
    assert [*actual] == ["top 10", "top 100", "never seen"]
    assert [band["tokens"] for band in actual.values()] == [2, 1, 1]
    assert actual["top 10"]["original"] == pytest.approx(0.3) and actual["never seen"]["entropy"] == 3.0
    # Fakes are 7, 5, 6; they replaced 6, 7, 5.
    assert [band["share_of_fakes"] for band in actual.values()] == pytest.approx([1 / 3] * 3)
    assert [band["share_of_replaced"] for band in actual.values()] == pytest.approx([1 / 3] * 3)


def test_the_calibration_error_of_calibrated_and_overconfident_predictions() -> None:
    draw = np.random.default_rng(0)
    confidence_n = draw.random(50_000)
    right_n = draw.random(50_000) < confidence_n
    assert top_token_calibration(confidence_n, right_n)["error"] < 0.02
    surer = top_token_calibration(np.sqrt(confidence_n), right_n)
    assert surer["error"] == pytest.approx(2 / 3 - 1 / 2, abs=0.01)  # the means of sqrt(x) and x
    assert sum(one["tokens"] for one in surer["bins"]) == 50_000
    assert len(top_token_calibration(np.array([0.5]), np.array([True]))["bins"]) == 1


def test_diversity_of_equal_fakes() -> None:
    actual = measure_diversity(np.array([1, 2, 3, 4, 9]), np.array([7, 7, 8, 8, 9]))
    assert (actual["fakes"], actual["distinct_fakes"], actual["distinct_text"]) == (4, 2, 4)
    assert actual["entropy_fakes"] == pytest.approx(math.log(2))
    assert actual["entropy_text"] == pytest.approx(math.log(4))
    assert measure_diversity(np.array([1]), np.array([1]))["entropy_fakes"] == 0


def test_classifications_of_tokens() -> None:
    tokenizer = train_tokenizer(TEXTS * 5, vocabulary_size=150)
    size = tokenizers.vocabulary_size(tokenizer)
    bands = FrequencyBands.from_counts(np.arange(size + 5))
    table = TagTable(("?", "NOUN"), np.arange(size) % 2)
    tag, letter, piece, band = token_classes(tokenizer, bands, table)
    assert [tag.name, letter.name, piece.name, band.name] == [
        "tag", "first letter", "kind of piece", "frequency band",
    ]  # fmt: skip
    numbers = tokenizer.get_vocab()
    assert letter.class_V[numbers["c"]] == letter.class_V[numbers["##c"]] != letter.class_V[numbers["a"]]
    assert piece.class_V[numbers["c"]] != piece.class_V[numbers["##c"]]
    assert tag.known_V.tolist() == [i % 2 == 1 for i in range(size)] + [False] * 5
    assert token_classes(tokenizer, bands, None)[0].name == "first letter"


def test_examples_show_masks_and_the_most_probable_tokens(
    predictor: MaskedTokenPredictor, masked: MaskedTexts
) -> None:
    actual = example_proposals(predictor, masked, count=2)
    several = [i for i, where in enumerate(masked.positions) if len(where) > 1]
    for one, text in zip(actual, several, strict=False):
        originals = [predictor.tokenizer.id_to_token(masked.ids[text][place]) for place in masked.positions[text]]
        assert one["text"].count("[MASK]") == len(originals)
        assert [mask["original"] for mask in one["masks"]] == originals
        for mask in one["masks"]:
            values = [value for _, value in mask["proposals"]]
            assert len(values) == 5 and values == sorted(values, reverse=True)
            shown = dict(map(tuple, mask["proposals"]))
            assert shown.get(mask["original"], 0) in (0, pytest.approx(mask["probability"]))
    assert example_proposals(predictor, masked, count=0) == []
