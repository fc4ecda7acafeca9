"""Results come in order; the death of a worker process at any time is an error and not a hang."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from waiting import LIMIT, until

from electra.errors import DataError
from electra.preparation.workers import map_in_order

FOREVER = 10**6
Build = Callable[[], Callable[[int], int]]


def build_square() -> Callable[[int], int]:
    return square


def square(number: int) -> int:
    if number < 0:
        raise ValueError("it is negative")
    return number * number


def build_slowly(seconds: float) -> Callable[[int], int]:
    time.sleep(seconds)
    return square


def kill_one(after: float) -> None:
    """Kill the first worker that there is, some time after it was started."""
    while not (children := multiprocessing.active_children()):
        time.sleep(0.001)
    time.sleep(after)
    os.kill(children[0].pid or 0, signal.SIGKILL)


def test_results_come_in_the_order_of_the_tasks() -> None:
    tasks = [(f"task {number}", number) for number in range(50)]
    assert list(map_in_order(build_square, tasks, workers=3)) == [(name, n * n) for name, n in tasks]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("build", [build_square, partial(build_slowly, 0.5)])
@pytest.mark.parametrize("seed", range(3))
def test_a_worker_that_dies_is_an_error_and_not_a_hang(
    seed: int, build: Callable[[], Callable[[int], int]]
) -> None:
    killer = threading.Thread(target=kill_one, args=(Random(seed).uniform(0, 0.4),))
    killer.start()
    with pytest.raises(DataError, match=r"A worker process died \(exit status -9\)"):
        for _ in map_in_order(build, ((None, number) for number in range(FOREVER)), workers=2):
            pass
    killer.join()
    assert not multiprocessing.active_children()


def test_a_large_task_for_a_worker_that_died_is_no_hang() -> None:
    """It does not fit into the pipe, so sending it waits for the worker to read it."""
    with pytest.raises(DataError, match="A worker process died"):
        list(map_in_order(build_and_die, [(None, "x" * (1 << 22))], workers=1))


def build_and_die() -> Callable[[str], int]:
    time.sleep(0.2)  # in which the task fills the pipe
    os.kill(os.getpid(), signal.SIGKILL)
    return len


def test_an_error_in_a_worker_is_raised_with_its_traceback() -> None:
    with pytest.raises(ValueError, match="it is negative") as caught:
        list(map_in_order(build_square, [(None, 1), (None, -1)], workers=2))
    assert "in square" in caught.value.__notes__[0]


def test_an_error_of_the_tasks_ends_the_workers() -> None:
    def tasks() -> Iterator[tuple[None, int]]:
        yield None, 1
        raise OSError("no such device")

    with pytest.raises(OSError, match="no such device"):
        list(map_in_order(build_square, tasks(), workers=2))
    assert not multiprocessing.active_children()


def test_results_that_nobody_wants_end_the_workers() -> None:
    results = map_in_order(build_square, ((None, number) for number in range(FOREVER)), workers=2)
    assert next(results) == (None, 0)
    results.close()
    assert not multiprocessing.active_children()


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        """
import multiprocessing, os, signal
from electra.preparation.workers import map_in_order

def build():
    return abs

if __name__ == "__main__":
    results = map_in_order(build, ((None, number) for number in range(10**6)), workers=2)
    for _ in range(10):
        next(results)
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    until(lambda: all(state(pid) == "Z" for pid in pids))


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
