"""The lock of a folder: a lock file with a heartbeat, so that only one process works in the folder at a time."""

import contextlib
import json
import logging
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra import durable
from electra.errors import CheckpointError

logger = logging.getLogger(__name__)

LOCK_FILE, DECIDING_FILE = "taken.json", "taken.deciding"
HEARTBEAT_SECONDS, STALE_SECONDS = 20.0, 300.0
"""Seconds between two heartbeats, and seconds without a heartbeat after which a lock counts as abandoned."""
POLL_SECONDS = 0.2
"""Seconds between two checks of whether another process has released a lock."""
HEARTBEATS_TO_WAIT = 3.5
"""How long to wait for the heartbeat of another machine, in units of `HEARTBEAT_SECONDS`."""


@contextlib.contextmanager
def acquire(folder: Path) -> Iterator[bool]:
    """Lock a folder if no live process holds the lock, and release it at the end; yield whether it was locked.

    If another process takes the lock over, because this one was suspended for long, this one stops as if by
    SIGTERM.

    Raises:
        CheckpointError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    content = json.dumps({**_this_process(), "since": time.time()})
    if not _take_lock(path, content):
        yield False
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            if _is_lost(path, content):
                logger.warning("%s was taken over by another process; stopping", folder)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            with contextlib.suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield True
    finally:
        ended.set()
        thread.join()
        if not _is_lost(path, content):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def hold(folder: Path, *, work: str, wait: bool = False) -> Iterator[None]:
    """Lock a folder for the block.

    Args:
        work: what a process does that holds the lock, for the message.
        wait: wait for the end of another process that holds it.

    Raises:
        CheckpointError: another live process holds it, or the folder cannot be written to.
    """
    wait_for_heartbeat(folder)
    if wait and is_locked(folder):
        logger.warning("%s: another process is %s; waiting for its end", folder, work)
    while wait and is_locked(folder):
        time.sleep(POLL_SECONDS)
    with acquire(folder) as acquired:
        if not acquired:
            raise locked_error(folder, work=work)
        yield


def locked_error(folder: Path, *, work: str) -> CheckpointError:
    """An error that says which process holds the lock."""
    other = owner(folder) or {}
    name = f"process {other['process']} on {other['host']}" if other.keys() >= {"process", "host"} else "a process"
    return CheckpointError(f"{folder}: {name} is {work}; wait for its end, or give another --out")


def is_lock_file(name: str) -> bool:
    """Whether a file of this name in a folder is its lock, or what decides who takes an abandoned lock."""
    return name in (LOCK_FILE, DECIDING_FILE)


def is_locked(folder: Path) -> bool:
    """Whether a live process holds the lock."""
    return (folder / LOCK_FILE).is_file() and _is_alive(folder / LOCK_FILE)


def owner(folder: Path) -> dict[str, Any] | None:
    """The live process that holds the lock: `host`, `process`, and `since`, in seconds since 1970; None:
    nobody."""
    return _owner(folder / LOCK_FILE) if is_locked(folder) else None


def wait_for_heartbeat(folder: Path) -> None:
    """Wait for a heartbeat of a lock that another machine or container holds; without one, mark it as abandoned.

    A lock of this machine needs no waiting, because the process can be looked up.
    """
    path = folder / LOCK_FILE
    if not path.is_file() or not _is_alive(path) or _is_visible(_owner(path)):
        return
    who = "a process on another machine" if _owner(path) else f"a process ({LOCK_FILE} cannot be read)"
    logger.warning("%s: %s used this folder a moment ago; waiting for a heartbeat", folder, who)
    before = path.stat().st_mtime
    deadline = time.monotonic() + HEARTBEATS_TO_WAIT * HEARTBEAT_SECONDS
    while time.monotonic() < deadline:
        time.sleep(HEARTBEAT_SECONDS / 20)
        if not path.exists() or path.stat().st_mtime != before:
            return
    os.utime(path, (0.0, 0.0))


def _this_process() -> dict[str, Any]:
    """Identify this process. Machines and containers can have the same host name, but not the same boot id and PID
    namespace."""
    namespace = []
    with contextlib.suppress(OSError):
        namespace = [
            Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            str(Path("/proc/self/ns/pid").readlink()),
        ]
    return {
        "host": platform.node(),
        "processes": namespace,
        "process": os.getpid(),
        "started": _start_time(os.getpid()),
    }


def _start_time(process: int) -> int:
    """When a process started, in ticks since boot, because process ids are reused. 0: unknown."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _owner(path: Path) -> dict[str, Any]:
    """The process that wrote a lock file; empty if the file is damaged."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if isinstance(owner := json.loads(path.read_text(encoding="utf-8")), dict):
            return owner
    return {}


def _is_visible(owner: dict[str, Any]) -> bool:
    """Whether the owner runs on this machine and in this container."""
    this = _this_process()
    return bool(owner) and all(owner.get(name) == this[name] for name in ("host", "processes"))


def _take_lock(path: Path, content: str) -> bool:
    """Write the lock file if there is none, or if its owner is dead; return whether it was written."""
    try:
        if _create(path, content):
            return True
        if _is_alive(path):
            return False
        # If several processes find the lock abandoned at the same time, only the one that creates this file may
        # write.
        deciding = path.with_name(DECIDING_FILE)
        if not _create(deciding, content):
            if not _is_alive(deciding):  # its process died at this point; the next process can take the lock
                deciding.unlink(missing_ok=True)
            return False
        try:
            if _is_alive(path):
                return False
            if not path.exists():  # released in the meantime
                return _create(path, content)
            logger.warning("%s: the process that worked on it is dead; taking over", path.parent)
            durable.write_text(path, content)
            return True
        finally:
            deciding.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from error


def _create(path: Path, text: str) -> bool:
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(text)
    except OSError:  # the disk is full: nobody has the lock
        path.unlink()
        raise
    return True


def _is_lost(path: Path, content: str) -> bool:
    """Whether the lock was removed or taken by another process. If it cannot be read at the moment, it is kept."""
    try:
        return path.read_text(encoding="utf-8") != content
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _is_alive(path: Path) -> bool:
    """Whether the owner of a lock file is alive: by its process if it is on this machine, else by the heartbeat.

    An empty or damaged lock file is being written, or its owner died while writing; its age decides.
    """
    try:
        last = path.stat().st_mtime
    except FileNotFoundError:
        return False
    owner = _owner(path)
    if _is_visible(owner):
        try:
            os.kill(int(owner["process"]), 0)
            if owner.get("started", 0) != _start_time(int(owner["process"])):
                return False
        except ProcessLookupError:
            return False
        except (OSError, KeyError, ValueError, TypeError):
            pass
    return (
        abs(time.time() - last) < STALE_SECONDS
    )  # abs, because a clock that was set back puts heartbeats into the future
