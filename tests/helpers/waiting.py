"""Waiting for a state of another thread or process."""

import time
from collections.abc import Callable

LIMIT = 120.0
"""Seconds that a test waits for an event, a state or an answer. Only a failure takes so long."""


def until(state: Callable[[], object]) -> None:
    """Wait until a state is true.

    Raises:
        AssertionError: it was not within `LIMIT`.
    """
    end = time.monotonic() + LIMIT
    while not state():
        assert time.monotonic() < end, f"waited for {LIMIT:g} seconds"
        time.sleep(0.005)
