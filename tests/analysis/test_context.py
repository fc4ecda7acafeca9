"""The losses of a causal language model with a memory and with a sliding window, compared with plain loops."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from electra.analysis import context
from electra.analysis.context import (
    ContextLosses,
    losses_by_position,
    merge_ranges,
    sliding_window_losses,
)
from electra.analysis.context_speed import measure_speed
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export.pretrained import Head, Pretrained
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.modeling.encoders.relative import RelativeConfig, RelativeEncoder
from electra.modeling.heads import LanguageModelHead, ReplacedTokenHead
from electra.serving import causal_language_model
from electra.serving.causal_language_model import CausalLanguageModel, compute_token_losses

V, SEPARATE = 40, 3


def config(layers: int, **others: Any) -> EncoderConfig:
    small = RelativeConfig(
        layers=layers, hidden_size=16, embedding_size=16, feed_forward_size=24, heads=2, vocabulary_size=V,
        direction="left", type_vocabulary_size=1, memory_length=5, initializer_range=0.5,
        linear_initializer_range=0.5,
    )  # fmt: skip
    return replace(small, **others)


def model(layers: int = 2) -> CausalLanguageModel:
    torch.manual_seed(0)
    encoder, head = RelativeEncoder(config(layers)).eval(), LanguageModelHead(config(layers))
    torch.nn.init.normal_(head.bias)
    return CausalLanguageModel(encoder, head, window=4)


def documents(*lengths: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    texts = [torch.randint(4, V, (length,), generator=random) for length in lengths]
    return [torch.cat([torch.tensor([SEPARATE]), text]) for text in texts]


@torch.no_grad()
def plain(one: CausalLanguageModel, document: Tensor, place: int, seen: int) -> float:
    """-log p of the token at a position given the `seen` tokens before it, read as a separate row."""
    row = document[max(0, place + 1 - seen) : place + 1]
    state_D = one.encoder(row[None])[0, -1]
    logits_V = one.encoder.embeddings.token.weight @ state_D + one.head.bias
    return -float(logits_V.log_softmax(0)[document[place + 1]])


def close(actual: Tensor, expected: Tensor | list[float]) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(("window", "memory"), [(4, 0), (4, 3), (5, 12), (1, 6), (50, 7)])
def test_the_memory_of_one_block_is_exact(window: int, memory: int) -> None:
    """Its remembered states are embeddings, without context: reading with memory equals a sliding window."""
    one, [document] = model(layers=1), documents(23)
    [found_T] = compute_token_losses(one, [document], window=window, memory=memory)
    close(found_T, [plain(one, document, place, memory + place % window + 1) for place in range(23)])


def test_with_a_full_memory_the_window_does_not_matter() -> None:
    one, [document] = model(layers=3), documents(23)
    [found_T] = compute_token_losses(one, [document], window=4, memory=23)
    close(found_T, [plain(one, document, place, 99) for place in range(23)])


def test_several_blocks_reach_further_than_one_row() -> None:
    one, [document] = model(layers=3), documents(23)
    [found_T] = compute_token_losses(one, [document], window=4, memory=4)
    by_row_T = torch.tensor([plain(one, document, place, 4 + place % 4 + 1) for place in range(23)])
    close(found_T[:8], by_row_T[:8])
    assert (found_T[12:] - by_row_T[12:]).abs().min() > 1e-4


@pytest.mark.parametrize("memory", [0, 6, 30])
def test_documents_of_different_lengths_are_independent(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, several = model(), documents(9, 23, 1, 12, 4, 23, 8)
    monkeypatch.setattr(causal_language_model, "BATCH_TOKENS", 5 * 4)  # two batches
    actual = compute_token_losses(one, several, window=4, memory=memory)
    for document, found_T in zip(several, actual, strict=True):
        assert len(found_T) == len(document) - 1
        [alone_T] = compute_token_losses(one, [document], window=4, memory=memory)
        close(found_T, alone_T)


@pytest.mark.parametrize("seen", [1, 6, 40])
def test_a_sliding_window_computes_each_token_again(seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, [document] = model(layers=3), documents(23)
    monkeypatch.setattr(context, "BATCH_TOKENS", 5 * seen)
    places = [0, 2, 3, 9, 10, 22]
    found_N = sliding_window_losses(one, document, places, context=seen)
    close(found_N, [plain(one, document, place, seen) for place in places])


def test_losses_by_position() -> None:
    losses = [torch.arange(100.0), torch.full((40,), 7.0), torch.ones(1)]
    actual = losses_by_position(losses)
    assert [(one.first, one.last, one.tokens) for one in actual] == [(0, 31, 65), (32, 63, 40), (64, 99, 36)]
    assert [one.loss for one in actual] == [
        pytest.approx((sum(range(32)) + 32 * 7 + 1) / 65),
        pytest.approx((sum(range(32, 64)) + 8 * 7) / 40),
        pytest.approx(sum(range(64, 100)) / 36),
    ]
    whole = merge_ranges(actual)
    assert whole is not None and whole.tokens == 141
    assert whole.loss == pytest.approx(sum(float(one.sum()) for one in losses) / 141)
    assert merge_ranges(actual, first=256) is None
    assert merge_ranges(actual, first=32, last=63) == actual[1]


def test_summaries_of_early_and_late_losses() -> None:
    reading = ContextLosses.summarize(5, [torch.cat([torch.zeros(256), torch.ones(256), torch.full((88,), 3.0)])])
    assert reading.early == 0 and reading.late == {256: pytest.approx((256 + 3 * 88) / 344), 512: 3.0}
    assert reading.loss == pytest.approx((256 + 3 * 88) / 600)
    assert reading.perplexity == pytest.approx(np.exp(reading.loss))


def test_speed_compares_the_same_tokens() -> None:
    one, [document] = model(), documents(60)
    actual = measure_speed(one, document, window=4, memory=8, tokens=7)
    assert actual is not None and actual.context == 10 and actual.tokens == 7
    assert actual.difference < 2e-5
    assert actual.times == actual.sliding_seconds / actual.memory_seconds > 0
    places = np.linspace(12, 59, 7, dtype=int).tolist()
    [losses_T] = compute_token_losses(one, [document], window=4, memory=8)
    assert actual.memory_loss == pytest.approx(float(losses_T[places].mean()), abs=1e-5)
    expected = np.mean([plain(one, document, place, 10) for place in places])
    assert actual.sliding_loss == pytest.approx(expected, abs=1e-5)
    assert measure_speed(one, document[:13], window=4, memory=8, tokens=7) is None


def test_other_models_are_refused(data_folder: Path) -> None:
    tokenizer = load_tokenizer(data_folder / "tokenizer.json")

    def refusal(encoder: EncoderModule, head: Head | None) -> str:
        with pytest.raises(CheckpointError) as caught:
            CausalLanguageModel.from_pretrained(Pretrained(encoder, head, tokenizer, None, 64), "MODEL")
        return str(caught.value)

    both, learnt = config(1, direction="both"), config(1, kind="bert", direction="both", memory_length=0)
    for one in (both, learnt):
        assert refusal(one.build(), LanguageModelHead(one)).startswith("MODEL is bidirectional")
    for head in (None, ReplacedTokenHead(config(1))):
        assert "MODEL has no language-model head" in refusal(config(1).build(), head)
