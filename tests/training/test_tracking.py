"""metrics.jsonl and the lines of the console."""

import json
import logging
import math
from pathlib import Path

import pytest

from electra.training.config import TrackingConfig
from electra.training.tracking import MetricsFile, Tracking, format_duration, log_file, report_line


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
    tracking.report({"step": 5, "loss": 1.5}, line="step 5", done=5, total=10)
    tracking.write_metrics({"step": 5, "eval/unigram_auc": 0.75})
    tracking.close()
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert board.Scalars("train/loss")[0].value == 1.5
    assert board.Scalars("eval/unigram_auc")[0].step == 5


def test_tensorboard_can_be_left_out(tmp_path: Path) -> None:
    Tracking(tmp_path, TrackingConfig(tensorboard=False), resume_at=0, resume_step=0).close()
    assert not (tmp_path / "tensorboard").exists()


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3s"), (200, "3m 20s"), (18_420, "5h 07m"), (187_200, "2d 04h"), (-1, "0s")]
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_report_is_one_line_with_everything_in_it() -> None:
    figures = {
        "step": 1200, "loss": 7.25, "generator_loss": 6.0, "discriminator_loss": 0.25,
        "learning_rate": 5e-4, "gradient_norm": 1.5, "tokens_per_second": 12_345.0,
    }  # fmt: skip
    line = report_line(figures, steps=10_000, utilization=0.41, seconds_left=200)
    assert line == (
        "step 1,200/10,000 · loss 7.2500 · generator 6.0000 · discriminator 0.2500 · lr 5.00e-04 · "
        "gradient 1.50 · 12,345 tokens/s · utilization 41% · 3m 20s left"
    )
    del figures["discriminator_loss"]  # a masked language model that is trained alone
    line = report_line(figures, steps=None, utilization=0.41, seconds_left=None)
    assert line.startswith("step 1,200 · loss 7.2500 · masked LM 6.0000 · lr")


def test_the_log_file_has_the_messages_of_the_library(tmp_path: Path) -> None:
    with log_file(tmp_path / "log.txt"):
        logging.getLogger("electra.training.trainer").info("a line")
    logging.getLogger("electra.training.trainer").info("not this one")
    assert (tmp_path / "log.txt").read_text().endswith("INFO a line\n")
