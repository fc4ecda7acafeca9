"""`init.average`: an export between the trained network and the one that it was continued from."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import electra
from electra.cli import main
from electra.config import load_config
from electra.errors import ConfigError
from electra.export.loading import find_encoder, find_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.export import export_run
from electra.pretraining.run import pretrain

SMALL = [
    "model.hidden_size=32", "model.embedding_size=16", "model.feed_forward_size=64", "model.heads=2",
    "model.layers=1", "generator.layers=1", "generator.hidden_size=24", "generator.feed_forward_size=40",
    "packing.sequence_length=32", "train.batch_size=8", "evaluation.examples=16", "train.precision=float32",
    "tracking.tensorboard=false", "train.steps=4",
]  # fmt: skip
SHAPELESS = [one for one in SMALL if not one.startswith(("model.", "generator."))]
"""For a network that has its shape already."""


def config(preset: str, data: Path, out: Path, *settings: str) -> PretrainConfig:
    return load_config(PretrainConfig, preset, [*SMALL, f"data={data}", f"out={out}", *settings])


@pytest.fixture(scope="module")
def original(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The discriminator of a short run."""
    out = tmp_path_factory.mktemp("original") / "run"
    return pretrain(config("electra-tiny", data_folder, out)).run / "export/discriminator"


@pytest.fixture(scope="module")
def run(original: Path, data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the preset `continue`, with another weight."""
    out = tmp_path_factory.mktemp("continued") / "run"
    settings = [
        *SHAPELESS,
        f"data={data_folder}",
        f"out={out}",
        f"init.discriminator={original}",
        "init.average=0.25",
    ]
    return pretrain(load_config(PretrainConfig, "continue", settings)).run


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_is_mean(run: Path, original: Path) -> None:
    """The encoder in `averaged` is the mean of weight .25, and the head the trained one."""
    before, trained, averaged = (
        weights(folder) for folder in (original, run / "export/discriminator", run / "export/averaged")
    )
    encoder = [name for name in trained if name.startswith("electra.")]
    assert encoder and any(not torch.equal(before[name], trained[name]) for name in encoder)
    for name in encoder:
        assert torch.allclose(averaged[name], 0.25 * before[name] + 0.75 * trained[name], atol=1e-7), name
    assert all(torch.equal(averaged[name], trained[name]) for name in trained.keys() - set(encoder))


def test_the_encoder_is_the_mean_and_the_head_is_the_trained_one(run: Path, original: Path) -> None:
    assert_is_mean(run, original)
    trained, averaged = (
        (run / "export" / name / "README.md").read_text(encoding="utf-8") for name in ("discriminator", "averaged")
    )
    assert "0.25 × those of the network that it was continued from" in averaged
    assert "## Held-out metrics" in trained and "## Held-out metrics" not in averaged


def test_the_log_says_once_what_became_of_the_tensors_of_the_original(
    original: Path, held_out_data: Path, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    shutil.copytree(original, older)
    tensors = {name.removeprefix("electra."): tensor for name, tensor in weights(older).items()}
    renamed = sum(name.startswith(("embeddings", "encoder.")) for name in tensors)
    tensors |= {"classifier.dense.weight": torch.zeros(3), "embeddings.position_ids": torch.arange(9)}
    save_file(tensors, older / "model.safetensors")
    settings = [*SHAPELESS, f"data={held_out_data}", f"out={tmp_path / 'run'}", f"init.discriminator={older}"]
    log = (pretrain(load_config(PretrainConfig, "continue", settings)).run / "log.txt").read_text()
    assert "compared with" in log and "average with the original" in log  # both have loaded it again
    assert log.count("classifier.dense.weight") == 1
    assert f"not used of {older}: classifier.dense.weight, embeddings.position_ids\n" in log
    names = "embeddings.LayerNorm.bias as electra.embeddings.LayerNorm.bias"
    assert f"{renamed} tensors of {older} have names of another form, and are used: for example {names}\n" in log
    assert log.count("the head that fills masks is fresh, because there was none to load; the run trains it") == 1


@pytest.mark.parametrize("sharing", ["detached", "disentangled"])
def test_a_table_that_is_a_sum_in_the_run_is_averaged_as_it_is_exported(
    sharing: str, original: Path, data_folder: Path, tmp_path: Path
) -> None:
    settings = "init.average=0.25", f"init.discriminator={original}", f"objective.sharing={sharing}"
    run = pretrain(config("electra-tiny", data_folder, tmp_path / "run", *SHAPELESS, *settings)).run
    assert_is_mean(run, original)


def test_a_continued_masked_language_model_has_an_average_too(
    original: Path, data_folder: Path, tmp_path: Path
) -> None:
    settings = [*SHAPELESS, f"data={data_folder}", f"out={tmp_path / 'run'}", f"init.discriminator={original}"]
    run = pretrain(load_config(PretrainConfig, "continue-masked-lm", settings)).run
    name = "embeddings.word_embeddings.weight"
    folders = original, run / "export/encoder", run / "export/averaged"
    before, trained, averaged = (weights(folder)[f"electra.{name}"] for folder in folders)
    assert not torch.equal(before, trained)
    assert torch.allclose(averaged, 0.5 * before + 0.5 * trained, atol=1e-7)
    assert find_encoder(run) == run / "export/averaged"


def test_fine_tuning_starts_from_it_and_everything_else_from_the_trained_network(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert find_encoder(run) == run / "export/averaged" and find_model(run) == run / "export/discriminator"
    assert find_encoder(run / "export/discriminator") == run / "export/discriminator"
    data = tmp_path / "train.csv"
    data.write_text("text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(40)))
    arguments = [
        "finetune", str(run), "--kind", "classification", "--data", str(data), "--out", str(tmp_path / "out"),
        "--train.epochs", "1", "--optimizer.learning_rate", "1e-12", "--optimizer.layer_decay", "1",
    ]  # fmt: skip
    caplog.set_level(logging.INFO)
    assert main(arguments) == 0
    tuned, averaged = weights(tmp_path / "out/model"), weights(run / "export/averaged")
    shared = [name for name in averaged if name.startswith("electra.")]
    assert shared and all(torch.allclose(tuned[name], averaged[name], atol=1e-6) for name in shared)
    assert json.loads((tmp_path / "out/results.json").read_text())["pretrained"] == str(run)
    assert "the average of the trained network and the original" in caplog.text


def test_without_the_original_the_other_folders_are_exported(
    run: Path, original: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = shutil.move(original, tmp_path / "kept")
    try:
        result = export_run(run, out=tmp_path / "export")
    finally:
        shutil.move(kept, original)
    assert result.averaged is None and not (tmp_path / "export/averaged").exists()
    assert (tmp_path / "export/discriminator/config.json").is_file()
    assert "no average of the weights (init.average) was exported: there is no folder" in caplog.text


def test_a_new_network_and_another_vocabulary_have_no_average(data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"init\.discriminator: is missing, and .*--init\.discriminator FOLDER"):
        pretrain(config("continue", data_folder, tmp_path / "run"))
    assert not (tmp_path / "run/config.toml").exists()
    transfer = ("init.discriminator=folder", "init.vocabulary=transfer")
    with pytest.raises(ConfigError, match=r"average: networks of two vocabularies have none; set it to 0"):
        config("continue", data_folder, tmp_path / "run", *transfer)


def test_no_other_preset_averages(run: Path) -> None:
    assert (
        electra.load_config("continue", {"data": "d", "out": "o", "init.discriminator": "m"}).init.average == 0.5
    )
    assert electra.load_config("electra-tiny", {"data": "d", "out": "o"}).init.average == 0.0
