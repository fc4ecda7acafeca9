"""Which tasks of a study see what was learned: the distance from the floor to the best arm, in spreads of seeds.

    electra study benchmarks/yardstick_floors.toml --base BASE --out FLOORS --budget 1e12 --seeds 2 SUITE
    electra study STUDY.toml --base BASE --out TRAINED --budget 1e13 --seeds 3 SUITE
    python benchmarks/yardstick.py FLOORS TRAINED

For each task: the mean of untrained networks with random weights and with the token table from counts, the arm
with the highest mean, and the standard deviation of seeds, pooled over the arms of TRAINED (it contains the spread
of fine-tuning). *Signal* is (best - counts) / deviation. *Seeds* is the number of seeds of two
arms for which a true difference of 1 point is found four times out of five, with an interval of 95% that assumes
differences seed by seed without correlation: the least n with (1.96 + 0.84)² × 2 × deviation² <= n.
"""

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from electra.reports.study import StudyReport, read_study

NORMAL_95, NORMAL_80 = 1.96, 0.84


def scores_by_arm(report: StudyReport, task: str) -> dict[str, list[float]]:
    """The scores of each arm's runs on a task, in percent."""
    return {
        arm.arm: [100 * statistics.median(run["tasks"][task]["values"]) for run in arm.runs] for arm in report.arms
    }


def pooled_deviation(groups: Sequence[Sequence[float]]) -> float:
    """The standard deviation of seeds within an arm."""
    groups = [group for group in groups if len(group) > 1]
    squares = sum((len(group) - 1) * statistics.variance(group) for group in groups)
    return math.sqrt(squares / sum(len(group) - 1 for group in groups))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "floors", type=Path, help="the study of untrained networks, with the arms random and counts"
    )
    parser.add_argument("trained", type=Path, help="the study of trained networks, with at least two seeds")
    options = parser.parse_args()
    floors, trained = read_study(options.floors), read_study(options.trained)
    rows = []
    for task in trained.study["suite"]:
        floor, arms = scores_by_arm(floors, task), scores_by_arm(trained, task)
        deviation = pooled_deviation(list(arms.values()))
        best = max(arms, key=lambda arm: statistics.mean(arms[arm]))
        random, counts = (statistics.mean(floor[arm]) for arm in ("random", "counts"))
        top = statistics.mean(arms[best])
        signal = (top - counts) / deviation if deviation else math.inf
        seeds = max(2, math.ceil((NORMAL_95 + NORMAL_80) ** 2 * 2 * deviation**2))
        rows.append(
            (signal, f"| {task} | {random:.1f} | {counts:.1f} | {top:.1f} ({best}) | {deviation:.2f} | ", seeds)
        )
    print("| task | random weights | counts | best arm | deviation of seeds | signal | seeds for 1 point |")
    print("|---|---|---|---|---|---|---|")
    for signal, cells, seeds in sorted(rows, reverse=True):
        print(f"{cells}{signal:.1f} | {seeds} |")


if __name__ == "__main__":
    main()
