"""How many steps a number of minutes is, from the speed of the first of them."""

from collections.abc import Sequence

MEASURED_STEPS, MEASURED_SHARE = 10, 0.05
"""So many steps, and so much of a run's minutes, are timed before its length is settled."""
EVALUATION_SHARE = 0.2
"""At most so much of a run's minutes is set aside for evaluations."""


def enough_steps_timed(seconds: Sequence[float], *, budget: float, warmup_steps: int) -> bool:
    """Whether the length can be settled: after a share of the budget, and at the latest at the end of the warm-up.

    Args:
        seconds: of each step so far.
        budget: seconds of the whole run.
        warmup_steps: the learning rate needs the length from there on.
    """
    steps, spent = len(seconds), sum(seconds)
    enough = steps > MEASURED_STEPS and spent >= MEASURED_SHARE * budget
    slow = steps > 1 and spent >= 0.5 * budget
    return enough or slow or steps >= warmup_steps


def seconds_per_step(seconds: Sequence[float]) -> float:
    """The mean of the later half: the first steps are slower than all others."""
    later = seconds[len(seconds) // 2 :]
    return sum(later) / len(later)


def evaluation_seconds_reserved(first: float, *, count: float, budget: float) -> float:
    """Seconds to set aside for `count` evaluations; the `first`, which was timed, is slower than those to come."""
    return min(count * first, EVALUATION_SHARE * budget)
