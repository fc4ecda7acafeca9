"""Who is at a run that several machines could take: a claim in its folder, with signs of life."""

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

from electra.errors import CheckpointError
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

CLAIM = "taken.json"
BEAT, DEAD = 20.0, 300.0
"""Seconds between two signs of life, and without one after which a run may be taken over."""


@contextlib.contextmanager
def taken(folder: Path) -> Iterator[bool]:
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
            if not _is(path, mine):
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
        if _is(path, mine):
            path.unlink(missing_ok=True)


def is_taken(folder: Path) -> bool:
    """Whether someone who lives is at a run."""
    return (folder / CLAIM).is_file() and _is_alive(folder / CLAIM)


def _me() -> dict[str, Any]:
    """This process. Containers may share a host's name, but not its table of processes."""
    seen = ""
    with contextlib.suppress(OSError):
        seen = str(Path("/proc/self/ns/pid").readlink())
    return {"host": platform.node(), "processes": seen, "process": os.getpid()}


def _claim(path: Path, mine: str) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(mine)
        return True
    except FileExistsError:
        pass
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error}") from error
    if _is_alive(path):
        return False
    logger.warning("%s: whoever took it is dead; going on with it", path.parent)
    RunFolder.write_text(path, mine)
    time.sleep(0.5)  # another may have found it at the same moment; the last to write has it
    return _is(path, mine)


def _is(path: Path, claim: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == claim
    except OSError:
        return False


def _is_alive(path: Path) -> bool:
    """Whether there was a sign of life; of the processes that this one can see it is known for certain."""
    try:
        owner, last = json.loads(path.read_text(encoding="utf-8")), path.stat().st_mtime
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True  # it is just being written
    me = _me()
    if all(owner.get(name) == me[name] for name in ("host", "processes")):
        try:
            os.kill(int(owner["process"]), 0)
        except ProcessLookupError:
            return False
        except (OSError, KeyError, ValueError):
            pass
    return time.time() - last < DEAD
