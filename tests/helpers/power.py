"""Simulated power failures: what a folder contains after the power failed between two calls.

A file whose content was not synced since it last changed comes back with half of what is new. A name that was
given without its folder having been synced is as it was before, or has reached the disk, maybe before the content.
(Real disks forget less.)
"""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class PowerLoss(BaseException):
    """The power failed. It is no `Exception`, because no error handler would run either."""


class Disk:
    """Counts the calls that sync, name and delete below a folder, and fails at one of them and all after it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, *, fails_at: int | None = None) -> None:
        self.folder, self.fails_at, self.calls = folder, fails_at, 0
        self.synced = {path.stat().st_ino: self.state(path) for path in folder.rglob("*") if path.is_file()}
        self.names: list[tuple[int, Callable[[], None]]] = []  # a folder, and how to undo
        self.rename, self.replace = os.rename, os.replace
        for name, own in (("fsync", self._sync), ("rename", self._rename), ("replace", self._rename)):
            patch.setattr(os, name, own)
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, self._ticking(getattr(os, name)))

    def fail(self, *, keep_names: bool) -> None:
        """Leave in the folder what a power failure would.

        Args:
            keep_names: new names have reached the disk, also those in folders that were not synced.
        """
        if not keep_names:
            for _, undo in reversed(self.names):
                undo()
        for path in self.folder.rglob("*"):
            if not path.is_file() or (synced := self.synced.get(path.stat().st_ino, (0, 0))) == self.state(path):
                continue
            size = path.stat().st_size
            kept = synced[0] if synced[0] < size else 0  # what was synced before more was appended
            os.truncate(path, kept + (size - kept) // 2)

    @staticmethod
    def state(path: Path) -> tuple[int, int]:
        return path.stat().st_size, path.stat().st_mtime_ns

    def _tick(self) -> None:
        if self.calls == self.fails_at:
            raise PowerLoss
        self.calls += 1

    def _ticking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def ticking(*args: Any, **options: Any) -> Any:
            self._tick()
            return call(*args, **options)

        return ticking

    def _sync(self, descriptor: int) -> None:
        self._tick()
        actual = os.fstat(descriptor)
        self.synced[actual.st_ino] = (actual.st_size, actual.st_mtime_ns)
        self.names = [(folder, undo) for folder, undo in self.names if folder != actual.st_ino]

    def _rename(self, source: Any, target: Any) -> None:
        self._tick()
        old, new = Path(source), Path(target)
        before = self.folder.with_name(f"{self.folder.name}-before-{self.calls}")
        if existed := new.is_file():
            os.link(new, before)

        def undo() -> None:
            if new.exists():
                self.rename(new, old)
            if existed:
                self.replace(before, new)

        self.replace(old, new)
        self.names.append((new.parent.stat().st_ino, undo))


def survived(
    tmp_path: Path, act: Callable[[Path], object], check: Callable[[Path], object], *, before: Path | None = None
) -> int:
    """Let the power fail at each of the calls that `act` makes in a folder, and return their number.

    It fails there twice: new names in folders that were not synced are lost, or have reached the disk.

    Args:
        check: raises if what is left, or what becomes of it when it goes on, is not as it should be.
        before: a folder that it begins with a copy of.
    """
    number = 0
    while True:
        for keep_names in (False, True):
            folder = tmp_path / f"power-{number}-{keep_names}"
            shutil.copytree(before, folder) if before else folder.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                disk = Disk(folder, patch, fails_at=number)
                with contextlib.suppress(PowerLoss):
                    act(folder)
            disk.fail(keep_names=keep_names)
            for lock in folder.rglob("taken.json"):  # its process is this one, which would be gone
                lock.unlink()
            check(folder)
            shutil.rmtree(folder)
            if not disk.names:  # nothing else can be left
                break
        if disk.calls < number:
            return disk.calls
        number += 1
