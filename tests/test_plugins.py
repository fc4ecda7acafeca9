"""An encoder and an objective of a user's own, each in one file outside the package: trained, exported, scored."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from electra import registry
from electra.cli import main
from electra.errors import ConfigError

PLUGINS = Path(__file__).parents[1] / "examples/plugins"
CONFIG = """
extends = "electra-nano"

[model]
kind = "convolution"
kernel_size = 3

[objective]
kind = "shuffled-token"

[init]
attention = "random"
"""
SMALL = [
    "--train.steps", "12", "--train.batch_size", "8", "--train.precision", "float32", "--model.hidden_size", "32",
    "--model.embedding_size", "16", "--model.feed_forward_size", "64", "--evaluation.examples", "16",
]  # fmt: skip


def electra(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in another process, in which no plugin is loaded yet."""
    command = [sys.executable, "-m", "electra", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_both_are_trained_resumed_exported_and_scored(data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(CONFIG)
    plugins = [part for path in sorted(PLUGINS.glob("*.py")) for part in ("--plugin", str(path))]
    assert len(plugins) == 6
    run = tmp_path / "run"
    command = ["pretrain", tmp_path / "mine.toml", *plugins, "--data", data_folder, "--out", run, *SMALL]
    trained = electra(*command)
    assert trained.returncode == 0, trained.stderr
    assert electra(*command).returncode == 0  # a finished run is left as it is
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"eval/discriminator_auc", "eval/unigram_auc"} <= set().union(*lines)
    scored = electra("score", run, "the fox watches the river", "--json", *plugins)
    assert scored.returncode == 0, scored.stderr
    assert len(json.loads(scored.stdout)["tokens"]) >= 5
    table = tmp_path / "reviews.csv"
    table.write_text("text,label\n" + "the fox watches,good\nthe river,bad\n" * 8)
    task = ["--kind", "classification", "--data", table, "--train.epochs", "1", "--train.precision", "float32"]
    tuned = electra("finetune", run, *task, "--out", tmp_path / "tuned", *plugins)
    assert tuned.returncode == 0, tuned.stderr  # this encoder cannot select positions
    predicted = electra("predict", tmp_path / "tuned", "the fox", *plugins)
    assert predicted.returncode == 0, predicted.stderr
    (tmp_path / "sentences.txt").write_text("the fox watches the river\n" * 40)
    text, out = tmp_path / "sentences.txt", tmp_path / "compared"
    compared = electra("analyze", "compare", run, run, "--text", text, "--out", out, *plugins)
    assert compared.returncode == 2 and "kind convolution cannot be read" in compared.stderr
    without = electra("score", run, "the fox")
    assert without.returncode == 2 and "convolution" in without.stderr and "--plugin" in without.stderr


def test_an_objective_of_a_plugin_trains_an_encoder_of_the_package(data_folder: Path, tmp_path: Path) -> None:
    out, plugin = tmp_path / "run", PLUGINS / "shuffled_token.py"
    options = ["--objective.kind", "shuffled-token", *SMALL, "--train.steps", "2"]
    command = ["pretrain", "electra-nano", f"--plugin={plugin}", "--data", data_folder, "--out", out, *options]
    refused = electra(*command, "--generator.width", "0")
    assert refused.returncode == 2 and "generator.width: shuffled-token has no generator" in refused.stderr
    done = electra(*command)
    assert done.returncode == 0, done.stderr
    assert (out / "export/discriminator/model.safetensors").is_file()


def test_an_installed_package_registers_its_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (PLUGINS / "convolution_encoder.py").read_text().replace('"convolution"', '"installed"')
    (tmp_path / "my_encoders.py").write_text(source.replace('@register_encoder("installed")\n', ""))
    info = tmp_path / "my_encoders-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-encoders\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[electra.encoders]\ninstalled = my_encoders:ConvolutionConfig\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(registry.encoders.__dict__, "_installed", raising=False)  # looked up once in a process
    assert "installed" in registry.encoders.names()
    config = registry.encoders.get("installed")(vocabulary_size=50, layers=1)
    assert config.build()(torch.ones(2, 7, dtype=torch.long)).shape == (2, 7, 256)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a Python file"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("from electra import register_objective\nregister_objective('masked-lm')(object)", "exists already"),
    ],
)
def test_a_file_that_is_no_plugin_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    if content is not None:
        file.write_text(content)
    for _ in range(2):  # it is not loaded
        with pytest.raises(ConfigError, match=message):
            registry.load_plugin(file)


def test_an_unregistered_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "electra-nano", "--model.kind", "bart", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert "model.kind: there is no encoder 'bart'; did you mean 'bert'?" in error and "--plugin FILE" in error
    assert main(["pretrain", "electra-nano", "--dry-run", "--plugin"]) == 2
    assert "--plugin: needs the path of a Python file" in capsys.readouterr().err
