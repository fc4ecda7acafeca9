"""Files are whole or not there, whenever the power goes."""

import os
from pathlib import Path

import pytest
from power import Disk, survived

from electra import durable


def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    (before := tmp_path / "before").mkdir()
    (before / "file.json").write_text("old, and longer")

    def check(folder: Path) -> None:
        assert (folder / "file.json").read_text() in ("old, and longer", "new")

    def act(folder: Path) -> None:
        durable.write_text(folder / "file.json", "new")

    assert survived(tmp_path, act, check, before=before) == 3, "sync of the file, name, sync of the folder"


def test_a_written_file_survives_a_power_failure(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        durable.write_text(folder / "first", "1")
        durable.write_text(folder / "second", "2")

    def check(folder: Path) -> None:
        if (folder / "second").exists():
            assert (folder / "first").read_text() == "1"

    assert survived(tmp_path, act, check) == 6


@pytest.mark.parametrize("synced", [(), ("file",)], ids=["never", "after it has its name"])
def test_a_file_that_is_not_synced_in_time_is_lost(tmp_path: Path, synced: tuple[str, ...]) -> None:
    """The simulated disk does lose files."""

    def careless(folder: Path) -> None:
        (folder / "partial").write_text("content")
        (folder / "partial").rename(folder / "file")
        for name in synced:
            durable.flush(folder / name)
        durable.flush(folder)

    with pytest.raises(AssertionError):
        survived(tmp_path, careless, lambda folder: _whole(folder / "file"))


@pytest.mark.parametrize(("keep_names", "name"), [(False, "partial"), (True, "file")])
def test_a_name_whose_folder_is_not_synced_can_be_lost(tmp_path: Path, keep_names: bool, name: str) -> None:
    (tmp_path / "partial").write_text("content")
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(tmp_path, patch)
        durable.flush(tmp_path / "partial")
        (tmp_path / "partial").rename(tmp_path / "file")
    disk.fail(keep_names=keep_names)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def fails(partial: Path) -> None:
        partial.write_text("half")
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="No space left"):
        durable.write(tmp_path / "file", fails)
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "old"


def _whole(path: Path) -> None:
    assert not path.exists() or path.read_text() == "content"


def test_files_of_killed_processes_are_removed_later(tmp_path: Path) -> None:
    old, young, another = (tmp_path / name for name in (".f.1.partial", ".f.2.partial", ".g.1.partial"))
    for left in (old, young, another):
        left.write_text("half")
    for left in (old, another):
        os.utime(left, (0, 0))
    durable.write_text(tmp_path / "f", "whole")
    assert not old.exists() and young.exists() and another.exists()


def test_the_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    """safetensors writes files that only their owner can read."""
    (plain := tmp_path / "plain").touch()

    def private(partial: Path) -> None:
        partial.write_text("")
        partial.chmod(0o600)

    durable.write(tmp_path / "file", private)
    assert (tmp_path / "file").stat().st_mode == plain.stat().st_mode
