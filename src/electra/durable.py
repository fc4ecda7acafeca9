"""Atomic writes: a file is complete or does not exist, also after a kill or a power failure.

A file is written under a temporary name in the same folder, synced to the disk and renamed; then the folder is
synced. In any other order, a crash may leave a file without its content.
"""

import contextlib
import glob
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

ABANDONED = 24 * 3600.0
"""Seconds after which a temporary file is considered abandoned."""


def _mode() -> int:
    """Return the permissions of a new file under the umask, which can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


MODE = _mode()
"""The permissions of a new file. Some libraries create files that only the owner can read."""


def write(path: Path, by: Callable[[Path], object]) -> None:
    """Call `by` with the path of a temporary file, and rename the file to `path` when it is written.

    An existing file is replaced by the rename. If several processes write the same file, the last one wins.
    """
    partial = temporary_name(path)
    try:
        by(partial)
        partial.chmod(MODE)
        flush(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    flush(path.parent)


def temporary_name(path: Path) -> Path:
    """Return a new name next to a file or folder to write, and remove what killed processes have left."""
    for abandoned in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        with contextlib.suppress(OSError):
            if time.time() - abandoned.stat().st_mtime > ABANDONED:
                shutil.rmtree(abandoned) if abandoned.is_dir() else abandoned.unlink()
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, as `write` does."""
    write(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def flush(path: Path) -> None:
    """Sync a file, or the entries of a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot sync folders
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
