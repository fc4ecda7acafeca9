"""Saving a loaded model, and its upload."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi
from small_model import TEXTS, write_model
from transformers import AutoModel, AutoTokenizer

import electra
from electra.commands.export import ExportConfig
from electra.commands.export import run as export
from electra.errors import CheckpointError, ConfigError
from electra.export.onnx.write import save_onnx
from electra.modeling.encoders.bert import BertConfig
from electra.modeling.encoders.modernbert import ModernBertConfig
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.http.hosted_model import HostedModel
from electra.tasks.classification import Classification


@pytest.mark.parametrize("head", ["discriminator", "masked language model"])
def test_a_saved_model_has_the_present_weights_and_the_same_files(head: str, tmp_path: Path) -> None:
    heads = {"masked language model": {"head": MaskedLanguageModelHead}}
    source = write_model(tmp_path / "source", **heads.get(head, {}))
    (source / "README.md").write_text("# My model")
    model = electra.load(source)
    with torch.no_grad():
        model.encoder.embeddings.token.weight.mul_(1.5)
    saved = model.save(tmp_path / "saved")
    again = electra.load(saved)
    assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert not np.allclose(electra.load(source).encode(TEXTS), model.encode(TEXTS))
    assert (saved / "config.json").read_text() == (source / "config.json").read_text()
    assert (saved / "README.md").read_text() == "# My model"
    assert {path.name for path in saved.iterdir()} == {path.name for path in source.iterdir()}


@pytest.mark.parametrize("encoder", [BertConfig, ModernBertConfig])
def test_transformers_loads_a_saved_model(encoder: type, tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", encoder=encoder)
    model = electra.load(source)
    folder = model.save(tmp_path / "saved")
    theirs, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states_1LD = theirs(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(states_1LD[0, 1:-1], model.states(TEXTS[:1])[0], atol=1e-5)


def test_a_push_is_the_saved_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "source")
    sizes = {path.name: path.stat().st_size for path in source.iterdir()}
    monkeypatch.setattr(HfApi, "create_commit", lambda *_, **__: pytest.fail("something was sent"))
    upload = electra.load(source).push("me/small", dry_run=True)
    assert upload.url is None and upload.sizes == sizes


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source")
    model = electra.load(source)
    save_onnx(model.pretrained, tmp_path / "onnx")
    with pytest.raises(CheckpointError, match="onnx cannot be saved"):
        electra.load(tmp_path / "onnx").save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    model = electra.load(write_model(tmp_path / "source"))
    data = tmp_path / "data"
    data.mkdir()
    (data / "tokenizer.json").write_text("of the data")
    with pytest.raises(CheckpointError, match=r"data is not empty and is no model \(it has tokenizer.json\)"):
        model.save(data)
    assert [path.name for path in data.iterdir()] == ["tokenizer.json"]
    (data / "tokenizer.json").unlink()
    (data / "config.json").write_text('{"my": "project"}')
    with pytest.raises(CheckpointError, match=r"it has config.json"):
        model.save(data)
    (clone := tmp_path / "clone").mkdir()
    (clone / ".gitattributes").touch()
    assert model.save(model.save(clone)) == clone  # a clone from the hub, and a model that is there already


def test_a_save_that_was_interrupted_can_be_repeated(tmp_path: Path) -> None:
    saved = electra.load(write_model(tmp_path / "source")).save(tmp_path / "saved")
    (saved / "config.json").unlink()  # it is written last
    model = electra.load(tmp_path / "source")
    (saved / "notes.txt").touch()
    with pytest.raises(CheckpointError, match=r"it has notes.txt"):
        model.save(saved)
    (saved / "notes.txt").unlink()
    model.save(saved)
    (saved / "model.safetensors").rename(saved / "electra_factors.safetensors")  # they are written before
    (saved / "config.json").unlink()
    model.save(saved)
    assert electra.load(saved).tokenizer.get_vocab_size() == model.tokenizer.get_vocab_size()


def test_a_device_that_is_missing_is_an_error_when_the_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no device 'gpu'"):
        electra.load(write_model(tmp_path / "model"), device="gpu")


def test_a_model_whose_fine_tuning_failed_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_model(tmp_path / "tuned", problem=Classification(("accuracy",), labels=("bad", "good")))
    electra.load(folder).predict(TEXTS)
    assert "failed" not in caplog.text
    config = json.loads((path := folder / "config.json").read_text())
    config["electra_task"]["failed"] = 'it always predicts "bad"'
    path.write_text(json.dumps(config))

    def warned(model: Path) -> bool:
        messages = [message for message in caplog.messages if "failed" in message]
        caplog.clear()
        return messages == [
            f'the fine-tuning of {model} failed: it always predicts "bad"; do not use its predictions'
        ]

    electra.load(folder).predict(TEXTS)
    assert warned(folder)
    HostedModel(str(folder), device="cpu")
    assert warned(folder)
    export(ExportConfig(str(folder), to="onnx", out=tmp_path / "onnx"))
    assert warned(folder)
    electra.load(tmp_path / "onnx").predict(TEXTS)
    assert warned(tmp_path / "onnx")
