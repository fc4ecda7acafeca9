"""How much less compute an arm needs to reach the score that its control has at the end.

In a study with several fractions of the budget, each fraction is a run of its own, with a whole schedule. The
points (compute, score) of an arm and a seed are joined by straight lines over the logarithm of the compute. The
*multiplier* is the compute of the control's run at the whole budget, over the least compute at which these lines
reach the score of that run, seed by seed; 2 means half of the compute.

An arm that is as good at its smallest budget has a multiplier of at least the ratio to that, and one that never
reaches the score has none; where either happens in some seed, there is no interval.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from electra.reports.study_results import ArmResult, Record, heldout_metric_of, is_percent, t_interval

Cost = Literal["flops", "seconds"]
COSTS: tuple[Cost, ...] = ("flops", "seconds")


@dataclass(frozen=True)
class Multiplier:
    """The multiplier of an arm in one cost.

    Attributes:
        seeds: number of seeds that both have at the whole budget.
        reached: number of those that reach the control's score.
        at_least: whether some seed reaches it at the smallest budget already, so that the mean is too small.
        mean: geometric mean over the seeds that reach it; None: no seed does.
        interval: Student's, of the logarithms; None where a seed does not reach it, or has a bound only.
    """

    seeds: int
    reached: int
    at_least: bool
    mean: float | None
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        if self.mean is None:
            return "not reached"
        text = f"{'≥ ' if self.at_least else ''}{self.mean:.2f}"
        if self.interval is not None:
            text += f" ({self.interval[0]:.2f} to {self.interval[1]:.2f})"
        return text if self.reached == self.seeds else f"{text}, {self.reached} of {self.seeds} seeds"


@dataclass(frozen=True)
class ArmMultiplier:
    """The multipliers of an arm against its control, by cost."""

    arm: str
    label: str
    control: str
    by_cost: Mapping[Cost, Multiplier]


def compute_multipliers(study: Record, arms: Sequence[ArmResult]) -> Iterator[ArmMultiplier]:
    """The multipliers of all arms that have runs at several fractions of the budget and a control.

    There are none where a lower score is better, as with a loss.

    Args:
        study: the object of study.json.
        arms: the results of the arms, at each fraction.
    """
    if not study["suite"] and not is_percent(heldout_metric_of(study)):
        return
    arms = [one for one in arms if len(one.scores) == len(one.runs) > 0]  # all runs have the held-out metric
    for name, arm in study["arms"].items():
        control = arm.get("control") or study["control"]
        own = [one for one in arms if one.arm == name]
        ends = [one for one in arms if one.arm == control and one.budget_fraction == 1]
        if name == control or len(own) < 2 or not ends:
            continue
        by_cost = {cost: _multiplier(own, ends[0], cost) for cost in COSTS}
        if by_cost["flops"].seeds:
            yield ArmMultiplier(name, arm["says"], control, by_cost)


def _multiplier(own: Sequence[ArmResult], end: ArmResult, cost: Cost) -> Multiplier:
    curves: dict[int, list[tuple[float, float]]] = {}
    for arm in own:
        for run, score in zip(arm.runs, arm.scores, strict=True):
            curves.setdefault(run["seed"], []).append((run[cost], score))
    targets = {run["seed"]: (run[cost], score) for run, score in zip(end.runs, end.scores, strict=True)}
    seeds = [seed for seed in targets if len(curves.get(seed, ())) > 1]
    logs, bounds = [], 0
    for seed in seeds:
        whole, target = targets[seed]
        points = sorted(curves[seed])
        if (least := cost_to_reach(points, target)) is not None:
            logs.append(math.log(whole / least))
            bounds += points[0][1] >= target
    judged = len(logs) == len(seeds) > 1 and not bounds
    interval = t_interval(logs) if judged else None
    return Multiplier(
        seeds=len(seeds),
        reached=len(logs),
        at_least=bounds > 0,
        mean=math.exp(statistics.mean(logs)) if logs else None,
        interval=(math.exp(interval[0]), math.exp(interval[1])) if interval else None,
    )


def cost_to_reach(points: Sequence[tuple[float, float]], target: float) -> float | None:
    """The least cost at which the lines between points (cost, score) reach a score; None: they never do.

    Args:
        points: sorted by cost. The lines are straight over the logarithm of the cost.
    """
    if points[0][1] >= target:
        return points[0][0]
    for (cost, score), (next_cost, next_score) in pairwise(points):
        if next_score >= target:
            share = (target - score) / (next_score - score)
            return math.exp(math.log(cost) + share * math.log(next_cost / cost))
    return None
