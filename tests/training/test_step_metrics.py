"""The metrics of steps: time is shared by the steps that were waited for, and skipped steps were work, too."""

import time

import pytest
import torch

from electra.training.step_metrics import MetricAccumulator, Progress
from electra.training.update import Metrics


def metrics(*, applied: bool = True) -> Metrics:
    """Of a step with 30 tokens at 32 positions."""
    values = {"loss": 1.0, "gradient_norm": 2.0, "applied": applied, "tokens": 30.0, "positions": 32.0}
    return {name: torch.tensor(float(value)) for name, value in values.items()}


def test_steps_share_the_time_until_the_device_has_finished_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    accumulator = MetricAccumulator(Progress())
    accumulator.start_step()
    for _ in range(4):
        accumulator.add(1e-3, 10.0, metrics())
    now += 8.0
    accumulator.sync()
    assert accumulator.progress.seconds == 8 and accumulator.progress.step_seconds == [2] * 4


def test_a_skipped_step_counts_as_work() -> None:
    accumulator = MetricAccumulator(Progress())
    accumulator.start_step()
    for applied in (True, False, True):
        accumulator.add(1e-3, 10.0, metrics(applied=applied), update_flops=5.0)
    (skipped,) = accumulator.sync()
    progress = accumulator.progress
    assert (skipped.step, skipped.in_a_row, progress.skipped) == (2, 1, 1)
    assert progress.tokens == 3 * 30 and progress.flops == 3 * (10 * 32 + 5)
