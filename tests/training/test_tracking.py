"""metrics.jsonl and the lines of the console."""

import json
import logging
import math
import sys
from pathlib import Path

import pytest

from electra.training.config import TrackingConfig
from electra.training.tracking import (
    MetricsFile,
    Tracking,
    evaluation_line,
    log_file,
    report_line,
)

REPORT = {
    "step": 1200, "loss": 7.25, "generator_loss": 6.0, "discriminator_loss": 0.25,
    "learning_rate": 5e-4, "gradient_norm": 1.5, "tokens_per_second": 12_345.0,
}  # fmt: skip


def test_resuming_cuts_off_metrics_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    metrics.write({"step": 1, "loss": 2.5})
    offset = metrics.sync()
    metrics.write({"step": 2, "loss": 2.0})
    metrics.close()
    resumed = MetricsFile(path, resume_at=offset)
    resumed.write({"step": 2, "loss": 1.0})
    resumed.close()
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [2.5, 1.0]


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.write({"step": 1, "loss": math.nan})
    metrics.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": None}


def test_tensorboard_has_every_step_once_after_a_kill(tmp_path: Path) -> None:
    """Of steps behind the checkpoint those of the resumed run count, and none is missing."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, last, resumed in ((1, 12, 0), (9, 20, 8), (15, 22, 14)):
        tracking = Tracking(tmp_path, TrackingConfig(), resume_at=0, resume_step=resumed)
        for step in range(first, last + 1):
            tracking.write_metrics({"step": step, "loss": float(100 * resumed + step)})
        tracking.close()
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = {scalar.step: scalar.value for scalar in board.Scalars("train/loss")}
    assert [scalar.step for scalar in board.Scalars("train/loss")] == list(range(1, 23))
    assert all(found[step] == 100 * (0 if step < 9 else 8 if step < 15 else 14) + step for step in found)


def test_tensorboard_has_the_same_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracking = Tracking(tmp_path, TrackingConfig(), resume_at=0, resume_step=0)
    tracking.report(REPORT, steps=10_000, utilization=0.41, seconds_left=200)
    tracking.write_metrics({"step": 5, "eval/unigram_auc": 0.75})
    tracking.close()
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert board.Scalars("train/loss")[0].value == 7.25
    assert board.Scalars("eval/unigram_auc")[0].step == 5


def test_tensorboard_can_be_left_out(tmp_path: Path) -> None:
    Tracking(tmp_path, TrackingConfig(tensorboard=False), resume_at=0, resume_step=0).close()
    assert not (tmp_path / "tensorboard").exists()


def test_a_report_is_one_line_with_everything_in_it() -> None:
    line = report_line(REPORT, steps=10_000, utilization=0.41, seconds_left=200, has_generator=True)
    assert line == (
        "step 1,200/10,000 · loss 7.2500 · generator 6.0000 · discriminator 0.2500 · lr 5.00e-04 · "
        "gradient 1.50 · 12,345 tokens/s · utilization 41% · 3m 20s left"
    )


@pytest.mark.parametrize(("has_generator", "label"), [(False, "masked-LM"), (True, "generator")])
def test_a_masked_language_model_is_no_generator(
    has_generator: bool, label: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in the first of two stages, when a generator has no other loss beside it."""
    caplog.set_level(logging.INFO, "electra")
    config = TrackingConfig(tensorboard=False)
    tracking = Tracking(tmp_path, config, resume_at=0, resume_step=0, has_generator=has_generator)
    alone = {key: value for key, value in REPORT.items() if key != "discriminator_loss"}
    tracking.report(alone, steps=None, utilization=2.0, seconds_left=None)
    tracking.close()
    assert caplog.messages == [
        f"step 1,200 · loss 7.2500 · {label} 6.0000 · lr 5.00e-04 · gradient 1.50 · 12,345 tokens/s"
    ]


def test_the_line_of_an_evaluation_of_a_task_has_the_names_of_reports() -> None:
    metrics = {"step": 60, "tokens": 9, "eval/span_f1": 0.45, "eval/span_f1/PER": 0.5, "eval/accuracy": 0.9}
    assert evaluation_line(metrics) == "held-out at step 60 · span F1 0.450 · accuracy 0.900"


def test_the_log_file_has_the_messages_of_the_library(tmp_path: Path) -> None:
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("electra.training.trainer").info("a line")
    logging.getLogger("electra.training.trainer").info("not this one")
    assert (tmp_path / "log.txt").read_text().endswith("INFO a line\n")


@pytest.mark.parametrize(
    ("level", "shown"), [(logging.WARNING, ["a warning"]), (logging.INFO, ["a line", "a warning"])]
)
def test_beside_the_log_file_the_callers_logging_shows_what_it_showed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int, shown: list[str]
) -> None:
    with caplog.at_level(level, "electra"), log_file(tmp_path / "log.txt"):
        caplog.handler.setLevel(logging.NOTSET)  # the level of the logger is what decides
        logging.getLogger("electra.training.trainer").info("a line")
        logging.getLogger("electra.training.trainer").warning("a warning")
    assert caplog.messages == shown


def test_without_logging_warnings_are_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("electra.training.trainer").info("a line")
        logging.getLogger("electra.training.trainer").warning("a warning")
    assert capsys.readouterr().err == "a warning\n"


def test_a_log_that_is_shown_is_not_shown_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("electra"), "handlers", [logging.StreamHandler(sys.stderr)])
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("electra.training.trainer").info("a line")  # below the level before the block
        logging.getLogger("electra.training.trainer").warning("a warning")
    assert capsys.readouterr().err == "a warning\n"
    logging.getLogger("electra.training.trainer").warning("after the block")
    assert capsys.readouterr().err == "after the block\n"
