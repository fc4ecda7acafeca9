"""SIGTERM and Ctrl-C as a polite request."""

import contextlib
import logging
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from electra.training.distributed import world_size

logger = logging.getLogger(__name__)

SAME = 5.0
"""Seconds within which a second signal is the first one again: Ctrl-C comes from terminal and torchrun."""


class StopSignal:
    """Remembers that the process was asked to stop; a second request is not put off.

    Attributes:
        received: the signal's number, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._first = 0.0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT in hand; outside the main thread, where Python forbids it, do nothing.

        Where one of several processes is gone, torchrun sends SIGTERM to the others at once; they end by
        themselves, and first say what went wrong.
        """
        old: dict[int, Any] = {}
        with contextlib.suppress(ValueError):
            old = {number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        except Exception:
            if world_size() > 1 and signal.SIGTERM in old:
                old[signal.SIGTERM] = signal.SIG_IGN
            raise
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if world_size() > 1 and time.monotonic() - self._first < SAME:
                return
            raise KeyboardInterrupt
        self.received, self._first = number, time.monotonic()
        logger.warning("%s: finishing the step at hand, then saving", signal.Signals(number).name)
