"""How many times less compute an arm needs for the score that its control has at the whole budget.

In a study with several fractions of the budget, each fraction is a run of its own, with a whole schedule. For
each seed the score of an arm, less that of its control at the whole budget, is a curve over the fraction:
straight lines over its logarithm. The arm *needs* the least fraction from which on the mean of these curves is
not below 0. Its multiplier is the inverse of that: 2 means half of the compute.

The interval goes from the first to the last fraction at which Student's interval of the mean contains 0 (or, at
its low end, from which on the mean is clearly above 0), so it has the confidence of a test of the difference.
Values below 1, and values above the inverse of the smallest fraction, lie outside of what was run; only the bound
is known there.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from electra.reports.study_results import ArmResult, Record, heldout_metric_of, is_percent, t_quantile

POINTS = 200
"""Fractions at which the curves are compared, between two that were run."""
ROUNDING = 1e-9
"""Relative error of an exponential of a logarithm, and more."""


@dataclass(frozen=True)
class ComputeMultiplier:
    """The multiplier of an arm.

    Attributes:
        seeds: seeds of the arm at all fractions that its control has at the whole budget.
        bound: the inverse of the smallest fraction; the multiplier may be larger than this, but not be seen to be.
        value: the multiplier, at most `bound`; None: the arm does not reach the score, so it is below 1.
        interval: its ends, each like `value`; None: one seed has no interval.
        speed: seconds of the control's run at the whole budget, over those of the arm's (medians). The multiplier
            in seconds is this times `value`.
    """

    arm: str
    label: str
    control: str
    seeds: int
    bound: float
    value: float | None
    interval: tuple[float | None, float | None] | None
    speed: float

    def describe(self, *, in_seconds: bool = False) -> str:
        """The multiplier and its interval, of FLOPs or of seconds."""
        unit = self.speed if in_seconds else 1.0

        def number(value: float | None) -> str:
            if value is None:
                return f"< {unit:.2f}"
            return f"{'≥ ' if value > self.bound * (1 - ROUNDING) else ''}{unit * value:.2f}"

        if self.interval is None:
            return number(self.value)
        return f"{number(self.value)} ({number(self.interval[0])} to {number(self.interval[1])})"


def compute_multipliers(study: Record, arms: Sequence[ArmResult]) -> Iterator[ComputeMultiplier]:
    """The multipliers of all arms with a control that have a seed at all fractions of the budget.

    There are none where a lower score is better, as with a loss.

    Args:
        study: the object of study.json.
        arms: the results of the arms, at each fraction.
    """
    fractions = sorted(study["shares"])
    if fractions[-1] != 1 or len(fractions) < 2 or not (study["suite"] or is_percent(heldout_metric_of(study))):
        return
    by_arm = {
        (one.arm, one.budget_fraction): one for one in arms if len(one.scores) == len(one.runs)
    }  # without tasks, a run may lack the held-out metric
    for name, arm in study["arms"].items():
        control = arm.get("control") or study["control"]
        own, end = [by_arm.get((name, fraction)) for fraction in fractions], by_arm.get((control, 1.0))
        if name == control or end is None or not all(own):
            continue
        curves = [_by_seed(one) for one in own if one is not None]
        target = _by_seed(end)
        seeds = sorted(target.keys() & set.intersection(*(set(curve) for curve in curves)))
        if seeds:
            differences_SF = [[curve[seed] - target[seed] for curve in curves] for seed in seeds]
            speed = _median_seconds(end) / _median_seconds(by_arm[name, 1.0])
            value, interval = multiplier(fractions, differences_SF)
            bound = 1 / fractions[0]
            yield ComputeMultiplier(name, arm["says"], control, len(seeds), bound, value, interval, speed)


def multiplier(
    fractions: Sequence[float], differences_SF: Sequence[Sequence[float]]
) -> tuple[float | None, tuple[float | None, float | None] | None]:
    """The multiplier and the ends of its interval, each None if it is below 1; no interval with one seed.

    Args:
        fractions: of the budget, ascending; the last one is 1.
        differences_SF: for each seed and fraction, the arm's score less that of the control at the whole budget.
    """
    logs = np.log(fractions)
    grid = np.unique(np.concatenate([np.linspace(a, b, POINTS) for a, b in pairwise(logs)]))
    curves_SG = np.array([np.interp(grid, logs, one) for one in differences_SF])
    value = _inverse_of_first(grid, curves_SG.mean(0) >= 0)
    if len(differences_SF) == 1:
        return value, None
    mean_G, width_G = curves_SG.mean(0), t_quantile(len(curves_SG)) * curves_SG.std(0, ddof=1)
    low_G, high_G = mean_G - width_G, mean_G + width_G
    not_worse = np.flatnonzero(high_G >= 0)
    high = math.exp(-grid[not_worse[0]]) if len(not_worse) else None
    return value, (_inverse_of_first(grid, low_G > 0), high)


def _inverse_of_first(grid: np.ndarray, holds: np.ndarray) -> float | None:
    """The inverse of the first fraction from which on something holds, given their logarithms; None: of none."""
    if not holds[-1]:
        return None
    fails = np.flatnonzero(~holds)
    return math.exp(-grid[fails[-1] + 1 if len(fails) else 0])


def _by_seed(arm: ArmResult) -> dict[int, float]:
    return {run["seed"]: score for run, score in zip(arm.runs, arm.scores, strict=True)}


def _median_seconds(arm: ArmResult) -> float:
    return statistics.median(run["seconds"] for run in arm.runs)
