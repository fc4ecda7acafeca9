"""The figure of a study: scores along the arms' axis or the budgets, else a point for each arm."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra.objectives.metric_labels import metric_label
from electra.reports.figures import BEST_PLACE, new_figure, save_figure
from electra.reports.study_results import ArmResult, Record, heldout_metric_of, is_percent, without_probes

INSIDE_LEGEND = 4
"""A legend with more lines is placed next to the axes."""


def draw_study(
    study: Record, arms: Sequence[ArmResult], out: Path, *, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write study.png and study.svg into a folder; nothing if there is no score to draw."""
    figure = study_figure(study, arms)
    return [] if figure is None else save_figure(figure, out, "study", formats=formats)


def study_figure(study: Record, arms: Sequence[ArmResult]) -> Any | None:
    """The scores of the arms; None if there is no score to draw."""
    arms = [arm for arm in arms if arm.scores]
    if not arms:
        return None
    placed = {name: arm for name, arm in study["arms"].items() if arm["x"] is not None}
    figure = new_figure(8, 4.5)
    axes = figure.subplots()
    metric = heldout_metric_of(study)
    unit = ", in percent" if is_percent(metric) else ""
    suite = study["suite"]
    score = f"average of the tasks{without_probes(suite)}" if suite else f"held-out {metric_label(metric)}{unit}"
    several_budgets = len({arm.budget_fraction for arm in arms}) > 1
    if placed and not several_budgets:
        _draw_along_axis(axes, arms, placed)
        axes.set(xlabel=study["axis"], ylabel=score)
    elif several_budgets:
        _draw_along_budget(axes, arms)
        axes.set(xlabel="training FLOPs", ylabel=score, xscale="log")
    else:
        _draw_points(axes, arms, study["control"])
        axes.set_xlabel(score)
    several = any(len(arm.scores) > 1 for arm in arms)
    drawn = "means over the seeds, ± their standard deviation" if several else "one seed"
    figure.suptitle(f"{study['title']}\n{study['flops']:.2g} FLOPs per run; {drawn}", fontsize=10)
    axes.grid(alpha=0.3)
    if labels := axes.get_legend_handles_labels()[1]:
        outside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(frameon=False, fontsize=8, **(outside if len(labels) > INSIDE_LEGEND else BEST_PLACE))
    return figure


def _draw_along_axis(axes: Any, arms: Sequence[ArmResult], placed: dict[str, Any]) -> None:
    """A curve for each `line` of the arms; arms without a place on the axis are horizontal lines."""
    lines = list(dict.fromkeys(arm["line"] for arm in placed.values()))
    for line in lines:
        points = [arm for arm in arms if placed.get(arm.arm, {}).get("line") == line]
        points.sort(key=lambda arm: float(placed[arm.arm]["x"]))
        if points:
            _draw_curve(axes, [placed[arm.arm]["x"] for arm in points], points, line)
    others = [arm for arm in arms if arm.arm not in placed]
    for number, arm in enumerate(others, len(lines)):
        axes.axhline(arm.mean, linestyle=":", linewidth=1, color=f"C{number}", label=arm.label)


def _draw_along_budget(axes: Any, arms: Sequence[ArmResult]) -> None:
    for name in dict.fromkeys(arm.arm for arm in arms):
        points = [arm for arm in arms if arm.arm == name]
        _draw_curve(axes, [arm.runs[0]["flops"] for arm in points], points, points[0].label)


def _draw_curve(axes: Any, x: list[float], arms: Sequence[ArmResult], label: str) -> None:
    y = [arm.mean for arm in arms]
    spread = [arm.standard_deviation for arm in arms]
    axes.errorbar(x, y, yerr=spread, marker="o", markersize=4, capsize=3, linewidth=1.2, label=label)


def _draw_points(axes: Any, arms: Sequence[ArmResult], control: str) -> None:
    """Points, not bars: on an axis that does not start at zero, the length of a bar would mean nothing.

    Small points are the seeds; a vertical line marks the control.
    """
    rows = range(len(arms))[::-1]
    for arm, row in zip(arms, rows, strict=True):
        axes.plot(arm.scores, [row] * len(arm.scores), "o", markersize=3, color="#3b6ea5", alpha=0.4)
        if arm.arm == control:
            axes.axvline(arm.mean, linestyle=":", linewidth=1, color="#888888", label=f"the control: {arm.label}")
    means, spread = [arm.mean for arm in arms], [arm.standard_deviation for arm in arms]
    axes.errorbar(means, rows, xerr=spread, fmt="o", capsize=3, color="#3b6ea5")
    axes.set_yticks(list(rows), [arm.label for arm in arms])
    axes.margins(x=0.1, y=0.1)
