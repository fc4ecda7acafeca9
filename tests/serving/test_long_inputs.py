"""Networks with rotary positions read more at once than they were trained on, with one warning."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import LENGTH, TEXTS, write_model

import electra
from electra.errors import ConfigError
from electra.export import huggingface
from electra.export.loading import load_pretrained
from electra.modeling.encoders.modernbert import ModernBertConfig
from electra.serving.backends import load_model
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder
from electra.tasks.classification import Classification

LONG = " ".join(TEXTS * 12)
POSITIONS = 600


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "made"
    return write_model(folder, encoder=ModernBertConfig, max_positions=POSITIONS, local_window=8, global_every=2)


def test_a_folder_says_how_much_is_read_and_how_much_was_trained(model: Path, tmp_path: Path) -> None:
    loaded = load_pretrained(model)
    assert (loaded.max_length, loaded.trained_length) == (POSITIONS, LENGTH)
    assert json.loads((model / "tokenizer_config.json").read_text())["model_max_length"] == POSITIONS
    huggingface.save_pretrained(loaded, tmp_path / "again", source=model)
    again = load_pretrained(tmp_path / "again")
    assert (again.max_length, again.trained_length) == (POSITIONS, LENGTH)
    table = write_model(tmp_path / "learned", encoder=ModernBertConfig, position_encoding="learned")
    loaded = load_pretrained(table)
    assert (loaded.max_length, loaded.trained_length) == (LENGTH, LENGTH)
    assert huggingface.TRAINED_LENGTH not in (table / "config.json").read_text()


def test_a_long_text_is_read_at_once_and_warned_of_once(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scorer = Scorer(model, device="cpu")
        scorer(TEXTS[:1])
        assert not caplog.records
        [scored] = scorer([LONG])
        scorer([LONG])
    [record] = caplog.records
    length = len(scored.tokens) + 2
    assert (
        f"An input of {length:,} tokens is longer than those that the network was trained on (16)"
        in record.message
    )
    assert "--max-length 16" in record.message and length > 100
    ids = scorer.tokenizer.encode(LONG, add_special_tokens=False).ids
    special = scorer.batcher.special
    with torch.inference_mode():
        expected = scorer.backend.replaced_logits(torch.tensor([[special.classify, *ids, special.separate]]), None)
    np.testing.assert_allclose(scored.logits, expected[0, 1:-1], atol=1e-6)


def test_each_loaded_model_warns_once(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    both = [load_model(model) for _ in range(2)]
    with caplog.at_level(logging.WARNING):
        for loaded in both:
            Scorer(loaded, device="cpu")([LONG])
            TextEncoder(loaded, device="cpu")([LONG])
    assert len(caplog.records) == 2


def test_too_few_tokens_are_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="--max-length 2: must be at least 3"):
        Scorer(model, max_length=2)
    assert len(TextEncoder(model, device="cpu", max_length=3)(TEXTS[:1])[0]) > 3


def test_fewer_tokens_can_be_read_at_once(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cut, whole = (TextEncoder(model, device="cpu", max_length=length)([LONG])[0] for length in (LENGTH, None))
    assert len(caplog.records) == 1 and cut.shape == whole.shape and not np.allclose(cut, whole, atol=1e-3)
    assert np.array_equal(electra.load(model, device="cpu", max_length=LENGTH).states([LONG])[0], cut)
    with pytest.raises(ConfigError, match="--max-length 601: the model reads at most 600 tokens at once"):
        Scorer(model, max_length=POSITIONS + 1)


def test_a_fine_tuned_model_reads_as_much_as_its_task_or_as_asked(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = load_pretrained(model)
    problem = Classification(("accuracy",), labels=("bad", "good"))
    huggingface.save(
        tmp_path / "tuned", encoder=loaded.encoder, head=problem.build_head(loaded.encoder.config), card="",
        tokenizer_json=model.parent / "tokenizer.json", max_length=2 * LENGTH,
        task={**problem.to_dict(), "max_length": 2 * LENGTH},
    )  # fmt: skip
    [short] = Predictor(tmp_path / "tuned", device="cpu")([LONG])
    assert short["cut"] and "too long" in caplog.text and "trained on" not in caplog.text
    [whole] = Predictor(tmp_path / "tuned", device="cpu", max_length=POSITIONS)([LONG])
    assert "cut" not in whole and "trained on (32)" in caplog.text
    assert short["scores"] != whole["scores"]
    with pytest.raises(ConfigError, match="--max-length 7: must be at least 8"):
        Predictor(tmp_path / "tuned", max_length=7)


def test_an_onnx_folder_knows_the_length_of_the_training(model: Path, tmp_path: Path) -> None:
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package)
    from electra.export.onnx.write import save_onnx

    loaded = load_pretrained(model)
    save_onnx(loaded, tmp_path / "onnx")
    exported = load_model(tmp_path / "onnx", max_length=100)
    assert (exported.max_length, exported.trained_length) == (100, LENGTH)
    scores = [Scorer(one, device="cpu")([LONG])[0].logits for one in (replace(loaded, max_length=100), exported)]
    np.testing.assert_allclose(*scores, atol=1e-4)
