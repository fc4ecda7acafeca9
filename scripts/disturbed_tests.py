"""Run tests on a machine that disturbs them, to find those that pass by chance: `make test-disturbed`.

    python scripts/disturbed_tests.py [--seed N] [ARGUMENTS OF PYTEST]

- Processes are stopped at random moments for up to three seconds, as if the machine had too much to do:
  pytest, its workers, and what tests start. This finds tests that rely on less than a few seconds.
- The rounding in linear layers depends on the number of rows, as on some CPUs (rounding_by_shape.py), in pytest
  and its workers, not in what tests start. This finds tests that expect the same digits of a text alone and in
  a batch.
- Random weights are others than in `make test`: N is `TEST_SEED`, 1 by default. This finds tests that pass for
  some weights only.

A test that stops a process itself may fail here by chance: the end of a pause lets that process go on.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BETWEEN, PAUSE, LONGEST = 0.4, 0.6, 3.0
"""Seconds: mean time between two pauses, mean length of a pause, and the longest pause."""
NEWEST = 4
"""Every second pause is of one of so many processes that started last: most of the others wait for them."""


def running_processes(root: int) -> list[int]:
    """A process and all below it, in the order of their numbers, without those that are stopped or have ended."""
    children: dict[int, list[int]] = defaultdict(list)
    stopped = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = stat.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        process = int(stat.parent.name)
        children[int(parent)].append(process)
        if state in (b"Z", b"T"):  # tests stop some processes themselves
            stopped.add(process)
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += children[found[-1]]
    return sorted(set(found) - stopped)


def send(process: int, number: signal.Signals) -> bool:
    """Send a signal. False: the process has ended."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def pause_at_random(tests: subprocess.Popen[bytes], draw: random.Random) -> int:
    """Pause pytest and the processes below it until it ends; return the number of pauses."""
    pauses = 0
    while tests.poll() is None:
        time.sleep(draw.expovariate(1 / BETWEEN))
        if running := running_processes(tests.pid):
            process = draw.choice(running if draw.random() < 0.5 else running[-NEWEST:])
            pauses += send(process, signal.SIGSTOP)
            try:
                time.sleep(min(draw.expovariate(1 / PAUSE), LONGEST))
            finally:
                send(process, signal.SIGCONT)
    return pauses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    options, arguments = parser.parse_known_args()
    if not Path("/proc/self/stat").exists():
        sys.exit("this needs Linux: processes are found in /proc")
    environment = {**os.environ, "TEST_SEED": str(options.seed), "PYTHONPATH": str(ROOT / "scripts")}
    command = [sys.executable, "-m", "pytest", "-p", "rounding_by_shape", *arguments]
    tests = subprocess.Popen(command, cwd=ROOT, env=environment)
    pauses = pause_at_random(tests, random.Random(options.seed))
    print(f"{pauses:,} pauses, seed {options.seed}")
    sys.exit(tests.returncode)


if __name__ == "__main__":
    main()
