"""Checkpoints are whole or not there, verified when read, and rotate."""

import errno
import logging
from pathlib import Path

import pytest
import torch

from electra.errors import CheckpointError
from electra.training import checkpoint as module
from electra.training.checkpoint import CheckpointConfig, Checkpoints, read_checkpoint


def save(checkpoints: Checkpoints, step: int) -> Path:
    weights = {"w": torch.full((64, 8), float(step))}
    return checkpoints.save(step, {"model": weights}, state={"note": step}, texts={"config.toml": "a = 1\n"})


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", CheckpointConfig())
    save(checkpoints, 7)
    latest = checkpoints.latest()
    assert latest is not None and latest.state["step"] == 7 and latest.state["note"] == 7
    assert torch.equal(latest.tensors("model")["w"], torch.full((64, 8), 7.0))
    assert (latest.path / "config.toml").read_text() == "a = 1\n"


def test_the_last_ones_and_milestones_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep=2, milestone_every=20))
    for step in (10, 20, 30, 40, 50, 60):
        save(checkpoints, step)
    assert checkpoints.names() == ["step-00000020", "step-00000040", "step-00000050", "step-00000060"]


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "config.toml"])
def test_a_file_cut_in_half_falls_back_and_says_so(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    save(checkpoints, 10)
    damaged = save(checkpoints, 20) / name
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    with caplog.at_level(logging.WARNING, logger="electra"):
        latest = checkpoints.latest()
    assert latest is not None and latest.state["step"] == 10
    assert str(damaged) in caplog.text and "going on with the checkpoint before it" in caplog.text


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = save(Checkpoints(tmp_path, CheckpointConfig()), 1)
    file = path / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="its checksum differs"):
        read_checkpoint(path)


def test_no_whole_checkpoint_is_an_error_and_no_checkpoint_is_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    assert checkpoints.latest() is None
    (save(checkpoints, 3) / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="none of the 1 checkpoints"):
        checkpoints.latest()


def test_a_full_disk_leaves_the_old_ones_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    save(checkpoints, 10)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(CheckpointError, match=r"No space left on device\n.*last good checkpoint is step-00000010"):
        save(checkpoints, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010"]


def test_a_kill_while_writing_leaves_no_checkpoint_of_that_name(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    save(checkpoints, 10)
    partial = tmp_path / ".step-00000020.partial"  # what a kill leaves behind
    partial.mkdir()
    (partial / "model.safetensors").write_bytes(b"half")
    latest = checkpoints.latest()
    assert latest is not None and latest.state["step"] == 10
    save(checkpoints, 20)
    assert checkpoints.names() == ["step-00000010", "step-00000020"] and not partial.exists()
