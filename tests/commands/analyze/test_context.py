"""`electra analyze context` from the command line."""

import json
from pathlib import Path

import pytest
import torch

from electra.cli import main
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.relative import RelativeConfig, RelativeEncoder
from electra.modeling.heads import LanguageModelHead
from electra.preparation.tokenizer_training import train_tokenizer


@pytest.fixture(scope="module")
def language_model(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("causal") / "causal"
    torch.manual_seed(0)
    size = tokenizers.vocabulary_size(load_tokenizer(data_folder / "tokenizer.json"))
    config = RelativeConfig(
        layers=2, hidden_size=16, embedding_size=16, feed_forward_size=24, heads=2, vocabulary_size=size,
        direction="left", type_vocabulary_size=1, memory_length=16,
    )  # fmt: skip
    huggingface.save(
        folder, encoder=RelativeEncoder(config), head=LanguageModelHead(config), card="", max_length=32,
        tokenizer_json=data_folder / "tokenizer.json",
    )  # fmt: skip
    return folder


def test_tables_and_a_figure(
    language_model: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found" / "context"
    command = ["analyze", "context", str(language_model), str(language_model), "--data", str(data_folder)]
    options = ["--memory", "0", "16", "64", "--documents", "3", "--speed-tokens", "4", "--out", str(out)]
    assert main([*command, *options]) == 0
    shown = capsys.readouterr().out
    assert "causal (1): windows of 32, trained with a memory of 16" in shown and "speedup" in shown
    text = (out / "context.json").read_text()
    assert str(tmp_path.parent) not in text
    results = json.loads(text)
    assert results["documents"] == 3 and len(results["models"]) == 2
    one = results["models"][0]
    assert [reading["memory"] for reading in one["readings"]] == [0, 16, 64]
    for reading in one["readings"]:
        assert sum(stretch["tokens"] for stretch in reading["by_position"]) == results["tokens"]
    assert [actual["context"] for actual in one["speeds"]] == [32, 80]
    assert all(actual["difference"] < 1e-4 for actual in one["speeds"])
    assert (out / "context.png").read_bytes().startswith(b"\x89PNG") and (out / "context.svg").is_file()


def test_without_timings_and_with_another_window(
    language_model: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["analyze", "context", str(language_model), "--data", str(data_folder), "--no-speed"]
    assert main([*command, "--window", "8", "--memory", "0", "--length", "20"]) == 0
    shown = capsys.readouterr().out
    assert "windows of 8" in shown and "speedup" not in shown


def test_refusals(
    language_model: Path,
    small_model: str,
    data_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(*arguments: str) -> str:
        assert main(["analyze", "context", *arguments, "--data", str(data_folder)]) == 2
        return capsys.readouterr().err

    assert "name at least one model" in refused()
    assert "is bidirectional" in refused(small_model)
    assert "--memory: give different lengths of 0 or more" in refused(str(language_model), "--memory", "4", "-1")
    assert "--length: must be at least 1, got 0" in refused(str(language_model), "--length", "0")
    other = tmp_path / "other"
    train_tokenizer(["one two three"] * 9, vocabulary_size=60).save(str(tmp_path / "tokenizer.json"))
    config = RelativeConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=24, heads=2, vocabulary_size=60,
        direction="left", type_vocabulary_size=1,
    )  # fmt: skip
    huggingface.save(
        other, encoder=RelativeEncoder(config), head=LanguageModelHead(config), card="",
        tokenizer_json=tmp_path / "tokenizer.json",
    )  # fmt: skip
    assert "another vocabulary" in refused(str(other))


def test_the_help_lists_the_analyses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--help"]) == 0
    assert "  context " in capsys.readouterr().out
