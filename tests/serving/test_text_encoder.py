"""States and embeddings are those of transformers in any batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import electra
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.batching import overlapping_windows

TEXTS = ["The cat sat on the mat.", "a", "", "A dog ate my homework, twice!", "naïve Café", "  ", "the mat 中文"]
LENGTH = 16
LONG = " ".join(["the cat sat on the mat . a dog ate my homework"] * 6)


@pytest.fixture(scope="module", params=["electra", "bert"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = train_tokenizer(TEXTS * 5, vocabulary_size=120)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        layers=2, hidden_size=16, embedding_size=8 if request.param == "electra" else 16, feed_forward_size=32,
        heads=2, max_positions=LENGTH, vocabulary_size=120, initializer_range=0.4, linear_initializer_range=0.4,
    )  # fmt: skip
    head = ReplacedTokenHead(config) if request.param == "electra" else MaskedLanguageModelHead(config)
    huggingface.save(
        folder / "model", encoder=BertEncoder(config), head=head, tokenizer_json=folder / "tokenizer.json",
        card="", model_type=request.param,
    )  # fmt: skip
    return folder / "model"


@pytest.fixture(scope="module")
def encoder(model: Path) -> electra.TextEncoder:
    return electra.TextEncoder(model, device="cpu")


def of_transformers(model: Path, text: str) -> Tensor:
    """The hidden states (L, D), with those of [CLS] and [SEP]."""
    from transformers import AutoModel, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(model)(text, return_tensors="pt")
    with torch.no_grad():
        return AutoModel.from_pretrained(model).eval()(**inputs).last_hidden_state[0]


@pytest.mark.parametrize("batch_tokens", [1, 24, None])
def test_states_and_embeddings_are_those_of_transformers(model, encoder, batch_tokens) -> None:  # type: ignore[no-untyped-def]
    states = encoder(TEXTS, batch_tokens=batch_tokens)
    embeddings = encoder.encode(TEXTS, batch_tokens=batch_tokens)
    assert len(states) == len(TEXTS) and embeddings.shape == (len(TEXTS), 16)
    assert embeddings.dtype == np.float32 and len({len(state_LD) for state_LD in states}) > 3
    for text, state_LD, embedding_D in zip(TEXTS, states, embeddings, strict=True):
        expected_LD = of_transformers(model, text)
        assert state_LD.dtype == np.float32 and state_LD.shape == (len(expected_LD) - 2, 16)
        np.testing.assert_allclose(state_LD, expected_LD[1:-1], atol=1e-5)
        np.testing.assert_allclose(embedding_D, expected_LD.mean(0), atol=1e-5)


def test_a_long_text_is_read_in_windows(encoder) -> None:  # type: ignore[no-untyped-def]
    texts = ["the cat", LONG, "a dog"]
    ids = encoder.tokenizer.encode(LONG, add_special_tokens=False).ids
    special, parts, size = encoder.batcher.special, [], LENGTH - 2
    assert len(ids) > 5 * size
    for window in overlapping_windows(0, len(ids), size):
        row = [special.classify, *ids[window.start : window.end], special.separate]
        with torch.no_grad():
            state_LD = encoder.backend.encoder(torch.tensor([row]))[0]
        first = 1 + window.keep_start - window.start
        parts.append(state_LD[first : first + window.keep_end - window.keep_start])
        if window.start == 0:
            classify_1D = state_LD[:1]
        if window.end == len(ids):
            separate_1D = state_LD[-1:]
    short, state_LD, _ = encoder(texts)
    assert len(short) == 2 and len(state_LD) == len(ids)
    np.testing.assert_allclose(state_LD, torch.cat(parts), atol=1e-5)
    mean_D = torch.cat([classify_1D, *parts, separate_1D]).mean(0)
    np.testing.assert_allclose(encoder.encode(texts)[1], mean_D, atol=1e-5)


def test_no_text_no_state(encoder) -> None:  # type: ignore[no-untyped-def]
    assert encoder([]) == []
    assert encoder.encode([]).shape == (0, 16)


def test_one_text_instead_of_a_list_is_refused(encoder) -> None:  # type: ignore[no-untyped-def]
    for method in (encoder, encoder.encode):
        with pytest.raises(TypeError, match="give a list of texts"):
            method("a text")
