"""A second stage: all weights of a run, with longer rows."""

import shutil
from pathlib import Path

import pytest
import torch
from tests.pretraining.test_warm_start import SMALL, config

from electra.cli import main
from electra.config import load_config
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export.loading import load_pretrained
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.build import build
from electra.pretraining.config import PretrainConfig
from electra.pretraining.dry_run import dry_run
from electra.pretraining.export import find_checkpoint, load_objective
from electra.pretraining.resolve import resolve
from electra.pretraining.run import pretrain
from electra.training.run_folder import RunFolder

ROTARY = [
    *SMALL, "model.layers=3", "model.local_window=8", "model.embedding_size=32", "generator.layers=2",
    "model.max_positions=32", "model.rope_theta=10000",
]  # fmt: skip


def rotary(data: Path, out: Path, *overrides: str) -> PretrainConfig:
    return load_config(PretrainConfig, "modern-tiny", [*ROTARY, f"data={data}", f"out={out}", *overrides])


@pytest.fixture(scope="module")
def first(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(rotary(data_folder, tmp_path_factory.mktemp("runs") / "first")).run


def started(settings: PretrainConfig) -> dict[str, torch.Tensor]:
    assert settings.data is not None
    resolved = resolve(settings, TokenData.open(settings.data))
    return build(resolved.config, resolved.data, resolved.warm_start).objective.state_dict()


def stored(run: Path) -> dict[str, torch.Tensor]:
    return load_objective(find_checkpoint(RunFolder(run)))[1].state_dict()


def test_all_weights_go_on_at_a_longer_length(
    first: Path, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "pretrain",
        str(first / "config.toml"),
        "--out",
        str(tmp_path / "second"),
        "--init.from",
        str(first),
    ]
    command += ["--model.max_positions", "96", "--model.rope_theta", "160000", "--packing.sequence_length", "96"]
    assert main([*command, "--optimizer.learning_rate", "1e-4"]) == 0
    log = (tmp_path / "second/log.txt").read_text()
    assert "step 4, all weights; packing.sequence_length 32 -> 96, model.max_positions 32 -> 96" in log
    assert "model.rope_theta 10000 -> 160000" in log
    longer = load_pretrained(tmp_path / "second")
    assert longer.max_length == 96 and longer.encoder.config.max_positions == 96
    settings = load_config(PretrainConfig, tmp_path / "second/config.toml")
    assert settings.init.from_ == str(first) and settings.init.trained_length == 32
    before, after = stored(first), started(settings)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    # It resumes without the first run, and a third stage begins from the second.
    checkpoints = first / "checkpoints"
    moved = checkpoints.rename(first.parent / "elsewhere")
    try:
        assert main([*command, "--optimizer.learning_rate", "1e-4"]) == 0
        third = load_config(
            PretrainConfig,
            tmp_path / "second/config.toml",
            [f"out={tmp_path / 'third'}", f"init.from={tmp_path / 'second'}"],
        )
        assert pretrain(third).outcome.step == 4
    finally:
        moved.rename(checkpoints)


@pytest.mark.parametrize("sharing", ["none", "disentangled", "all"])
def test_networks_that_share_weights_go_on(data_folder: Path, tmp_path: Path, sharing: str) -> None:
    shape = ["generator.width=1", "generator.layers=0"] if sharing == "all" else []
    run = pretrain(rotary(data_folder, tmp_path / "one", f"objective.sharing={sharing}", *shape)).run
    settings = load_config(PretrainConfig, run / "config.toml", [f"init.from={run}", f"out={tmp_path / 'two'}"])
    before, after = stored(run), started(settings)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_another_source_of_replaced_tokens_needs_no_other_weights(data_folder: Path, tmp_path: Path) -> None:
    one = pretrain(rotary(data_folder, tmp_path / "one", "objective.fakes=unigram")).run
    settings = f"init.from={one}", "objective.fakes=trigram", "objective.sharing=none"
    second = started(rotary(data_folder, tmp_path / "two", *settings))
    assert all(torch.equal(second[name], weights) for name, weights in stored(one).items())


def test_a_second_stage_of_a_continued_network_ignores_the_first_network(
    first: Path, data_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(first / "export/discriminator", tmp_path / "released")
    run = pretrain(rotary(data_folder, tmp_path / "one", f"init.discriminator={tmp_path / 'released'}")).run
    shutil.rmtree(tmp_path / "released")
    settings = load_config(PretrainConfig, run / "config.toml", [f"init.from={run}", f"out={tmp_path / 'two'}"])
    second = pretrain(settings).run
    assert load_config(PretrainConfig, second / "config.toml").init.discriminator is None
    assert pretrain(settings).outcome.step == 4  # the same command again: it is finished


def test_other_changes_are_refused_by_name(
    first: Path, data_folder: Path, corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(error: type[Exception], message: str, *overrides: str, preset: str = "modern-tiny") -> None:
        settings = [
            *(ROTARY if preset == "modern-tiny" else SMALL),
            f"data={data_folder}",
            f"out={tmp_path / 'run'}",
        ]
        with pytest.raises(error, match=message):
            pretrain(load_config(PretrainConfig, preset, [*settings, f"init.from={first}", *overrides]))
        assert not (tmp_path / "run").exists()

    layers = "model.layers=4", "generator.layers=2"
    refused(
        ConfigError, r"model.layers is 4, but the run has 3\n  a second stage may change model.max_pos", *layers
    )
    refused(ConfigError, r"model.rope_theta, model.local_rope_theta; take .*config.toml", *layers)
    refused(ConfigError, "objective.kind is 'masked-lm', but the run has", "objective.kind=masked-lm")
    refused(
        ConfigError, r":\n  objective.fakes is 'unigram', but the run has 'generator'\n", "objective.fakes=unigram"
    )
    refused(ConfigError, "generator.hidden_size is 16, but", "generator.hidden_size=16")
    refused(ConfigError, "model.kind is 'bert'", preset="electra-tiny")
    refused(ConfigError, r"^[^\n]*\n[^\n]* 64 is more than model.max_positions, 32$", "packing.sequence_length=64")
    refused(CheckpointError, "init.from: there is no folder", "init.from=/nowhere")
    export = first / "export/discriminator"
    refused(CheckpointError, "is a Hugging Face or ONNX folder.* init.discriminator", f"init.from={export}")
    other = tmp_path / "other"
    prepare(PrepareConfig(corpus=(str(corpus_file),), out=other, vocabulary_size=512, lowercase=False, workers=1))
    refused(DataError, "another vocabulary .* --tokenizer .*tokenizer.json", f"data={other}")
    command = [
        "pretrain",
        "modern-tiny",
        "--data",
        "x",
        "--out",
        "y",
        "--init.from",
        str(first),
        "--init.token_table",
        "random",
        "--init.average",
        "0.5",
    ]
    assert main([*command, "--init.discriminator", str(first)]) == 2
    assert "init.average, init.discriminator, init.token_table: decided by" in capsys.readouterr().err


def test_positions_in_a_table_keep_their_number(data_folder: Path, tmp_path: Path) -> None:
    run = pretrain(config(data_folder, tmp_path / "one", "model.max_positions=32")).run
    settings = load_config(
        PretrainConfig,
        run / "config.toml",
        [f"init.from={run}", f"out={tmp_path / 'two'}", "model.max_positions=64"],
    )
    with pytest.raises(ConfigError, match=r"model.max_positions is 64, but the run has 32"):
        pretrain(settings)


def test_a_deberta_keeps_the_rows_of_its_distances(data_folder: Path, tmp_path: Path) -> None:
    """`max_positions` decides which distances share a row; rows of text may be longer without another value."""
    shape = "model.max_positions=32", "model.position_buckets=16"
    settings = [*SMALL, f"data={data_folder}", f"out={tmp_path / 'one'}", *shape]
    run = pretrain(load_config(PretrainConfig, "deberta-tiny", settings)).run
    longer = [f"init.from={run}", f"out={tmp_path / 'two'}", "packing.sequence_length=96"]
    other_rows = load_config(PretrainConfig, run / "config.toml", [*longer, "model.max_positions=96"])
    with pytest.raises(
        ConfigError, match=r"(?s)model.max_positions is 96, but the run has 32.* change none of these"
    ):
        pretrain(other_rows)
    second = pretrain(load_config(PretrainConfig, run / "config.toml", longer)).run
    assert load_pretrained(second).max_length == 96


def test_a_dry_run_of_a_second_stage_needs_no_data(first: Path) -> None:
    settings = load_config(
        PretrainConfig, first / "config.toml", [f"init.from={first}", "model.max_positions=512"]
    )
    plan = dry_run(PretrainConfig(**{**vars(settings), "data": None, "out": None}))
    assert plan.config.model.max_positions == 512
