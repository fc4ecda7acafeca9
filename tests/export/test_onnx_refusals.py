"""Exports to ONNX that cannot be made, folders that are damaged, and wrong uses are refused."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_model import write_model
from small_pretrained import PROBLEMS, pretrained

import electra
from electra.errors import CheckpointError, MissingExtraError
from electra.export.loading import load_pretrained
from electra.export.onnx.write import save_onnx
from electra.modeling.heads import LanguageModelHead, ReplacedTokenHead
from electra.serving.calibration import Calibration
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package)


def test_a_graph_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pretrained("electra", ReplacedTokenHead)
    monkeypatch.setattr("electra.export.onnx.blocks.MASKED_BIAS", 0.0)  # padding is not masked
    with pytest.raises(CheckpointError, match=r"differs from the network by .* so it is not written"):
        save_onnx(model, tmp_path / "onnx")
    assert not list(tmp_path.iterdir())


def test_a_language_model_but_not_its_encoder_is_refused(tmp_path: Path) -> None:
    model = pretrained("xlnet", LanguageModelHead)
    with pytest.raises(CheckpointError, match="--part encoder"):
        save_onnx(model, tmp_path / "onnx")
    assert save_onnx(model.encoder_only(), tmp_path / "onnx").kind == "encoder"


def test_too_large_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.export.onnx.heads.FILE_LIMIT", 1000)
    with pytest.raises(CheckpointError, match="an ONNX file holds at most 2 GiB"):
        save_onnx(pretrained("electra", ReplacedTokenHead), tmp_path / "onnx")


def test_a_folder_that_exists_is_refused(tmp_path: Path) -> None:
    model = pretrained("electra", ReplacedTokenHead)
    (tmp_path / "empty").mkdir()
    save_onnx(model, tmp_path / "empty")
    with pytest.raises(CheckpointError, match="exists already"):
        save_onnx(model, tmp_path / "empty")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_onnx_without_the_extra_is_refused(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_onnx(model := pretrained("electra", ReplacedTokenHead), tmp_path / "onnx")
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else real(name))
    with pytest.raises(MissingExtraError, match=rf'ONNX needs {package};.*pip install "electra\[onnx\]"'):
        save_onnx(model, tmp_path / "other")
    if package == "onnxruntime":
        with pytest.raises(MissingExtraError, match=r"electra\[onnx\]"):
            Scorer(tmp_path / "onnx")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda metadata: metadata.update(format=2),
            "has format 2, and this version of electra reads up to 1",
        ),
        (lambda metadata: metadata.update(format="x"), "a file is damaged"),
        (lambda metadata: metadata.update(kind="oracle"), "a file is damaged"),
        (lambda metadata: metadata.pop("special_tokens"), "a file is damaged"),
        (lambda metadata: metadata.update(inputs=3), "a file is damaged"),
        (lambda metadata: metadata["outputs"].pop("states"), "belong to different models"),
    ],
)
def test_damaged_metadata_is_refused(change: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    save_onnx(pretrained("electra", ReplacedTokenHead), tmp_path / "onnx")
    metadata = json.loads((path := tmp_path / "onnx/onnx.json").read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))
    with pytest.raises(CheckpointError, match=message):
        Scorer(tmp_path / "onnx")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    save_onnx(pretrained("electra", ReplacedTokenHead), folder := tmp_path / "onnx")
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:5000])
    with pytest.raises(CheckpointError, match=r"model\.onnx is damaged"):
        Scorer(folder)
    (folder / "model.onnx").unlink()
    with pytest.raises(CheckpointError, match=r"model\.onnx is missing"):
        Scorer(folder)
    (folder / "onnx.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Scorer(folder)


def test_a_folder_without_metadata_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "saved")
    save_onnx(load_pretrained(model), folder := tmp_path / "onnx", config_json=model / "config.json")
    (folder / "onnx.json").unlink()
    with pytest.raises(CheckpointError, match=r"for an ONNX folder, onnx\.json is missing"):
        Scorer(folder)


def test_the_wrong_use_is_refused(tmp_path: Path) -> None:
    save_onnx(pretrained("electra", None, PROBLEMS["linear"][0]), folder := tmp_path / "text")
    uses: list[tuple[Callable[[], Any], str]] = [
        (lambda: Scorer(folder), "is fine-tuned for a task"),
        (lambda: MaskedTokenPredictor(folder), "predicts no masked tokens"),
        (lambda: TextEncoder(folder), "no hidden states; .* --part encoder"),
        (lambda: Predictor(folder, device="cuda"), "runs on the CPU"),
        (lambda: load_pretrained(folder), "is an ONNX folder"),
        (lambda: electra.load(folder).encoder, "no PyTorch encoder"),
        (lambda: Calibration.load(folder), "has no calibration"),
    ]
    for use, message in uses:
        with pytest.raises(CheckpointError, match=message):
            use()
    save_onnx(pretrained("electra", ReplacedTokenHead), tmp_path / "scores")
    with pytest.raises(CheckpointError, match="was not fine-tuned"):
        Predictor(tmp_path / "scores")
