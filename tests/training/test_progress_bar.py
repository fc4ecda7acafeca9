"""The bar of callers of Python: where it is shown, and what it says."""

import io
import logging
import sys
from types import ModuleType

import pytest

from electra.console import show_log_records
from electra.training.progress_bar import progress_bar, shows_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_it_is_shown_in_a_terminal_and_in_a_notebook_and_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert shows_bar(True) and not shows_bar(None)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert shows_bar(None) and not shows_bar(False)
    monkeypatch.delitem(sys.modules, "ipykernel")
    open_terminal(monkeypatch)
    assert shows_bar(None) and not shows_bar(False)


def test_it_is_not_shown_where_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)
    assert shows_bar(None)
    with show_log_records():  # the command line
        assert not shows_bar(None) and shows_bar(True)
    monkeypatch.setattr(logging.getLogger("electra"), "level", logging.INFO)
    assert not shows_bar(None)


def test_it_shows_steps_and_loss_and_begins_where_a_resumed_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, terminal = [], open_terminal(monkeypatch)
    with progress_bar("seed 3", shown=True, on_report=lambda metrics, steps: seen.append(steps)) as on_report:
        on_report({"step": 20, "eval/accuracy": 0.5}, None)  # the length is being measured
        on_report({"step": 30, "loss": 0.75}, 40)
        on_report({"step": 40, "eval/accuracy": 0.6}, 40)
    assert seen == [None, 40, 40]
    lines = terminal.getvalue().replace("\n", "\r").split("\r")
    assert any(line.startswith("seed 3: 20step") for line in lines)
    assert not any("3: 0step" in line or " 0/40 " in line for line in lines), "nor is its speed that of all steps"
    assert any(line.startswith("seed 3:  75%") and " 30/40 " in line and "loss=0.7500" in line for line in lines)
    assert any(line.startswith("seed 3: 100%") and " 40/40 " in line for line in lines)


def test_a_warning_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with progress_bar("pretrain", shown=True) as on_report:
        on_report({"step": 20, "loss": 0.75}, 40)
        logging.getLogger("electra").warning("the disk is nearly full")
        on_report({"step": 40, "loss": 0.5}, 40)
    lines = terminal.getvalue().replace("\n", "\r").split("\r")
    assert "the disk is nearly full" in lines
    assert not any("step" in line for line in lines if "disk" in line)


def test_without_a_bar_only_the_function_of_the_user_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, terminal = [], open_terminal(monkeypatch)
    with progress_bar("pretrain", shown=False, on_report=lambda metrics, steps: seen.append(metrics)) as on_report:
        on_report({"step": 1, "loss": 1.0}, 2)
    assert seen == [{"step": 1, "loss": 1.0}] and terminal.getvalue() == ""
