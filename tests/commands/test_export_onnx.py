"""`electra export --to onnx` as a user has it."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import config

from electra import cli
from electra.analysis import quantization_texts
from electra.commands import export_onnx
from electra.commands.export import ExportConfig, run
from electra.commands.export_onnx import OnnxResult
from electra.errors import CheckpointError, ConfigError, DataError, ElectraError
from electra.export import huggingface
from electra.export.loading import load_pretrained
from electra.modeling.encoders.relative import RelativeConfig
from electra.modeling.heads import ReplacedTokenHead
from electra.pretraining.run import pretrain
from electra.serving.scorer import Scorer
from electra.serving.surprisal import SurprisalScorer

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package)


@pytest.fixture(autouse=True)
def quick(without_transformers: None) -> None:
    """Without the comparison with transformers."""


@pytest.fixture(scope="module")
def trained(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, exported. Not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return pretrain(config(data_folder, out, "train.steps=5")).run


def exported(model: object, **settings: object) -> OnnxResult:
    result = run(ExportConfig(str(model), to="onnx", **settings))  # type: ignore[arg-type]
    assert isinstance(result, OnnxResult)
    return result


KILLED = """
import os, signal, sys
from electra import durable
from electra.cli import main

def write_text(path, text, made=durable.write_text):
    if path.parent.name.startswith(".generator"):  # the discriminator is written
        os.kill(os.getpid(), signal.SIGKILL)
    made(path, text)

