"""At the end of a continuation the log says what is left of the original."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import SMALL

from electra.analysis.encoder_change import EncoderChange
from electra.config import load_config
from electra.data.shards import TokenData
from electra.pretraining import encoder_change_check
from electra.pretraining.config import PretrainConfig
from electra.pretraining.encoder_change_check import check_encoder_changes
from electra.pretraining.export import ExportResult
from electra.pretraining.run import pretrain

pytestmark = pytest.mark.usefixtures("without_transformers")


def run(preset: str, data: Path, out: Path, *settings: str) -> Path:
    return pretrain(load_config(PretrainConfig, preset, [*SMALL, f"data={data}", f"out={out}", *settings])).run


@pytest.fixture(scope="module")
def original(held_out_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("original") / "run"
    return run("electra-tiny", held_out_data, out, "train.steps=4") / "export/discriminator"


def continued(original: Path, data: Path, out: Path, *settings: str) -> str:
    """Continue with the preset `continue`, and return the log."""
    folder = run("continue", data, out, f"init.discriminator={original}", "train.steps=20", *settings)
    return (folder / "log.txt").read_text(encoding="utf-8")


def test_the_log_has_a_line_for_the_network_and_one_for_the_average(
    original: Path, held_out_data: Path, tmp_path: Path
) -> None:
    log = continued(original, held_out_data, tmp_path / "run", "optimizer.learning_rate=1e-5")
    for name in ("discriminator", "averaged"):
        assert f"compared with {original}: {name}: 100% of the original's states can be read" in log
    assert "has been overwritten" not in log


def test_an_overwritten_original_is_a_warning_with_a_remedy(
    original: Path, held_out_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large = ("optimizer.learning_rate=1.0", "optimizer.gradient_clip=100")
    log = continued(original, held_out_data, tmp_path / "run", *large, "init.average=0")
    assert "averaged:" not in log
    continued(original, held_out_data, tmp_path / "averaged", *large)
    alone, averaged = [one for one in caplog.records if "has been overwritten" in one.getMessage()]
    assert alone.levelno == logging.WARNING
    for warning in (alone, averaged):
        assert "smaller --optimizer.learning_rate (now 1)" in warning.getMessage()
    assert "the preset continue" in alone.getMessage() and "the preset continue" not in averaged.getMessage()


@pytest.mark.parametrize("overwritten", ["discriminator", "averaged"])
def test_the_network_from_which_fine_tuning_starts_decides(
    overwritten: str, held_out_data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def measured(original: str, folders: list[Path], *_: Any, **__: Any) -> list[EncoderChange]:
        return [EncoderChange((1.0,), (0.1 if path.name == overwritten else 0.9,), (0.5,)) for path in folders]

    monkeypatch.setattr(encoder_change_check, "load_pretrained", lambda model, quiet: model)
    monkeypatch.setattr(encoder_change_check, "measure_encoder_changes", measured)
    config = load_config(PretrainConfig, "continue", [])
    config = replace(config, init=replace(config.init, discriminator="original"))
    exported = ExportResult(4, {"discriminator": Path("discriminator")}, {}, Path("averaged"))
    check_encoder_changes(config, TokenData.open(held_out_data), exported, torch.device("cpu"))
    assert ("original has been overwritten" in caplog.text) == (overwritten == "averaged")


def test_nothing_is_measured_of_new_networks_other_vocabularies_and_before_a_deadline(
    original: Path, held_out_data: Path, tmp_path: Path
) -> None:
    new = run("electra-tiny", held_out_data, tmp_path / "new", "train.steps=4")
    assert "compared with" not in (new / "log.txt").read_text(encoding="utf-8")
    other = ("init.vocabulary=transfer", "init.average=0")
    assert "compared with" not in continued(original, held_out_data, tmp_path / "other", *other)
    log = continued(original, held_out_data, tmp_path / "deadline", "train.deadline=30")
    assert "is not measured, because of the deadline" in log and "compared with" not in log
