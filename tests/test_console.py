"""What a person sees of the library's records, on a terminal and elsewhere."""

import io
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console
from rich.text import Text

from electra.console import BarHandler, LineHandler, complain, show, show_log_records

logger = logging.getLogger("electra.test_console")
YELLOW, RED = "\x1b[33m", "\x1b[31m"


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


Attach = Callable[[logging.Handler], None]


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attach]:
    """Adds a handler to the logger during a test."""
    handlers: list[logging.Handler] = []

    def attach(handler: logging.Handler) -> None:
        handlers.append(handler)
        logger.addHandler(handler)

    logger.setLevel(logging.INFO)
    yield attach
    for handler in handlers:
        logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def terminal(stream: io.StringIO) -> Console:
    return Console(file=stream, force_terminal=True, color_system="standard", width=60, no_color=False)


def step(done: int, total: int | None = 100, *, message: str = "step") -> None:
    logger.info("%s %d", message, done, extra={"progress": (done, total)})


def on_screen(written: str) -> list[str]:
    """The lines that a terminal shows after it was sent `written`."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\x1b[1A":
            row -= 1
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token[0] not in "\x1b\r":
            lines[row] += token
    return [line.rstrip() for line in lines if line.strip()]


def test_records_become_plain_lines(attach: Attach):
    stream = io.StringIO()
    attach(LineHandler(stream))
    logger.info("reading %s", "[MASK].txt")
    logger.warning("2 %% unknown")
    logger.error("gone")
    logger.debug("not for people")
    assert stream.getvalue() == "reading [MASK].txt\nwarning: 2 %% unknown\nerror: gone\n"


def test_progress_off_a_terminal_is_a_line_every_ten_seconds(attach: Attach):
    stream, clock = io.StringIO(), Clock()
    attach(LineHandler(stream, clock=clock))
    for done in range(0, 101, 5):  # two seconds apart
        step(done)
        clock.seconds += 2
    assert stream.getvalue().splitlines() == [
        "step 0 (0%)",
        "step 25 (25%)",
        "step 50 (50%)",
        "step 75 (75%)",
        "step 100 (100%)",
    ]


def test_a_stage_that_ends_early_leaves_its_last_line(attach: Attach):
    stream = io.StringIO()
    handler = LineHandler(stream, clock=Clock())
    attach(handler)
    for done in (1, 2, 3):
        step(done, message="reading")
    for done in (1, 2):  # counts from anew: another stage
        step(done, None, message="writing")
    handler.close()
    assert stream.getvalue().splitlines() == [
        "reading 1 (1%)",
        "reading 3 (3%)",
        "writing 1 (1)",
        "writing 2 (2)",
    ]


@pytest.mark.parametrize("total", [100, 1000])
def test_the_end_is_reported_once(attach: Attach, total: int):
    stream, clock = io.StringIO(), Clock()
    attach(LineHandler(stream, clock=clock))
    for done in (0, total - 1, total, total, total):
        step(done, total, message="reading")
        clock.seconds += 20
    assert stream.getvalue().count("(100%)") == 1

    stream = io.StringIO()
    attach(BarHandler(terminal(stream), clock=clock))
    for done in (0, total, total, total):
        logger.info("reading", extra={"progress": (done, total)})
    assert on_screen(stream.getvalue()) == ["reading"]


def test_work_continues_when_stderr_is_closed(attach: Attach, capsys: pytest.CaptureFixture[str]):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1, closefd=False) as stream:
        attach(LineHandler(stream))
        logger.info("into the void")
        step(1)
        # What the stream still holds cannot be written at its end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    assert capsys.readouterr().err == ""


def test_a_record_that_cannot_be_formatted_is_reported_not_raised(
    attach: Attach, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logger, "propagate", False)  # pytest's own handler raises
    attach(LineHandler(io.StringIO()))
    logger.info("%d", "no number")
    assert "--- Logging error ---" in capsys.readouterr().err


def test_on_a_terminal_warnings_are_yellow_and_errors_red(attach: Attach):
    stream = io.StringIO()
    attach(BarHandler(terminal(stream)))
    logger.info("reading [MASK]")
    logger.warning("2 percent unknown")
    logger.error("gone")
    plain, yellow, red = stream.getvalue().splitlines()
    assert plain == "reading [MASK]"
    assert yellow.startswith(f"{YELLOW}warning: 2 percent unknown")
    assert red.startswith(f"{RED}error: gone")


def test_no_color_is_respected(attach: Attach, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    attach(BarHandler(Console(file=stream, force_terminal=True, color_system="standard", width=60)))
    logger.warning("2 percent unknown")
    assert YELLOW not in stream.getvalue()
    assert "warning: 2 percent unknown" in stream.getvalue()


def test_on_a_terminal_progress_moves_one_bar_in_place(attach: Attach):
    stream, clock = io.StringIO(), Clock()
    handler = BarHandler(terminal(stream), clock=clock)
    attach(handler)
    logger.info("before")
    for done in range(1, 51):
        step(done)
        clock.seconds += 1
    logger.warning("beside")
    before, beside, message, bar = on_screen(stream.getvalue())
    assert (before, beside, message) == ("before", "warning: beside", "step 50")
    assert "50%" in bar
    handler.close()
    assert on_screen(stream.getvalue()) == ["before", "warning: beside", "step 50"]


def test_a_stage_that_is_done_leaves_its_last_message(attach: Attach):
    stream = io.StringIO()
    attach(BarHandler(terminal(stream), clock=Clock()))
    step(99)
    step(100)
    logger.info("after")
    assert on_screen(stream.getvalue()) == ["step 100", "after"]


def test_the_bar_is_drawn_no_more_than_ten_times_a_second(attach: Attach):
    stream, clock = io.StringIO(), Clock()
    handler = BarHandler(terminal(stream), clock=clock)
    attach(handler)
    for done in range(1, 1_000):  # a millisecond apart: one second
        step(done, 100_000)
        clock.seconds += 1e-3
    assert 8 <= stream.getvalue().count("step ") <= 12
    handler.close()


def test_the_next_stage_gets_a_new_bar(attach: Attach):
    stream, clock = io.StringIO(), Clock()
    handler = BarHandler(terminal(stream), clock=clock)
    attach(handler)
    step(90, message="reading")
    clock.seconds += 1
    step(10, None, message="writing")
    reading, writing, bar = on_screen(stream.getvalue())
    assert (reading, writing) == ("reading 90", "writing 10")
    assert re.search(r"\b10 0:00", bar), "a count where the end is not known"
    handler.close()
    assert on_screen(stream.getvalue()) == ["reading 90", "writing 10"]


def test_nothing_stays_attached_after_the_block(capsys: pytest.CaptureFixture[str]):
    package = logging.getLogger("electra")
    before = list(package.handlers), package.level
    with show_log_records():
        logger.info("inside")
    logger.info("outside")
    assert capsys.readouterr().err == "inside\n"
    assert (package.handlers, package.level) == before


def test_error_messages_are_plain_if_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]):
    complain("electra: [MASK] is missing")
    assert capsys.readouterr().err == "electra: [MASK] is missing\n"


def test_a_text_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    harmful = "one\x1b[2J \x9b2J\x07 two\ttabs\nlines"
    show(Text(harmful, style="red"))
    assert "\x1b[2J" not in (shown := capsys.readouterr().out) and "one\\x1b[2J \\x9b2J" in shown
    show(harmful)
    assert capsys.readouterr().out == f"{harmful}\n", "a file gets the text as it is"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show(harmful)
    harmless = "one\\x1b[2J \\x9b2J\\x07 two\ttabs\nlines\n"
    assert capsys.readouterr().out == harmless
    complain(harmful)
    with show_log_records():
        logging.getLogger("electra.test").warning("%s", harmful)
    assert capsys.readouterr().err == f"{harmless}warning: {harmless}"


SPEAKER = """
import logging
from electra.console import complain, show_log_records
logger = logging.getLogger("electra.speaker")
with show_log_records():
    logger.warning("careful")
    for done in range(1, 4):
        logger.info("step %d", done, extra={"progress": (done, 3)})
complain("electra: done for")
"""


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_terminal_gets_colors_and_a_bar_unless_it_is_dumb(term: str):
    """The choice is made by what stderr really is, so this one runs behind a pseudo-terminal."""
    master, slave = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    subprocess.run([sys.executable, "-c", SPEAKER], stderr=slave, env=environment | {"TERM": term}, check=True)
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:  # Linux says so when the other side is closed
        pass
    os.close(master)
    text = shown.decode()
    assert (YELLOW + "warning: careful" in text) == (term != "dumb")
    assert ("━" in text) == (term != "dumb")
    assert "step 3" in text
    assert "electra: done for" in text
