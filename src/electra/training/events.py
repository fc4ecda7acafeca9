"""What happens to a run, told to a command of the user's and to those who look later."""

import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Literal

from electra.errors import ElectraError
from electra.json_files import write_json
from electra.training.distributed import is_main_process
from electra.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

Event = Literal["started", "checkpoint", "warning", "finished", "stopped", "failed"]
ENDS: tuple[Event, ...] = ("finished", "stopped", "failed")
PATIENCE = 30.0
"""Seconds that a run waits at its end for commands that have not ended."""


class Events:
    """Starts a command at every event, and keeps in the run's folder how it ended.

    The command is started by the shell with ELECTRA_EVENT, ELECTRA_RUN, ELECTRA_STEP and ELECTRA_MESSAGE in its
    environment, and not waited for; a run goes on whatever becomes of it. The first time that it fails is named.

    Attributes:
        reached: the step that the run has come to, for an end that nothing else tells the step of.
    """

    def __init__(self, run: RunFolder, command: str) -> None:
        self.run, self.command = run, command
        self.reached: Callable[[], int] = lambda: 0
        self._started: list[tuple[Event, subprocess.Popen[bytes]]] = []
        self._failed = False

    def __call__(self, event: Event, message: str, step: int | None = None) -> None:
        """Something happened, at the step that is reached where none is given."""
        if not is_main_process():
            return
        step = self.reached() if step is None else step
        if event in ENDS:
            facts = {"how": event, "message": message, "step": step, "time": time.time()}
            write_json(self.run.end, facts, indent=None)
        if self.command:
            told = {"EVENT": event, "RUN": str(self.run.path), "STEP": str(step), "MESSAGE": message}
            environment = {**os.environ, **{f"ELECTRA_{name}": value for name, value in told.items()}}
            self._look_after()
            try:
                started = subprocess.Popen(self.command, shell=True, env=environment, stdin=subprocess.DEVNULL)
                self._started.append((event, started))
            except OSError as error:
                logger.warning("tracking.on_event could not be started: %s", error)

    def close(self) -> None:
        """Wait for commands that have not ended; those that take too long are left to themselves."""
        ends = time.monotonic() + PATIENCE
        for _, one in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(max(0.0, ends - time.monotonic()))
        self._look_after()

    def _look_after(self) -> None:
        """Forget the commands that have ended; the first that did not end well is named, later ones are not."""
        for event, one in self._started:
            if one.poll() and not self._failed:
                self._failed = True
                logger.warning(
                    "tracking.on_event ended with exit status %s at the event %r; this is said once, and the run "
                    "goes on", one.returncode, event,
                )  # fmt: skip
        self._started = [(event, one) for event, one in self._started if one.returncode is None]


@contextlib.contextmanager
def events(run: RunFolder, command: str) -> Iterator[Events]:
    """Events of a run that is at work in the block; what goes wrong in it is told, too."""
    happened = Events(run, command)
    if is_main_process():
        run.end.unlink(missing_ok=True)
    try:
        yield happened
    except BaseException as error:
        message = str(error) if isinstance(error, ElectraError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):  # the disk may be what is wrong
            if isinstance(error, KeyboardInterrupt):  # before or after the steps, which end in order by themselves
                happened("stopped", "interrupted")
            else:
                happened("failed", message)
        raise
    finally:
        happened.close()
