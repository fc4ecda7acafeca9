"""Which tasks of a study see what was learned: the distance from the floor to the best arm, in spreads of seeds.

    electra study benchmarks/yardstick_floors.toml --data DATA --out FLOORS --tasks TASKS --budget 3e11 --seeds 2
    electra study STUDY --data DATA --out TRAINED --tasks TASKS --budget 1e13 --seeds 3
    python benchmarks/yardstick.py FLOORS TRAINED [--without ARM ...]

Both studies need the same --tune; tasks that only one of them has are left out. For each task: the mean of
networks that are not trained, with random weights and with the token table from counts; the arm with the
highest mean; and the standard deviation of seeds, pooled over the arms of TRAINED (with --task-seeds 1 all
fine-tunings have the same seed, so their spread is not in it). *Signal* is (best - counts) / deviation. *Seeds*
is the least number of seeds of two arms with which a true difference of 1 point has an interval without 0 in at
least 80 of 100 cases: Student's, of differences seed by seed, as in studies, whose deviation is sqrt(2) times
that of a seed.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import nct, t

from electra.reports.study import StudyReport, read_study
from electra.reports.study_results import run_score

POWER, LEVEL, POINTS = 0.8, 0.95, 1.0


def scores_by_arm(report: StudyReport, task: str) -> dict[str, list[float]]:
    """The scores of each arm's runs at the whole budget on a task, in percent; no arms without runs."""
    return {
        arm.arm: [run_score(run, task) for run in arm.runs]
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
    parser.add_argument("--without", nargs="*", default=[], metavar="ARM", help="arms of TRAINED to leave out")
    options = parser.parse_args()
    floors, trained = read_study(options.floors), read_study(options.trained)
    tunes = [report.study["tune"] for report in (floors, trained)]
    if tunes[0] != tunes[1]:
        sys.exit(f"the studies differ in --tune: {tunes[0]} and {tunes[1]}; give both the same")
    suites = [report.study["suite"] for report in (floors, trained)]
    tasks = [task for task in suites[1] if task in suites[0]]
    if alone := sorted(set(suites[0]) ^ set(suites[1])):
        print(f"left out, because only one of the studies has them: {', '.join(alone)}", file=sys.stderr)
    rows = []
    for task in tasks:
        floor, arms = scores_by_arm(floors, task), scores_by_arm(trained, task)
        arms = {arm: scores for arm, scores in arms.items() if arm not in options.without}
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
