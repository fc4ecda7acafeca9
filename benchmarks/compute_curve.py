"""Score against compute: the arms of several studies of the same tasks at different budgets, in one picture.

    python benchmarks/compute_curve.py STUDIES --tasks TASKS --arms ARMS [--floor FLOOR ARM] --picture FILE

STUDIES are folders of studies or archives (docs/studies) with the same settings of fine-tuning. The score is the
mean of TASKS. Each dot is a run. A line joins the means of an arm, of all budgets and of the shares of a budget at
which it ran; the network can be another one at each budget. Where several studies have a seed at the same FLOPs,
the last one counts. FLOOR is a study of networks that are not trained, ARM its arm.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.reports.figures import new_figure
from electra.reports.study import StudyReport, read_study
from electra.reports.study_results import run_score

Scores = dict[float, list[float]]
"""The scores of an arm's runs in percent, by FLOPs."""


def scores_by_flops(reports: Sequence[StudyReport], name: str, tasks: Sequence[str]) -> Scores:
    """The scores of an arm in all studies; of a seed that several have, that in the last one."""
    found: dict[float, dict[int, float]] = {}
    for report in reports:
        for arm in report.arms:
            if arm.arm == name and arm.runs:
                flops = report.study["flops"] * arm.budget_fraction
                found.setdefault(flops, {}).update({run["seed"]: score(run, tasks) for run in arm.runs})
    return {flops: list(scores.values()) for flops, scores in sorted(found.items())}


def score(run: dict[str, Any], tasks: Sequence[str]) -> float:
    """The mean over tasks of the median over seeds of fine-tuning, in percent."""
    return statistics.mean(run_score(run, task) for task in tasks)


def draw(scores: Mapping[str, Scores], floor: tuple[str, float] | None, picture: Path) -> None:
    """Draw the scores of arms by label, and a horizontal line with the label and score of the floor."""
    figure = new_figure(7.5, 5.5)
    axes = figure.subplots()
    for number, (label, by_flops) in enumerate(scores.items()):
        for flops, values in by_flops.items():
            axes.plot([flops] * len(values), values, "o", markersize=4, alpha=0.4, color=f"C{number}")
        means = [statistics.mean(values) for values in by_flops.values()]
        axes.plot(list(by_flops), means, linewidth=1.5, color=f"C{number}", label=label)
    if floor is not None:
        axes.axhline(floor[1], linestyle=":", linewidth=1.2, color="#666666", label=f"not trained: {floor[0]}")
    axes.set(xscale="log", xlabel="training FLOPs", ylabel="mean score of the tasks, in percent")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", frameon=False)
    figure.savefig(picture, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--arms", nargs="+", required=True)
    parser.add_argument("--floor", nargs=2, metavar=("FLOOR", "ARM"))
    parser.add_argument("--picture", type=Path, required=True)
    options = parser.parse_args()
    reports = [read_study(folder) for folder in options.studies]
    for folder, report in zip(options.studies, reports, strict=True):
        if report.study["tune"] != reports[0].study["tune"]:
            sys.exit(f"{folder}: other settings of fine-tuning than {options.studies[0]}")
    labels = {arm.arm: arm.label for report in reports for arm in report.arms if arm.runs}
    if unknown := [name for name in options.arms if name not in labels]:
        sys.exit(f"no run of {', '.join(unknown)}; there are {', '.join(labels)}")
    scores = {labels[name]: scores_by_flops(reports, name, options.tasks) for name in options.arms}
    for label, by_flops in scores.items():
        print(label, *(f"{x:.3g}: {statistics.mean(y):.1f}" for x, y in by_flops.items()), sep="  ")
    floor = None
    if options.floor is not None:
        untrained, name = read_study(Path(options.floor[0])), options.floor[1]
        (values,) = scores_by_flops([untrained], name, options.tasks).values()
        floor = next(arm.label for arm in untrained.arms if arm.arm == name), statistics.mean(values)
    draw(scores, floor, options.picture)


if __name__ == "__main__":
    main()
