"""The console: results on stdout; log records and one progress bar on stderr.

A log record may have `extra={"progress": (done, total)}`, with total None if it is unknown. On a terminal, such
records move one bar in place; elsewhere they become plain lines, one every few seconds at most.
"""

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.text import Text

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but the tab and the line feed. A terminal obeys some of them: a text could clear the screen."""
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_FRAMES = 0.1
NOT_A_TERMINAL_WIDTH = 120


@contextlib.contextmanager
def show_log_records() -> Iterator[None]:
    """Show the library's log records of level INFO and above on stderr until the block ends."""
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
        Console(stderr=True).print(Text(escape_controls(message), style="red"), soft_wrap=True)
    else:
        sys.stderr.write(f"{escape_controls(message)}\n")


def show(result: object) -> None:
    """Write the result of a verb to stdout: rendered by rich if it can be, else as plain text."""
    if result is None:
        return
    renderable = result.__rich__() if hasattr(result, "__rich__") else result
    if hasattr(renderable, "__rich__") or hasattr(renderable, "__rich_console__"):
        # A file or pipe has no width, and rich's default of 80 would wrap tables and paths. Markup is off because
        # results contain [MASK] and TOML's [sections].
        width = None if sys.stdout.isatty() else NOT_A_TERMINAL_WIDTH
        console = Console(width=width, markup=False, emoji=False, highlight=False)
        console.print(_WithoutControls(renderable), crop=False)
    else:  # unwrapped, so that JSON stays on one line
        text = escape_controls(str(renderable)) if sys.stdout.isatty() else str(renderable)
        sys.stdout.write(f"{text}\n")


@dataclass(frozen=True)
class _WithoutControls:
    """A renderable whose text has no control characters."""

    renderable: Any

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


def escape_controls(text: str) -> str:
    """A text with control characters as Python spells them, such as \\x1b."""
    return CONTROL_CHARACTERS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class LineHandler(logging.Handler):
    """Writes one plain line per record; of the progress of a stage the first and last record, and some between."""

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
                self._advance(f"{_message(record)} ({_format_progress(*progress)})", record, *progress)
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
        # The reader of stderr may have closed it (a closed terminal, `2>&1 | head`). The work continues.
        with contextlib.suppress(OSError):
            self._stream.write(f"{line}\n")
            self._stream.flush()


class BarHandler(logging.Handler):
    """Writes records as lines, warnings in yellow, and draws the progress as a bar below them.

    The bar is drawn when a record arrives, not by a thread. If a process with threads is forked, a lock that a
    thread holds at that moment is never released in the child.
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
                self._console.print(Text(escape_controls(_message(record)), style=style))
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
        """Remove the bar and write its last message as a line."""
        if self._bar is not None:
            bar, self._bar = self._bar, None
            bar.stop()
            self._console.print(bar.message)


class _Bar(Progress):
    """A message, and below it a bar with the percentage and the elapsed time. Messages may have the time left."""

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
        self.update(self._task, description=_format_progress(done, total), completed=done, total=total)

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.message
        yield from super().get_renderables()


class _Stages:
    """Detects where the progress of one stage ends and that of the next one begins."""

    def __init__(self) -> None:
        self._place: tuple[str, int] | None = None
        self._done = 0
        self._end = ""  # the message of the record with done == total

    def begins(self, record: logging.LogRecord, done: int) -> bool:
        """Whether the record comes from another line of code than the last one, or its count starts again."""
        place = (record.pathname, record.lineno)
        is_new = place != self._place or done < self._done
        self._place, self._done = place, done
        if is_new:
            self._end = ""
        return is_new

    def ended(self, message: str, done: int, total: int | None) -> bool:
        """Whether the same end was reported before, so that this record adds nothing."""
        if done != total:
            return False
        before, self._end = self._end, message
        return before == message


def _progress(record: logging.LogRecord) -> tuple[int, int | None] | None:
    progress: tuple[int, int | None] | None = getattr(record, "progress", None)
    return progress


def _message(record: logging.LogRecord) -> str:
    prefix = {logging.WARNING: "warning: ", logging.ERROR: "error: "}.get(record.levelno, "")
    return prefix + escape_controls(record.getMessage())  # it can name a file or a label of somebody else


def _format_progress(done: int, total: int | None) -> str:
    """Return the progress as a percentage, or as a count if the total is unknown."""
    # Rounded down, so that 100% means the end.
    return f"{done:,.0f}" if not total else f"{int(100 * done / total)}%"
