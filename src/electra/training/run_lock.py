"""Who is at a run: a claim in its folder, with signs of life, so that two are never at one run at once."""

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

CLAIM = "taken.json"
BEAT, DEAD = 20.0, 300.0
"""Seconds between two signs of life, and without one after which a run may be taken over."""
LISTENED = 3.5
"""Signs of life that who wants a run listens for, where it is not sure whether another has it."""


@contextlib.contextmanager
def acquire(folder: Path) -> Iterator[bool]:
    """Take a run, if nobody who lives has it; give it back at the end.

    One whose claim is gone, because it was asleep for so long that another took the run over, stops as if by
    SIGTERM.

    Raises:
        CheckpointError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CLAIM
    mine = json.dumps({**_me(), "since": time.time()})
    if not _claim(path, mine):
        yield False
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            if _lost(path, mine):
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
        if not _lost(path, mine):
            path.unlink(missing_ok=True)


def is_locked(folder: Path) -> bool:
    """Whether someone who lives is at a run."""
    return (folder / CLAIM).is_file() and _is_alive(folder / CLAIM)


def owner(folder: Path) -> dict[str, Any] | None:
    """Who is at a run, if they live: `host`, `process`, and `since`, in seconds since 1970."""
    return _owner(folder / CLAIM) if is_locked(folder) else None


def heartbeat(folder: Path) -> None:
    """Find out whether a claim of another machine, or of another container, is that of someone who lives.

    One without a sign of life in the time of three or so counts as abandoned from then on. Of processes that this
    one can see nothing needs to be found out.
    """
    path = folder / CLAIM
    if not path.is_file() or not _is_alive(path) or _is_visible(_owner(path)):
        return
    who = "another machine" if _owner(path) else f"someone ({CLAIM}, which says who, cannot be read)"
    logger.warning("%s: %s was at this run a moment ago; waiting for a sign of life", folder, who)
    before = path.stat().st_mtime
    ends = time.monotonic() + LISTENED * BEAT
    while time.monotonic() < ends:
        time.sleep(BEAT / 20)
        if not path.exists() or path.stat().st_mtime != before:
            return
    os.utime(path, (0.0, 0.0))


def _me() -> dict[str, Any]:
    """This process. Machines may share a name and containers a host's, but not its boot and table of processes."""
    seen = []
    with contextlib.suppress(OSError):
        seen = [
            Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            str(Path("/proc/self/ns/pid").readlink()),
        ]
    return {"host": platform.node(), "processes": seen, "process": os.getpid(), "started": _started(os.getpid())}


def _started(process: int) -> int:
    """When a process began, in ticks since the machine did; numbers of processes come again. 0: unknown."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _owner(path: Path) -> dict[str, Any]:
    """Who wrote a claim; empty where it is torn."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if isinstance(owner := json.loads(path.read_text(encoding="utf-8")), dict):
            return owner
    return {}


def _is_visible(owner: dict[str, Any]) -> bool:
    """Whether it is a process of this machine, and of this container."""
    me = _me()
    return bool(owner) and all(owner.get(name) == me[name] for name in ("host", "processes"))


def _claim(path: Path, mine: str) -> bool:
    """Write a claim where there is none, or where the owner of the one there is dead."""
    try:
        if _created(path, mine):
            return True
        if _is_alive(path):
            return False
        # Of several that find it dead at once only the one that comes to hold this file may write.
        deciding = path.with_suffix(".deciding")
        if not _created(deciding, mine):
            if not _is_alive(deciding):  # died in this moment; the next to come by may decide
                deciding.unlink(missing_ok=True)
            return False
        try:
            if _is_alive(path):
                return False
            if not path.exists():  # given back since
                return _created(path, mine)
            logger.warning("%s: whoever took it is dead; going on with it", path.parent)
            durable.write_text(path, mine)
            return True
        finally:
            deciding.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error}") from error


def _created(path: Path, text: str) -> bool:
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(text)
    except OSError:  # the disk is full: nobody has it
        path.unlink()
        raise
    return True


def _lost(path: Path, claim: str) -> bool:
    """Whether a claim is gone or another's. One that cannot be read just now is still there."""
    try:
        return path.read_text(encoding="utf-8") != claim
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _is_alive(path: Path) -> bool:
    """Whether there was a sign of life; of the processes that this one can see it is known for certain.

    A claim that is empty or torn is just being written, or its owner died over it: its age tells.
    """
    try:
        last = path.stat().st_mtime
    except FileNotFoundError:
        return False
    owner = _owner(path)
    if _is_visible(owner):
        try:
            os.kill(int(owner["process"]), 0)
            if owner.get("started", 0) != _started(int(owner["process"])):
                return False
        except ProcessLookupError:
            return False
        except (OSError, KeyError, ValueError, TypeError):
            pass
    return abs(time.time() - last) < DEAD  # a clock that was set back makes signs of life of the future
