"""The number of steps in train.minutes."""

import math

import pytest

from electra.training.step_metrics import Progress
from electra.training.time_budget import (
    Deadline,
    enough_steps_timed,
    estimate_steps,
    evaluation_seconds_reserved,
    seconds_per_step,
)


@pytest.mark.parametrize(
    ("seconds", "warmup_steps", "expected"),
    [
        ([1.0] * 10, 100, False),  # not yet more than ten steps
        ([1.0] * 11, 100, True),  # 5 % of 200 seconds
        ([0.1] * 50, 100, False),
        ([0.1] * 50, 50, True),  # the end of the warm-up
        ([120.0], 100, False),  # one step says nothing
        ([60.0, 60.0], 100, True),  # half of the time is gone
    ],
)
def test_when_enough_is_measured(seconds: list[float], warmup_steps: int, expected: bool) -> None:
    assert enough_steps_timed(seconds, budget=200.0, warmup_steps=warmup_steps) is expected


def test_slow_first_steps_and_a_slow_first_evaluation_count_little() -> None:
    assert seconds_per_step([9.0, 5.0, 1.0, 3.0]) == 2.0
    assert evaluation_seconds_reserved(1.0, count=11.0, budget=300.0) == 11.0
    assert evaluation_seconds_reserved(9.0, count=11.0, budget=60.0) == 12.0


@pytest.mark.parametrize(("growth", "steps"), [(1.0, 190), (1.25, 152)])
def test_fewer_steps_fit_if_later_ones_are_more_expensive(growth: float, steps: int) -> None:
    progress = Progress(step=10, seconds=20.0, step_seconds=[2.0] * 10, evaluation_seconds=0.0)
    estimate = estimate_steps(progress, budget=380.0, warmup_steps=10, evaluations=11, growth=growth)
    assert estimate is not None and estimate[0] == steps


def test_a_deadline_leaves_time_for_the_evaluation_and_the_export() -> None:
    now = [100.0]
    deadline = Deadline(10.0, clock=lambda: now[0])  # 30 s for the export, at most 120 s in all
    assert Deadline(clock=lambda: now[0]).seconds_left(1e9) == math.inf
    now[0] = 160.0
    assert [deadline.seconds_left(evaluation) for evaluation in (0.0, 40.0, 500.0)] == [510.0, 470.0, 420.0]
    assert Deadline(10.0, started=100.0, clock=lambda: now[0]).seconds_left(0.0) == 510.0
