"""The effect of quantization: which value is that of which network."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from small_model import TEXTS, write_model

from electra.analysis.quantization import compare_on_texts
from electra.export.loading import load_pretrained
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.scorer import Scorer


def test_each_value_is_that_of_its_network(tmp_path: Path) -> None:
    first, second = (load_pretrained(write_model(tmp_path / str(n), layers=n)) for n in (1, 3))
    ids = [one.ids for one in first.tokenizer.encode_batch(TEXTS * 20, add_special_tokens=False)]
    own, other = (compare_on_texts(one, one, ids) for one in (first, second))
    assert own.torch == own.onnx != other.torch == other.onnx
    both = compare_on_texts(first, second, ids)
    assert (both.torch, both.onnx) == (own.torch, other.torch)


def test_a_generator_fills_positions_of_the_same_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[Sequence[list[int]]] = []

    def logits(_: Scorer, rows: Sequence[list[int]]) -> list[np.ndarray]:
        scored.append(rows)
        return [np.arange(len(row)) for row in rows]

    discriminator = load_pretrained(write_model(tmp_path / "discriminator"))
    generator = load_pretrained(write_model(tmp_path / "generator", head=MaskedLanguageModelHead))
    ids = [one.ids for one in discriminator.tokenizer.encode_batch(TEXTS * 20, add_special_tokens=False)]
    monkeypatch.setattr(Scorer, "logits", logits)
    compare_on_texts(discriminator, discriminator, ids, generator=generator)
    for rows in scored[-2:]:
        assert [len(row) for row in rows] == [len(text) for text in ids]
        changed = np.concatenate([np.not_equal(row, text) for row, text in zip(rows, ids, strict=True)])
        assert 0 < changed.mean() < 0.25
