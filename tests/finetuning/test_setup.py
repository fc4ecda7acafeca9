"""What the seeds of a fine-tuning share: the encoder that they start from."""

import json
from pathlib import Path

import pytest
import torch

from electra.cli import main
from electra.finetuning.config import load_task_config
from electra.finetuning.setup import build_setup

SETTINGS = {"kind": "classification", "train.precision": "float32", "train.device": "cpu", "train.epochs": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    path.write_text("text,label\n" + "a splendid day,good\na dreadful day,bad\n" * 20)
    return path


def test_weights_to_start_from(small_model: str, data: Path) -> None:
    def table(init: str, seed: int) -> torch.Tensor:
        settings = {**SETTINGS, "model": small_model, "data.path": data, "init": init}
        model = build_setup(load_task_config(settings)).build_model(seed)
        return model.encoder.state_dict()["embeddings.token.weight"]

    assert torch.equal(table("pretrained", 0), table("pretrained", 1))
    assert torch.equal(table("random", 0), table("random", 0)), "the seed decides"
    assert not torch.equal(table("random", 0), table("random", 1))
    assert not torch.equal(table("random", 1), table("pretrained", 1))


def test_a_run_from_random_weights_says_so(
    small_model: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    out = tmp_path / "out"
    arguments = ["finetune", small_model, "--data", str(data), "--out", str(out), "--init", "random", *options]
    assert main([*arguments, "--init-from-task", str(tmp_path)]) == 2
    assert "--init random: starts from no other weights" in capsys.readouterr().err
    assert main(arguments) == 0
    assert json.loads((out / "results.json").read_text())["pretrained"] is None
    assert "starting from random weights" in (out / "model/README.md").read_text()
