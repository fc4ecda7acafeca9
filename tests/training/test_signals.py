"""A request to stop, and the same request again."""

import os
import signal

import pytest

from electra.training import signals
from electra.training.signals import StopSignal


def test_a_second_request_is_not_put_off() -> None:
    stop = StopSignal()
    with stop.handling():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_of_several_processes_one_request_may_come_twice(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_one_of_several_that_fails_is_not_killed_before_it_has_said_why(
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
