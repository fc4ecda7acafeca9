"""Checkpoints are whole or not there, verified when read, and rotate."""

import errno
import json
import logging
import random
from functools import partial
from pathlib import Path

import pytest
import torch
from power import survived

from electra.errors import CheckpointError
from electra.training import checkpoint
from electra.training import checkpoint as module
from electra.training.checkpoint import Checkpoints, read_checkpoint, write_tensors
from electra.training.config import CheckpointConfig


def save(checkpoints: Checkpoints, step: int) -> Path:
    weights = {"w": torch.full((64, 8), float(step))}
    write = partial(write_tensors, groups={"model": weights})
    return checkpoints.save(step, write, state={"note": step}, texts={"config.toml": "a = 1\n"})


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", CheckpointConfig())
    save(checkpoints, 7)
    latest = checkpoints.latest()
    assert latest is not None and latest.state["step"] == 7 and latest.state["note"] == 7
    assert torch.equal(latest.tensors("model")["w"], torch.full((64, 8), 7.0))
    assert (latest.path / "config.toml").read_text() == "a = 1\n"
    (plain := tmp_path / "plain").touch()
    assert {file.stat().st_mode for file in latest.path.iterdir()} == {plain.stat().st_mode}, "others may read it"


def test_the_latest_checkpoints_and_milestones_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep=2, milestone_every=20))
    for step in (10, 20, 30, 40, 50, 60):
        save(checkpoints, step)
    assert checkpoints.names() == ["step-00000020", "step-00000040", "step-00000050", "step-00000060"]


def test_damaged_checkpoints_of_later_steps_do_not_count(tmp_path: Path) -> None:
    for step in (10, 20, 40, 50):
        path = save(Checkpoints(tmp_path, CheckpointConfig(keep=4)), step)
        if step > 30:
            (path / "model.safetensors").write_bytes(b"damaged")
    save(checkpoints := Checkpoints(tmp_path, CheckpointConfig(keep=2)), 30)
    latest = checkpoints.latest()
    assert latest is not None and latest.state["step"] == 30
    assert [name for name in checkpoints.names() if name < "step-00000040"] == ["step-00000020", "step-00000030"]


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "config.toml"])
def test_after_a_truncated_file_the_checkpoint_before_is_used(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    save(checkpoints, 10)
    damaged = save(checkpoints, 20) / name
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    with caplog.at_level(logging.WARNING, logger="electra"):
        latest = checkpoints.latest()
    assert latest is not None and latest.state["step"] == 10
    assert str(damaged) in caplog.text and "using the checkpoint before it" in caplog.text


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
    assert checkpoints.describe_newest() == "there is no checkpoint yet"
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


def test_a_flip_of_any_byte_is_noticed(tmp_path: Path) -> None:
    path, draw = save(Checkpoints(tmp_path, CheckpointConfig()), 1), random.Random(0)
    tried = 0
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for place in draw.sample(range(len(content)), min(40, len(content))):
            flipped = content[place] ^ (1 << draw.randrange(8))
            file.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
            with pytest.raises(CheckpointError, match=r"step-00000001/"):
                read_checkpoint(path)
            tried += 1
        file.write_bytes(content)
    assert tried > 120 and read_checkpoint(path).state["note"] == 1


def test_a_checkpoint_that_is_half_deleted_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep=2))
    for step in (1, 2):
        save(checkpoints, step)

    def dies(path: Path, **_: object) -> None:
        (path / "model.safetensors").unlink(missing_ok=True)
        if path.exists():
            raise KeyboardInterrupt  # as if killed in the midst of it

    monkeypatch.setattr(checkpoint.shutil, "rmtree", dies)
    with pytest.raises(KeyboardInterrupt):
        checkpoints._rotate("step-00000003")
        save(checkpoints, 3)
    monkeypatch.undo()
    assert all(read_checkpoint(tmp_path / name) for name in checkpoints.names())
    save(checkpoints, 4)
    assert not list(tmp_path.glob(".*"))


def test_there_is_a_whole_checkpoint_whenever_the_power_goes(tmp_path: Path) -> None:
    config, before = CheckpointConfig(keep=2), tmp_path / "before"
    for step in (10, 20):
        save(Checkpoints(before, config), step)

    def check(folder: Path) -> None:
        checkpoints = Checkpoints(folder, config)
        steps = [read_checkpoint(folder / name).state["note"] for name in checkpoints.names()]
        assert steps in ([10, 20], [10, 20, 30], [20, 30]), "none that has its name is damaged"
        save(checkpoints, 30)
        save(checkpoints, 40)
        assert sorted(path.name for path in folder.iterdir()) == ["step-00000030", "step-00000040"]

    assert survived(tmp_path, lambda folder: save(Checkpoints(folder, config), 30), check, before=before) > 10


def test_an_incomplete_state_is_damaged(tmp_path: Path) -> None:
    path = save(Checkpoints(tmp_path, CheckpointConfig()), 1)
    (path / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"state\.json is damaged, or state\.sha256 is"):
        read_checkpoint(path)
    (path / "state.sha256").unlink()
    with pytest.raises(CheckpointError, match=r"state\.json is damaged: it lacks 'files'"):
        read_checkpoint(path)


@pytest.mark.parametrize("name", ["../outside", "a" * 300])
def test_a_state_with_an_impossible_file_name_is_refused(tmp_path: Path, name: str) -> None:
    path = save(Checkpoints(tmp_path, CheckpointConfig()), 1)
    state = json.loads((path / "state.json").read_text())
    state["files"] = {name: {"bytes": 1, "sha256": ""}}
    (path / "state.json").write_text(json.dumps(state))
    (path / "state.sha256").unlink()
    with pytest.raises(CheckpointError, match="it has an impossible file name"):
        read_checkpoint(path)
