"""Files that are whole or not there at all, also after a kill or a loss of power.

A file is written beside its place under another name, put on the disk, renamed, and the rename put on the disk.
In any other order a crash may leave a name without its content.
"""

import contextlib
import glob
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

ABANDONED = 24 * 3600.0
"""Seconds after which nobody is thought to be writing a file any more."""


def _mode() -> int:
    """What the umask leaves of a new file's rights; it can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


MODE = _mode()
"""The rights of a new file. Some libraries write theirs for the owner alone."""


def write(path: Path, by: Callable[[Path], object]) -> None:
    """Call `by` with a place beside `path`, then give what it wrote the name; what was there stays until then.

    Several processes may do so at once: the last one wins.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):  # by those who were killed over it
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        by(partial)
        partial.chmod(MODE)
        flush(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """The same for a text, in UTF-8."""
    write(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def flush(path: Path) -> None:
    """Make sure that a file, or which names a folder has, is on the disk before anything relies on it."""
    if os.name == "nt" and path.is_dir():  # Windows has no such thing for folders
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
