"""Settings of 0, which follow the length of the run; the command of a file, which is not started."""

import logging
from pathlib import Path
from typing import Any

import pytest

import electra
from electra.cli import main
from electra.config import load_config
from electra.pretraining.config import PretrainConfig
from electra.training.config import (
    CheckpointConfig,
    EvaluationConfig,
    OptimizerConfig,
    TrackingConfig,
    TrainConfig,
)


@pytest.mark.parametrize(
    ("steps", "report", "evaluation", "checkpoint", "warmup"),
    [(1, 1, 1, 1, 1), (60, 3, 6, 6, 6), (1000, 50, 100, 100, 100), (20_000, 100, 2_000, 2_000, 2_000),
     (1_000_000, 100, 10_000, 2_000, 10_000)],
)  # fmt: skip
def test_they_scale_with_a_short_run_and_are_the_usual_ones_in_a_long_one(
    steps: int, report: int, evaluation: int, checkpoint: int, warmup: int
) -> None:
    assert TrainConfig().report_interval(steps) == report
    assert EvaluationConfig().interval(steps) == evaluation
    assert CheckpointConfig().interval(steps) == checkpoint
    assert OptimizerConfig().warmup(steps) == warmup


def test_given_values_are_used_as_they_are() -> None:
    assert TrainConfig(report_every=70).report_interval(10) == 70
    assert EvaluationConfig(every=70).interval(10) == CheckpointConfig(every=70).interval(10) == 70
    assert OptimizerConfig(warmup_steps=70).warmup(10) == OptimizerConfig(warmup_steps=70).warmup(None) == 70


def test_the_length_may_be_unknown_and_may_continue_another_run() -> None:
    assert TrainConfig().report_interval(None) == 100 and OptimizerConfig().warmup(None) == 10_000
    assert OptimizerConfig(steps_before=4_000_000).warmup(500) == 10_000


@pytest.mark.parametrize(("interim", "expected"), [(0, 40), (10, 10), (50, 40)])
def test_earlier_evaluations_are_no_larger_than_the_last(interim: int, expected: int) -> None:
    config = EvaluationConfig(examples=40, interim_examples=interim)
    assert (config.example_count(last=False), config.example_count(last=True)) == (expected, 40)
    assert config.last_size == 40 / expected


@pytest.mark.parametrize(
    ("preset", "warmup"),
    [("electra-small", 10_000), ("electra-base", 10_000), ("electra-large", 10_000), ("bert-base", 10_000),
     ("electra-tiny", 100), ("electra-plus-nano", 100), ("quickstart", 300), ("continue", 2_000),
     ("roberta-tiny", 1_000), ("roberta-base", 24_000), ("roberta-large", 30_000), ("albert-tiny", 1_000),
     ("albert-base", 3_125), ("xlnet-base", 20_000), ("xlnet-large", 40_000), ("txl-base", 1),
     ("txl-large", 16_000)],
)  # fmt: skip
def test_presets_keep_their_warm_up_and_large_ones_shorten_it_in_a_short_run(preset: str, warmup: int) -> None:
    config = load_config(PretrainConfig, preset)
    assert config.train.steps and config.optimizer.warmup(config.train.steps) == warmup
    is_fixed = preset in ("electra-tiny", "electra-plus-nano", "quickstart")  # a tenth was worse
    assert config.optimizer.warmup(500) == (warmup if is_fixed else min(50, warmup))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('extends = "electra-nano"\n[tracking]\non_event = "touch broken"\n')
    return path


def test_the_command_of_a_file_is_ignored_with_a_warning(
    foreign: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        assert electra.load_config(foreign, {"train.steps": 5}).tracking.on_event == ""
    assert (
        "not started, because a file has it" in caplog.text and "--tracking.on_event 'touch broken'" in caplog.text
    )
    monkeypatch.setattr("electra.errors._command_line", False)
    electra.load_config(foreign)
    assert "to start it: `tracking.on_event` 'touch broken'" in caplog.text
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
