"""`electra pretrain` on the command line."""

import time
from pathlib import Path

import pytest

from electra.cli import main


def test_a_deadline_counts_from_the_start_of_the_command(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports of torch, which take seconds, are part of it."""
    seen: list[float] = []
    monkeypatch.setattr("electra.pretraining.run.pretrain", lambda *_, started, **__: seen.append(started))
    before = time.monotonic()
    monkeypatch.setattr("electra.pretraining.config.refuse_two_lengths", lambda *_: seen.append(time.monotonic()))
    assert main(["pretrain", "electra-tiny", "--data", str(data_folder), "--out", str(tmp_path / "run")]) == 0
    checked, started = seen
    assert before <= started <= checked
