"""Masked tokens of texts of any length, compared with one text at a time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import LENGTH, TEXTS, write_model

from electra.errors import CheckpointError
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.serving import masked_token_predictor
from electra.serving.masked_token_predictor import MaskedTokenPredictor


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> MaskedTokenPredictor:
    folder = tmp_path_factory.mktemp("words") / "generator"
    return MaskedTokenPredictor(write_model(folder, head=MaskedLanguageModelHead), device="cpu")


def plain(predictor: MaskedTokenPredictor, ids: list[int], places: list[int]) -> torch.Tensor:
    """The log-probabilities of one text that is not longer than the inputs."""
    special = predictor.batcher.special
    masked = [special.mask if place in places else token for place, token in enumerate(ids)]
    with torch.no_grad():
        x_BLD = predictor.backend.encoder(torch.tensor([[special.classify, *masked, special.separate]]))
        logits = predictor.backend.head.logits(x_BLD[0, 1:-1], predictor.backend.encoder.embeddings.token.weight)
    return logits[sorted(places)].log_softmax(-1)


def test_all_positions_of_all_texts(predictor: MaskedTokenPredictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_token_predictor, "MAX_LOGIT_ROWS", 2)
    ids = [one.ids[: LENGTH - 2] for one in predictor.tokenizer.encode_batch(TEXTS, add_special_tokens=False)]
    places = [[0], [3, 1, 4], [], [len(ids[3]) - 1, 0]]
    actual: dict[int, list[tuple[np.ndarray, torch.Tensor]]] = {}
    for text, part, log_probabilities in predictor(ids, places):
        actual.setdefault(text, []).append((part, log_probabilities))
    assert set(actual) == {0, 1, 3} and [len(part) for part, _ in actual[1]] == [2, 1]
    for text, parts in actual.items():
        assert np.concatenate([part for part, _ in parts]).tolist() == sorted(places[text])
        expected = plain(predictor, ids[text], places[text])
        torch.testing.assert_close(torch.cat([each for _, each in parts]), expected, rtol=1e-5, atol=1e-5)


def test_a_long_text_is_read_in_windows(predictor: MaskedTokenPredictor) -> None:
    ids = [predictor.tokenizer.encode(" ".join(TEXTS * 3), add_special_tokens=False).ids]
    assert len(ids[0]) > 3 * LENGTH
    actual = dict.fromkeys(range(len(ids[0])), 0)
    for _, part, log_probabilities in predictor(ids, [range(len(ids[0]))]):
        assert len(part) == len(log_probabilities)
        torch.testing.assert_close(log_probabilities.exp().sum(1), torch.ones(len(part)))
        for place in part:
            actual[int(place)] += 1
    assert set(actual.values()) == {1}


def test_a_discriminator_is_no_masked_language_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"predicts no masked tokens; give .* RUN/export/generator"):
        MaskedTokenPredictor(write_model(tmp_path / "model", head=ReplacedTokenHead))
