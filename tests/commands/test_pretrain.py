"""`electra pretrain` on the command line."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from electra.cli import main
from electra.config import read_toml


def test_a_deadline_counts_from_the_start_of_the_command(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import of torch, which takes seconds and comes after the preset is read, is part of it."""
    seen: list[float] = []
    monkeypatch.setattr("electra.pretraining.run.pretrain", lambda *_, started, **__: seen.append(started))

    def read(preset: str) -> dict[str, Any]:
        seen.append(time.monotonic())
        return read_toml(preset)

    monkeypatch.setattr("electra.commands.pretrain.read_toml", read)
    before = time.monotonic()
    assert main(["pretrain", "electra-tiny", "--data", str(data_folder), "--out", str(tmp_path / "run")]) == 0
    before_imports, started = seen
    assert before <= started <= before_imports


@pytest.mark.parametrize(("preset", "hinted"), [("electra-tiny", True), ("continue", False)])
def test_a_continuation_with_another_preset_names_the_one_for_it(
    preset: str, hinted: bool, small_model: str, data_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("electra.pretraining.run.pretrain", lambda *_, **__: None)
    arguments = ["--data", str(data_folder), "--out", str(tmp_path / "run"), "--init.discriminator", small_model]
    with caplog.at_level(logging.INFO):
        assert main(["pretrain", preset, *arguments, "--train.steps", "5"]) == 0
    assert ("the preset continue is better" in caplog.text) is hinted
