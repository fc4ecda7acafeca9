"""Events of a run: a user's command is started for each, and ended.json records how the run ended."""

import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Literal

from electra.errors import describe
from electra.json_files import write_json
from electra.training.distributed import is_main_process
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

Event = Literal["started", "checkpoint", "warning", "finished", "stopped", "failed"]
END_EVENTS: tuple[Event, ...] = ("finished", "stopped", "failed")
WAIT_SECONDS = 30.0
"""Seconds that a run waits at its end for commands that are still running."""


class EventHook:
    """Starts a command at every event, and records in the run's folder how the run ended.

    The command runs in a shell with ELECTRA_EVENT, ELECTRA_RUN, ELECTRA_STEP and ELECTRA_MESSAGE in its
    environment. The run does not wait for it, and continues if it fails. The first failure is logged.

    Attributes:
        current_step: returns the current step, for events without a step.
    """

    def __init__(self, run: RunFolder, command: str) -> None:
        self.run, self.command = run, command
        self.current_step: Callable[[], int] = lambda: 0
        self._commands: list[tuple[Event, subprocess.Popen[bytes]]] = []
        self._failed = False

    def __call__(self, event: Event, message: str, step: int | None = None) -> None:
        """Handle an event at a step; None: the current step."""
        if not is_main_process():
            return
        step = self.current_step() if step is None else step
        if event in END_EVENTS:
            end = {"how": event, "message": message, "step": step, "time": time.time()}
            write_json(self.run.end, end, indent=None)
        if self.command:
            variables = {"EVENT": event, "RUN": str(self.run.path), "STEP": str(step), "MESSAGE": message}
            environment = {**os.environ, **{f"ELECTRA_{name}": value for name, value in variables.items()}}
            self._collect_finished()
            try:
                started = subprocess.Popen(self.command, shell=True, env=environment, stdin=subprocess.DEVNULL)
                self._commands.append((event, started))
            except OSError as error:
                logger.warning("tracking.on_event could not be started: %s", error)

    def close(self) -> None:
        """Wait for running commands, but no longer than `WAIT_SECONDS`."""
        deadline = time.monotonic() + WAIT_SECONDS
        for _, command in self._commands:
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(max(0.0, deadline - time.monotonic()))
        self._collect_finished()

    def _collect_finished(self) -> None:
        """Remove finished commands from the list, and log the first failure."""
        for event, command in self._commands:
            if command.poll() and not self._failed:
                self._failed = True
                logger.warning(
                    "tracking.on_event ended with exit status %s at the event %r; later failures are not reported",
                    command.returncode, event,
                )  # fmt: skip
        self._commands = [(event, command) for event, command in self._commands if command.returncode is None]


@contextlib.contextmanager
def open_event_hook(run: RunFolder, command: str) -> Iterator[EventHook]:
    """The event hook of a run. An exception in the block becomes a `failed` or `stopped` event."""
    on_event = EventHook(run, command)
    if is_main_process():
        run.end.unlink(missing_ok=True)
    try:
        yield on_event
    except BaseException as error:
        with contextlib.suppress(OSError):  # the error may come from the disk
            if isinstance(error, KeyboardInterrupt):  # before or after training, which handles Ctrl-C itself
                on_event("stopped", "interrupted")
            else:
                on_event("failed", describe(error))
        raise
    finally:
        on_event.close()
