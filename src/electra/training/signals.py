"""SIGTERM and Ctrl-C stop a run after the current step, with a checkpoint."""

import contextlib
import logging
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from electra.training.distributed import world_size

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 5.0
"""With several processes, a second signal within so many seconds is ignored: the terminal and torchrun both send
Ctrl-C."""


class StopSignal:
    """Remembers that the process was asked to stop; a second signal stops it at once.

    Attributes:
        received: the signal's number, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._first = 0.0

    @contextlib.contextmanager
    def handling(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT. Outside the main thread, where Python does not allow it, do nothing.

        If one of several processes dies, torchrun sends SIGTERM to the others at once. They ignore it after an
        error, so that they can report the error before they end.
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
            if world_size() > 1 and time.monotonic() - self._first < REPEAT_SECONDS:
                return
            raise KeyboardInterrupt
        self.received, self._first = number, time.monotonic()
        logger.warning("%s: finishing the current step, then saving", signal.Signals(number).name)
