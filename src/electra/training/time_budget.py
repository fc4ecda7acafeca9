"""How many steps fit into `train.minutes`, by the speed of the first steps; and when `train.deadline` is near."""

import math
import time
from collections.abc import Callable, Sequence

from electra.training.step_metrics import Progress

TIMED_STEPS, TIMED_SHARE = 10, 0.05
"""More than this number of steps, and this share of the minutes, are timed before the length is computed."""
EVALUATION_SHARE = 0.2
"""Maximum share of the minutes that is reserved for evaluations."""
EXPORT_SECONDS, ENDING_SHARE = 30.0, 0.2
"""Seconds that are reserved for the export of a run with a deadline; and the maximum share of its minutes that is
reserved for the export and evaluations."""


class Deadline:
    """The time at which a command must have ended.

    Args:
        minutes: None: there is no deadline.
        started: what the clock said when the minutes began; None: now.
        clock: returns seconds.
    """

    def __init__(
        self,
        minutes: float | None = None,
        *,
        started: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._minutes, self._clock = minutes, clock
        self._started = clock() if started is None else started
        self.reserved = math.inf if minutes is None else ENDING_SHARE * 60.0 * minutes
        """Maximum number of seconds that are reserved for the export and the last evaluation."""

    def seconds_left(self, evaluation_seconds: float) -> float:
        """Seconds in which training must stop, so that the last evaluation and the export are done in time.

        Args:
            evaluation_seconds: the duration of the last evaluation.
        """
        if self._minutes is None:
            return math.inf
        ending = min(EXPORT_SECONDS + evaluation_seconds, self.reserved)
        return 60.0 * self._minutes - (self._clock() - self._started) - ending


def estimate_steps(
    progress: Progress, *, budget: float, warmup_steps: int, evaluations: float, growth: float = 1.0
) -> tuple[int, float, float] | None:
    """The length of a run that fits into a budget of seconds. None while too few steps are timed.

    Args:
        evaluations: the number of evaluations in the run, in units of the first one.
        growth: how expensive a step is at the mean of the whole run, in units of the first steps.

    Returns:
        The number of steps, the seconds per step at the mean of the run, and the seconds that are reserved for
        evaluations.
    """
    if not enough_steps_timed(progress.step_seconds, budget=budget, warmup_steps=warmup_steps):
        return None
    first = seconds_per_step(progress.step_seconds)
    reserved = evaluation_seconds_reserved(progress.evaluation_seconds, count=evaluations, budget=budget)
    cheap_steps = progress.step + max(0.0, (budget - progress.seconds - reserved) / first)
    return max(progress.step, int(cheap_steps / growth)), growth * first, reserved


def enough_steps_timed(seconds: Sequence[float], *, budget: float, warmup_steps: int) -> bool:
    """Whether the length can be computed: after a share of the budget, at the latest at the end of the warm-up.

    Args:
        seconds: the duration of each step so far.
        budget: seconds of the whole run.
        warmup_steps: the learning rate depends on the length after these steps.
    """
    steps, spent = len(seconds), sum(seconds)
    enough = steps > TIMED_STEPS and spent >= TIMED_SHARE * budget
    slow = steps > 1 and spent >= 0.5 * budget
    return enough or slow or steps >= warmup_steps


def seconds_per_step(seconds: Sequence[float]) -> float:
    """The mean of the later half, because the first steps are slower than all others."""
    later = seconds[len(seconds) // 2 :]
    return sum(later) / len(later)


def evaluation_seconds_reserved(first: float, *, count: float, budget: float) -> float:
    """Seconds to reserve for `count` evaluations. The `first`, which was timed, is slower than the later ones."""
    return min(count * first, EVALUATION_SHARE * budget)
