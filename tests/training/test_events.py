"""The user's command at every event, and the record of how a run ended."""

import json
import logging
import sys
from pathlib import Path

import pytest

from electra.errors import DivergedError
from electra.training.events import open_event_hook
from electra.training.run_folder import RunFolder

COMMAND = (
    f'"{sys.executable}" -c "import os; print(*(os.environ[\'ELECTRA_\' + name] for name in'
    " ('EVENT', 'STEP', 'RUN', 'MESSAGE')), sep='|')\" >> {file}"
)


def test_the_command_is_started_at_every_event(tmp_path: Path) -> None:
    file, run = tmp_path / "heard", RunFolder(tmp_path)
    with open_event_hook(run, COMMAND.format(file=file)) as events:
        events("started", "at step 0")
        events("warning", 'loss spike: it\'s 9 "high" $HOME', 12)
        events("finished", "after 20 steps", 20)
    assert sorted(file.read_text().splitlines()) == [
        f"finished|20|{tmp_path}|after 20 steps",
        f"started|0|{tmp_path}|at step 0",
        f'warning|12|{tmp_path}|loss spike: it\'s 9 "high" $HOME',
    ]
    assert json.loads(run.end.read_text())["how"] == "finished"


def test_a_failure_is_an_event_and_is_recorded(tmp_path: Path) -> None:
    file, run = tmp_path / "heard", RunFolder(tmp_path)
    run.end.write_text("of before")
    with pytest.raises(DivergedError), open_event_hook(run, COMMAND.format(file=file)):
        assert not run.end.exists()
        raise DivergedError("steps are not finite")
    assert file.read_text().strip() == f"failed|0|{tmp_path}|steps are not finite"
    assert json.loads(run.end.read_text())["message"] == "steps are not finite"
    with pytest.raises(KeyboardInterrupt), open_event_hook(run, ""):
        raise KeyboardInterrupt
    assert json.loads(run.end.read_text())["how"] == "stopped"


def test_an_end_event_has_the_current_step(tmp_path: Path) -> None:
    with pytest.raises(DivergedError), open_event_hook(RunFolder(tmp_path), "") as events:
        events.current_step = lambda: 63
        raise DivergedError("steps are not finite")
    assert json.loads((tmp_path / "ended.json").read_text())["step"] == 63


def test_a_failing_command_is_reported_once_and_does_not_stop_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), open_event_hook(RunFolder(tmp_path), "exit 7") as events:
        events("started", "")
        events("checkpoint", "")
    assert [m.partition(";")[0] for m in caplog.messages] == [
        "tracking.on_event ended with exit status 7 at the event 'started'"
    ]
