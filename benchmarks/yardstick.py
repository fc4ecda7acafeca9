"""Which tasks of a study see what was learned: the distance from the floor to the best arm, in spreads of seeds.

    electra study benchmarks/yardstick_floors.toml --data DATA --out FLOORS --tasks TASKS --budget 3e11 --seeds 2
    electra study STUDY --data DATA --out TRAINED --tasks TASKS --budget 1e13 --seeds 3
    python benchmarks/yardstick.py FLOORS TRAINED

Both studies need the same --suite and --tune. For each task: the mean of networks that are not trained,
with random weights and with the token table from counts; the arm with the highest mean; and the standard deviation
of seeds, pooled over the arms of TRAINED (it contains the spread of fine-tuning). *Signal* is (best - counts) /
deviation. *Seeds* is the least number of seeds of two arms with which a true difference of 1 point has an interval
without 0 in at least 80 of 100 cases: Student's, of differences seed by seed, as in studies, whose deviation is
sqrt(2) times that of a seed.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import nct, t

from electra.reports.study import StudyReport, read_study

POWER, LEVEL, POINTS = 0.8, 0.95, 1.0
SIMILAR = "suite", "tune"
"""Settings that the two studies must share."""


def scores_by_arm(report: StudyReport, task: str) -> dict[str, list[float]]:
    """The scores of each arm's runs at the whole budget on a task, in percent; no arms without runs."""
    return {
        arm.arm: [100 * statistics.median(run["tasks"][task]["values"]) for run in arm.runs]
        for arm in report.arms
        if arm.budget_fraction == 1 and arm.runs
    }


def pooled_deviation(groups: Sequence[Sequence[float]]) -> float:
    """The standard deviation of seeds within an arm."""
    squares = sum((len(group) - 1) * statistics.variance(group) for group in groups if len(group) > 1)
    return math.sqrt(squares / sum(len(group) - 1 for group in groups))


def seeds_needed(deviation: float) -> int:
    """The least number of seeds with which a true difference of POINTS is found with a probability of POWER."""
    for seeds in range(2, 1_000):
        shift = POINTS / (deviation * math.sqrt(2 / seeds))
        if nct.sf(t.ppf((1 + LEVEL) / 2, seeds - 1), seeds - 1, shift) >= POWER:
            return seeds
    return 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "floors", type=Path, help="the study of untrained networks, with the arms random and counts"
    )
    parser.add_argument(
        "trained", type=Path, help="the study of trained networks, with at least two seeds of an arm"
    )
    options = parser.parse_args()
    floors, trained = read_study(options.floors), read_study(options.trained)
    for name in SIMILAR:
        if floors.study[name] != trained.study[name]:
            sys.exit(
                f"the studies differ in {name}: {floors.study[name]} and {trained.study[name]}; run both alike"
            )
    rows = []
    for task in trained.study["suite"]:
        floor, arms = scores_by_arm(floors, task), scores_by_arm(trained, task)
        if not {"random", "counts"} <= floor.keys():
            sys.exit(f"{options.floors}: needs finished runs of the arms random and counts")
        if all(len(scores) < 2 for scores in arms.values()):
            sys.exit(f"{options.trained}: needs an arm with two seeds, for their spread")
        deviation = pooled_deviation(list(arms.values()))
        best = max(arms, key=lambda arm: statistics.mean(arms[arm]))
        random, counts, top = (statistics.mean(x) for x in (floor["random"], floor["counts"], arms[best]))
        signal = (top - counts) / deviation if deviation else math.nan
        cells = (f"{random:.1f}", f"{counts:.1f}", f"{top:.1f} ({best})", f"{deviation:.2f}", f"{signal:.1f}")
        rows.append((signal, f"| {task} | {' | '.join(cells)} | {seeds_needed(deviation) if deviation else 2} |"))
    print("| task | random weights | counts | best arm | deviation of seeds | signal | seeds for 1 point |")
    print("|---|---|---|---|---|---|---|")
    for _, row in sorted(rows, reverse=True):
        print(row)


if __name__ == "__main__":
    main()
