"""Signals to stop a run, and repeated signals."""

import os
import signal

import pytest

from electra.training import signals
from electra.training.signals import StopSignal


def test_a_second_signal_stops_at_once() -> None:
    stop = StopSignal()
    with stop.handling():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_with_several_processes_a_repeated_signal_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "world_size", lambda: 2)
    stop = StopSignal()
    with stop.handling():
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):  # the terminal's, torchrun's, torchrun's
            os.kill(os.getpid(), number)
        assert stop.received == signal.SIGINT
        monkeypatch.setattr(signals, "REPEAT_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("processes", "left"), [(1, signal.SIG_DFL), (2, signal.SIG_IGN)])
def test_after_an_error_sigterm_does_not_stop_the_report(
    processes: int, left: signal.Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "world_size", lambda: processes)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(RuntimeError), StopSignal().handling():
            raise RuntimeError("Connection reset by peer")
        assert signal.getsignal(signal.SIGTERM) == left
    finally:
        signal.signal(signal.SIGTERM, before)
