"""A file cannot start a program; the command line and Python can."""

import logging
from pathlib import Path
from typing import Any

import pytest

import electra
from electra.cli import main
from electra.training.config import TrackingConfig


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('extends = "electra-nano"\n[tracking]\non_event = "touch broken"\n')
    return path


def test_the_command_of_a_file_is_ignored_with_a_warning(foreign: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert electra.load_config(foreign, {"train.steps": 5}).tracking.on_event == ""
    assert (
        "not started, because a file has it" in caplog.text and "--tracking.on_event 'touch broken'" in caplog.text
    )
    given = {"tracking.on_event": "touch mine"}
    assert electra.load_config(foreign, given).tracking.on_event == "touch mine"
    assert TrackingConfig().trusted(()) == TrackingConfig()


def test_the_same_in_fine_tuning(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text('task = "cola"\n[tracking]\non_event = "touch broken"\n')
    given = {"model": "RUN", "tracking.on_event": "touch mine"}
    from electra.finetuning.config import load_task_config

    assert load_task_config({"model": "RUN"}, path).tracking.on_event == ""
    assert load_task_config(given, path).tracking.on_event == "touch mine"


@pytest.mark.parametrize(("option", "expected"), [("", ""), ("--tracking.on-event", "mine")])
def test_the_command_line_can_give_it(
    option: str, expected: str, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("electra.pretraining.run.pretrain", lambda config, **_: seen.append(config))
    monkeypatch.setattr("electra.finetuning.run.finetune", lambda config, **_: seen.append(config))
    task = tmp_path / "task.toml"
    task.write_text('task = "cola"\n[tracking]\non_event = "touch broken"\n')
    more = [option, "mine"] if option else []
    main(["pretrain", str(foreign), "--data", "DATA", "--out", str(tmp_path / "out"), *more])
    main(["finetune", "RUN", "--task", str(task), "--data", "DATA", "--out", str(tmp_path / "out"), *more])
    assert [config.tracking.on_event for config in seen] == [expected, expected]
