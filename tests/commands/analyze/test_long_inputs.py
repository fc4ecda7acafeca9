"""`electra analyze long-inputs` from the command line."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from electra.cli import main
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.modernbert import ModernBertConfig
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead


@pytest.fixture(scope="module")
def run(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a discriminator and its generator, as a run exports them."""
    folder = tmp_path_factory.mktemp("runs") / "rotary"
    config = ModernBertConfig(
        layers=2, hidden_size=16, embedding_size=16, feed_forward_size=24, heads=2, max_positions=80,
        vocabulary_size=tokenizers.vocabulary_size(load_tokenizer(data_folder / "tokenizer.json")),
        local_window=8, global_every=2,
    )  # fmt: skip
    torch.manual_seed(0)
    for name, head in (("discriminator", ReplacedTokenHead), ("generator", MaskedLanguageModelHead)):
        huggingface.save(
            folder / "export" / name, encoder=config.build(), head=head(config), card="", max_length=32,
            tokenizer_json=data_folder / "tokenizer.json",
        )  # fmt: skip
    return folder


def test_both_networks_of_a_run_have_tables_and_a_figure(
    run: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found"
    models = [str(run), str(run / "export/generator")]
    assert main(["analyze", "long-inputs", *models, "--data", str(data_folder), "--out", str(out)]) == 0
    shown, messages = capsys.readouterr()
    assert "longer than those that the network was trained on" not in messages  # the report says it
    assert "rotary: trained on at most 32 tokens" in shown and "in windows of 20" in shown
    assert "AUC, at once" in shown and "loss, at once" in shown and "fewer than ten documents" in shown
    results = json.loads((out / "long-inputs.json").read_text())
    assert results["length"] == 80 and 0 < results["needles"] <= 4 * results["documents"]
    discriminator, generator = results["models"]
    assert (discriminator["metric"], generator["metric"]) == ("AUC", "loss")
    [part] = discriminator["positions"]
    assert (part["first"], part["last"], part["tokens"]) == (0, 77, results["tokens"])
    assert [needle["distance"] for needle in generator["needles"]] == [16, 32, 64]
    assert (out / "long-inputs.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert "Long inputs" in (tmp_path / "report.html").read_text()


def test_the_longest_input_in_training_is_not_the_length_of_this_analysis(
    run: Path, data_folder: Path, tmp_path: Path
) -> None:
    """A network that exists up to 80 tokens, and whose folder names no shorter inputs of its training."""
    model = tmp_path / "model"
    shutil.copytree(run / "export/generator", model)
    fields = json.loads((model / "config.json").read_text())
    del fields["electra_trained_length"]
    (model / "config.json").write_text(json.dumps(fields))
    arguments = ["--data", str(data_folder), "--length", "64", "--out", str(tmp_path / "found")]
    assert main(["analyze", "long-inputs", str(model), *arguments]) == 0
    [found] = json.loads((tmp_path / "found/long-inputs.json").read_text())["models"]
    assert found["trained_length"] == 80


def test_refusals(run: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str) -> str:
        assert main(["analyze", "long-inputs", *arguments, "--data", str(data_folder)]) == 2
        return capsys.readouterr().err

    assert "name at least one model" in refused()
    assert "--length: must be at least 64, got 8" in refused(str(run), "--length", "8")
    assert "--length: 100 is more than the 80 tokens that" in refused(str(run), "--length", "100")
    assert "--window: must be at least 3, got 2" in refused(str(run), "--window", "2")
    assert "--window: 81 is more than the 80 tokens of a row" in refused(str(run), "--window", "81")
