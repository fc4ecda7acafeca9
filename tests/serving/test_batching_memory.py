"""Long texts and networks with a memory: consecutive windows with memory, or overlapping windows."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from electra.errors import CheckpointError
from electra.export import huggingface
from electra.modeling.encoders.relative import RelativeConfig, RelativeEncoder
from electra.modeling.heads import ReplacedTokenHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.serving.batching import LongTextMode, consecutive_windows, overlapping_windows
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder

WORDS = ["the", "ferry", "leaves", "harbour", "at", "seven", "and", "comes", "back", "noon"]
LENGTH, MEMORY = 16, 24


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    def made(memory_length: int) -> Path:
        folder = tmp_path_factory.mktemp("long")
        tokenizer = train_tokenizer([" ".join(WORDS)] * 9, vocabulary_size=80)
        tokenizer.save(str(folder / "tokenizer.json"))
        torch.manual_seed(0)
        config = RelativeConfig(
            layers=2, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, vocabulary_size=80,
            memory_length=memory_length, type_vocabulary_size=1, initializer_range=0.4,
            linear_initializer_range=0.4,
        )  # fmt: skip
        huggingface.save(
            folder / "model", encoder=config.build(), head=ReplacedTokenHead(config), card="",
            tokenizer_json=folder / "tokenizer.json", max_length=LENGTH,
        )  # fmt: skip
        return folder / "model"

    return made


@pytest.fixture(scope="module")
def model(make: Callable[[int], Path]) -> Path:
    return make(MEMORY)


def texts(*sizes: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=size)) for size in sizes]


def framed(scorer: Scorer, text: str) -> list[int]:
    separate = scorer.batcher.special.separate
    return [separate, *scorer.tokenizer.encode(text, add_special_tokens=False).ids, separate]


@torch.no_grad()
def by_hand(scorer: Scorer, text: str) -> Tensor:
    """The logits of a text whose windows go through the encoder one by one."""
    encoder = scorer.backend.encoder
    assert isinstance(encoder, RelativeEncoder)
    memory, logits = None, []
    for window in torch.tensor([framed(scorer, text)]).split(LENGTH, 1):
        actual = encoder.encode(window, memory_YBMD=memory)
        memory = actual.memory_YBMD
        logits.append(scorer.backend.head(actual.states_BND)[0])
    return torch.cat(logits)[1:-1]


@pytest.mark.parametrize("batch_tokens", [1, 3 * LENGTH, None])
def test_scores_with_memory_equal_consecutive_windows(model: Path, batch_tokens: int | None) -> None:
    """In any batch, also for texts that end at the end of a window or one token after it."""
    scorer = Scorer(model, device="cpu")
    many = texts(3, LENGTH - 2, 0, 90, LENGTH - 1, 2 * LENGTH - 2, 2 * LENGTH - 1, 40, 1)
    for text, actual in zip(many, scorer(many, batch_tokens=batch_tokens), strict=True):
        assert actual.text == text and len(actual.tokens) == len(text.split())
        np.testing.assert_allclose(actual.logits, by_hand(scorer, text).numpy(), atol=1e-5)


def test_memory_and_windows_differ_for_long_texts_only(model: Path) -> None:
    short, long = texts(LENGTH - 2, LENGTH - 1)
    remembered, overlapping = (
        Scorer(model, device="cpu", long=way)([short, long]) for way in ("memory", "windows")
    )
    np.testing.assert_allclose(remembered[0].logits, overlapping[0].logits, atol=1e-6)
    assert np.abs(remembered[1].logits - overlapping[1].logits).max() > 1e-3


def test_memory_is_the_default_of_models_that_have_one(model: Path, make: Callable[[int], Path]) -> None:
    assert Scorer(model, device="cpu").batcher.long == "memory"
    without = make(0)
    scorer = Scorer(without, device="cpu")
    assert scorer.batcher.long == "windows" and scorer.batcher.start_token == scorer.batcher.special.classify
    with pytest.raises(CheckpointError, match=r"no memory to read long texts with; .* in windows"):
        Scorer(without, device="cpu", long="memory")


@pytest.mark.parametrize("long", ["memory", "windows"])
def test_states_and_their_mean(model: Path, long: LongTextMode) -> None:
    """The mean includes the special tokens at both ends of the text once, for any split into windows."""
    encoder, scorer = TextEncoder(model, device="cpu", long=long), Scorer(model, device="cpu")
    many = texts(60, 4, 0, LENGTH - 1, 2 * LENGTH - 2)
    states, means_ND = encoder(many), encoder.encode(many)
    assert [len(state_LD) for state_LD in states] == [60, 4, 0, LENGTH - 1, 2 * LENGTH - 2]
    assert isinstance(scorer.backend.encoder, RelativeEncoder)
    for text, state_LD, mean_D in zip(many, states, means_ND, strict=True):
        ids_BL = torch.tensor([framed(scorer, text)])
        if long == "windows" and ids_BL.shape[1] > LENGTH:
            continue
        memory, parts = None, []
        for window in ids_BL.split(LENGTH, 1):
            actual = scorer.backend.encoder.encode(window, memory_YBMD=memory)
            memory = actual.memory_YBMD
            parts.append(actual.states_BND[0].detach())
        expected_LD = torch.cat(parts).numpy()
        np.testing.assert_allclose(state_LD, expected_LD[1:-1], atol=1e-5)
        np.testing.assert_allclose(mean_D, expected_LD.mean(0), atol=1e-5)


@pytest.mark.parametrize("length", [3, 4, 16])
@pytest.mark.parametrize("tokens", [0, 1, 2, 13, 14, 15, 16, 29, 30, 31, 99])
def test_consecutive_windows_cover_the_text(tokens: int, length: int) -> None:
    actual = consecutive_windows(7, tokens, length)
    stream = [place for w in actual for place in [-1] * w.before + [*range(w.start, w.end)] + [tokens] * w.after]
    assert stream == [*range(-1, tokens + 1)], "every token once, with one special token on either side"
    assert all(window.length == length for window in actual[:-1]) and 0 < actual[-1].length <= length
    assert all(window.kept == slice(window.start, window.end) for window in actual)
    if tokens + 2 <= length:
        assert actual == overlapping_windows(7, tokens, length - 2)
