"""Runs on packed rows."""

from pathlib import Path

import pytest
from small_run import config

from electra.data.shards import TokenData
from electra.errors import ConfigError
from electra.modeling.encoders.bert import BertConfig
from electra.pretraining.build import build
from electra.pretraining.dry_run import dry_run
from electra.pretraining.resolve import resolve
from electra.pretraining.run import pretrain
from electra.reports.metrics import read_metrics


def test_the_flops_of_packed_rows_are_planned_as_they_are_counted(data_folder: Path, tmp_path: Path) -> None:
    settings = "packing.builder=packed", "train.steps=12"
    planned = dry_run(config(data_folder, tmp_path / "run", *settings)).cost.flops
    full_rows = dry_run(config(data_folder, tmp_path / "run", "train.steps=12")).cost.flops
    run = pretrain(config(data_folder, tmp_path / "run", *settings)).run
    counted = read_metrics(run).reports[-1]["flops"]
    assert planned == pytest.approx(counted) and planned != pytest.approx(full_rows, rel=1e-3)


def test_packed_rows_are_not_compiled(data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.compile: packed rows have other shapes in each batch"):
        config(data_folder, tmp_path, "packing.builder=packed", "train.compile=on")


def test_the_log_says_how_each_network_attends_in_packed_rows(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(BertConfig, "attends_in_one_call", lambda *_: True)  # as on a GPU
    kinds = "model.kind=deberta", "generator.kind=bert", "objective.sharing=none"
    settings = config(data_folder, tmp_path, "packing.builder=packed", *kinds)
    data = TokenData.open(data_folder)
    with caplog.at_level("INFO", logger="electra"):
        build(resolve(settings, data).config, data, None)
    assert "attention in packed rows, discriminator: documents of similar length together" in caplog.text
    assert "attention in packed rows, generator: all documents in one call" in caplog.text
