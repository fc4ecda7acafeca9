"""What a person sees while a verb works: the library's log records on stderr, and progress as one bar.

A record may carry `extra={"progress": (done, total)}`, total None where it is not known. On a terminal such
records move one bar in place; elsewhere they become plain lines, no more than one in a while.
"""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_FRAMES = 0.1
NOT_A_TERMINAL_WIDTH = 120


@contextlib.contextmanager
def show_log_records() -> Iterator[None]:
    """Show what the library logs at INFO and above on stderr until the block ends."""
    logger = logging.getLogger("electra")
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    handler = BarHandler(Console(stderr=True)) if live else LineHandler(sys.stderr)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


def complain(message: str) -> None:
    """Write a message on stderr, in red on a terminal."""
    if sys.stderr.isatty():
        Console(stderr=True).print(Text(message, style="red"), soft_wrap=True)
    else:
        sys.stderr.write(f"{message}\n")


def show(result: object) -> None:
    """Write what a verb returned on stdout: drawn by rich if it knows how to be, else as plain text."""
    if result is None:
        return
    drawn = result.__rich__() if hasattr(result, "__rich__") else result
    if hasattr(drawn, "__rich__") or hasattr(drawn, "__rich_console__"):
        # A file or a pipe has no width; one of 80 would cut tables and break paths in two. No markup: results
        # hold [MASK]s and TOML's [sections].
        width = None if sys.stdout.isatty() else NOT_A_TERMINAL_WIDTH
        Console(width=width, markup=False, emoji=False, highlight=False).print(drawn)
    else:  # as it is: a line of JSON must not be broken in two
        sys.stdout.write(f"{drawn}\n")


class LineHandler(logging.Handler):
    """One plain line a record; of a stage's progress its first and last records, and some between."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._stream = stream
        self._clock = clock
        self._stages = _Stages()
        self._held = ""  # the newest progress, if it was not written
        self._last_line = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            progress = _progress(record)
            if progress is None:
                self._write(_message(record))
            else:
                self._advance(f"{_message(record)} ({_share(*progress)})", record, *progress)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._write(self._held)
        super().close()

    def _advance(self, line: str, record: logging.LogRecord, done: int, total: int | None) -> None:
        begins = self._stages.begins(record, done)
        if self._stages.ended(line, done, total):
            return
        if begins:
            self._write(self._held)
        self._held = line
        if begins or done == total or self._clock() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = self._clock()
            self._write(self._held)
            self._held = ""

    def _write(self, line: str) -> None:
        if not line:
            return
        # Whoever read stderr may have gone (a closed terminal, `2>&1 | head`): the work goes on unseen.
        with contextlib.suppress(OSError):
            self._stream.write(f"{line}\n")
            self._stream.flush()


class BarHandler(logging.Handler):
    """Records as lines, warnings in yellow; records with progress as a bar below them, redrawn in place.

    The bar is drawn when a record comes, not by a thread of its own: `electra prepare` forks workers, and a
    thread's lock that is held at that moment would be held in them for ever.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._console = console
        self._clock = clock
        self._stages = _Stages()
        self._bar: _Bar | None = None
        self._last_frame = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            progress = _progress(record)
            if progress is None:
                style = {logging.WARNING: "yellow", logging.ERROR: "red"}.get(record.levelno, "")
                self._console.print(Text(_message(record), style=style))
            else:
                self._advance(record, *progress)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._finish()
        super().close()

    def _advance(self, record: logging.LogRecord, done: int, total: int | None) -> None:
        begins = self._stages.begins(record, done)
        if self._stages.ended(_message(record), done, total):
            return
        if begins:
            self._finish()
        if self._bar is None:
            self._bar = _Bar(self._console, done, total)
        self._bar.move(_message(record), done, total)
        if done == total or self._clock() - self._last_frame >= SECONDS_BETWEEN_FRAMES:
            self._last_frame = self._clock()
            self._bar.refresh()
        if done == total:
            self._finish()

    def _finish(self) -> None:
        """Take the bar away and leave its last message as a line."""
        if self._bar is not None:
            bar, self._bar = self._bar, None
            bar.stop()
            self._console.print(bar.message)


class _Bar(Progress):
    """One message, and below it one bar, its share and the time so far. The time left is the message's to tell."""

    def __init__(self, console: Console, done: int, total: int | None) -> None:
        self.message = Text()
        super().__init__(
            BarColumn(bar_width=None),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            transient=True,
            expand=True,
        )
        self._task: TaskID = self.add_task("", total=total, completed=done)
        self.start()

    def move(self, message: str, done: int, total: int | None) -> None:
        self.message = Text(message)
        self.update(self._task, description=_share(done, total), completed=done, total=total)

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.message
        yield from super().get_renderables()


class _Stages:
    """Tells where one stage's progress ends and the next one's begins."""

    def __init__(self) -> None:
        self._place: tuple[str, int] | None = None
        self._done = 0
        self._end = ""  # what was said when all was done

    def begins(self, record: logging.LogRecord, done: int) -> bool:
        """Whether the record comes from another line of code than the last one, or counts from anew."""
        place = (record.pathname, record.lineno)
        fresh = place != self._place or done < self._done
        self._place, self._done = place, done
        if fresh:
            self._end = ""
        return fresh

    def ended(self, message: str, done: int, total: int | None) -> bool:
        """Whether all was done before, with the same words: what comes after that adds nothing."""
        if done != total:
            return False
        before, self._end = self._end, message
        return before == message


def _progress(record: logging.LogRecord) -> tuple[int, int | None] | None:
    progress: tuple[int, int | None] | None = getattr(record, "progress", None)
    return progress


def _message(record: logging.LogRecord) -> str:
    prefix = {logging.WARNING: "warning: ", logging.ERROR: "error: "}.get(record.levelno, "")
    return prefix + record.getMessage()


def _share(done: int, total: int | None) -> str:
    """How far something is, for people: a percentage, or a count where the end is not known."""
    # Rounded down: 100 % is the end.
    return f"{done:,.0f}" if not total else f"{int(100 * done / total)}%"