durable.write_text = write_text
main(sys.argv[1:])
"""


def test_an_export_that_was_killed_starts_again(trained: Path, tmp_path: Path) -> None:
    command = [str(trained), "--to", "onnx", "--out", str(tmp_path / "onnx")]
    killed = subprocess.run([sys.executable, "-c", KILLED, "export", *command], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    [left, _] = sorted(tmp_path.iterdir())
    assert left.name.startswith(".onnx.") and (left / "discriminator/onnx.json").is_file()
    exported(trained, out=tmp_path / "onnx")
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == {"discriminator", "generator"}


def test_of_two_exports_at_once_one_is_refused(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, save_networks = tmp_path / "onnx", export_onnx.save_networks

    def meanwhile(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(export_onnx, "save_networks", None)  # the second one does not come so far
        with pytest.raises(CheckpointError, match="is exporting; wait for its end, or give another --out"):
            exported(trained, out=out)
        save_networks(*arguments, **options)

    monkeypatch.setattr(export_onnx, "save_networks", meanwhile)
    exported(trained, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["onnx"] and Scorer(out, device="cpu")(["the fox"])


def test_a_folder_that_was_filled_meanwhile_is_kept(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, save_networks = tmp_path / "onnx", export_onnx.save_networks

    def meanwhile(*arguments: Any, **options: Any) -> None:
        (out / "notes.txt").write_text("")
        save_networks(*arguments, **options)

    monkeypatch.setattr(export_onnx, "save_networks", meanwhile)
    with pytest.raises(CheckpointError, match="onnx exists already; give another --out"):
        exported(trained, out=out)
    assert [path.name for path in out.iterdir()] == ["notes.txt"] and list(tmp_path.iterdir()) == [out]


def test_every_network_of_a_run_goes_out(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, here := tmp_path / "run")
    (here / "export/discriminator/model.safetensors").write_bytes(b"of an earlier step")
    result = exported(here)
    assert [one.written.kind for one in result.exports] == ["discriminator", "generator"]
    folders = [one.written.folder for one in result.exports]
    assert folders == [here / "export/onnx/discriminator", here / "export/onnx/generator"]
    assert "within" in str(result)
    actual, expected = (Scorer(model, device="cpu")(["the fox"])[0] for model in (here / "export/onnx", trained))
    assert actual.logits == pytest.approx(expected.logits, abs=1e-4)
    with pytest.raises(ElectraError, match="exists already"):
        exported(here)
    with pytest.raises(CheckpointError, match="is an ONNX folder, which gives no surprisal"):
        SurprisalScorer(here / "export/onnx/generator")


def test_eight_bits_are_measured_on_what_the_run_held_out(trained: Path, tmp_path: Path) -> None:
    discriminator, generator = exported(trained, quantize="int8", out=tmp_path / "small").exports
    assert discriminator.quality is not None and generator.quality is not None
    assert discriminator.quality.metric == "AUC" and "the run's generator" in discriminator.quality.on
    assert "stories, held out" in generator.quality.on
    assert abs(discriminator.quality.onnx - discriminator.quality.torch) < 0.05
    assert f" {discriminator.quality.onnx - discriminator.quality.torch:+.4f})" in str(discriminator)


def test_an_early_checkpoint(trained: Path, tmp_path: Path) -> None:
    name = next((trained / "checkpoints").iterdir()).name
    with pytest.raises(CheckpointError, match="step-99"):
        exported(trained, checkpoint="step-99", out=tmp_path / "early")
    assert not list(tmp_path.iterdir())
    result = exported(trained, checkpoint=name, out=tmp_path / "early", part="encoder")
    assert [one.written.kind for one in result.exports] == ["encoder"]


def test_a_model_alone_is_measured_on_texts_that_are_given(small_model: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the fox and the river\n\nthe old clock of the town\n" * 9)
    shutil.copytree(small_model, here := tmp_path / "model")
    [one] = exported(here, quantize="int8", data=tmp_path / "texts.txt").exports
    assert one.written.folder == here / "onnx-int8"
    assert one.quality is not None and "texts.txt, some replaced by random tokens" in one.quality.on
    [encoder] = exported(here, quantize="int8", part="encoder").exports
    assert encoder.quality is not None and 0.9 < encoder.quality.onnx <= 1.0001
    assert "our own sentences" in encoder.quality.on


def test_a_fine_tuned_model_is_measured_by_its_task(
    make_model: Callable[[Sequence[str], int, int], str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = "a splendid fox", "a dreadful river"
    (tmp_path / "t.csv").write_text("comment,label\n" + f"{good},yes\n{bad},no\n" * 20)
    model = make_model([f"{good} {bad}"] * 9, 60, 48)
    out = tmp_path / "out"
    arguments = ["--kind", "multilabel", "--data", str(tmp_path / "t.csv"), "--data.text", "comment"]
    arguments += ["--out", str(out), "--train.epochs", "1", "--seeds", "1"]
    assert cli.main(["finetune", model, *arguments]) == 0
    [one] = exported(out, quantize="int8").exports
    assert one.written.folder == out / "onnx-int8" and one.quality is not None
    assert one.quality.metric == "micro F1" and "4 examples of dev" in one.quality.on
    (tmp_path / "new.csv").write_text("text,comment\n" + f"3,{good}\n")
    assert cli.main(["predict", str(out / "onnx-int8"), "--input", str(tmp_path / "new.csv")]) == 0
    (tmp_path / "t.csv").rename(tmp_path / "elsewhere.csv")
    shutil.rmtree(out / "onnx-int8")
    [lost] = exported(out, quantize="int8").exports
    assert lost.quality is None and "--data" in caplog.text
    [actual] = exported(out, quantize="int8", data=tmp_path / "elsewhere.csv", out=tmp_path / "x").exports
    assert actual.quality is not None and str(actual.quality) == str(one.quality)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quantize", "int8"], "--quantize is for onnx; give --to onnx"),
        (["--part", "encoder"], "--part is for onnx"),
        (["--to", "onnx", "--data", "x"], "--data is for measuring the effect of --quantize"),
        (["--to", "onnx", "--checkpoint", "step-1"], "--checkpoint is for runs"),
    ],
)
def test_mistakes_end_with_status_2(
    arguments: list[str], message: str, small_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", small_model, *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_other_mistakes(small_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ElectraError, match="there is no folder"):
        exported(tmp_path / "none")
    monkeypatch.setattr(export_onnx, "find_model", lambda model: Path(small_model))
    with pytest.raises(ConfigError, match="give --out FOLDER"):
        exported("someone/model")
    with pytest.raises(DataError, match="neither a text file"):
        list(quantization_texts._read_file(tmp_path / "none.txt"))
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match="contains no text"):
        quantization_texts.read_quantization_texts(
            small_model, load_pretrained(small_model), tmp_path / "empty.txt"
        )


def test_what_stays_behind_is_said(caplog: pytest.LogCaptureFixture, small_model: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = RelativeConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, vocabulary_size=200,
        memory_length=8, type_vocabulary_size=1,
    )  # fmt: skip
    model = tmp_path / "model"
    huggingface.save(
        model, encoder=shape.build(), head=ReplacedTokenHead(shape), card="", max_length=16,
        tokenizer_json=Path(small_model) / "tokenizer.json",
    )  # fmt: skip
    exported(model, out=tmp_path / "onnx")
    assert "memory is not exported" in caplog.text
    export_onnx._warn(replace(load_pretrained(small_model), task={"long": "windows", "max_length": 12}))
    assert "Texts longer than 12 tokens will be truncated" in caplog.text, "as in the fine-tuning"
    assert Scorer(tmp_path / "onnx").batcher.start_token == Scorer(model, device="cpu").batcher.start_token
