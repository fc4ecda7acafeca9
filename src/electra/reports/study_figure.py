"""A study's picture: lines where arms have a place along an axis or several budgets, else a point for each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra.reports.figures import new_figure, save_figure
from electra.reports.study import Row
from electra.reports.study_scores import AUC, named, unit_of

SCORE = "average of the tasks"


def draw_study(facts: dict[str, Any], rows: Sequence[Row], out: Path) -> list[Path]:
    """study.png and study.svg in a folder."""
    figure = study_figure(facts, rows)
    if figure is None:
        return []
    return save_figure(figure, out, "study")


INSIDE = 4
"""Lines whose names have room in the picture; those of more stand beside it."""


def study_figure(facts: dict[str, Any], rows: Sequence[Row]) -> Any | None:
    """The score, or the held-out figure where nothing was fine-tuned; None where there is nothing to draw."""
    rows = [row for row in rows if row.scores]
    if not rows:
        return None
    placed = {name: arm for name, arm in facts["arms"].items() if arm["x"] is not None}
    figure = new_figure(8, 4.5)
    axes = figure.subplots()
    if placed and len(facts["shares"]) == 1:
        _lines_by_place(axes, rows, placed)
        axes.set_xlabel(facts["axis"])
    elif len(facts["shares"]) > 1:
        _lines_by_budget(axes, rows)
        axes.set_xlabel("training FLOPs")
        axes.set_xscale("log")
    else:
        _points(axes, rows, facts["control"])
    by = facts.get("figure", AUC)
    label = SCORE if facts["suite"] else f"held-out {named(by)}{unit_of(by)}"
    (axes.set_xlabel if not (placed or len(facts["shares"]) > 1) else axes.set_ylabel)(label)
    several = any(len(row.scores) > 1 for row in rows)
    drawn = "means over the seeds, ± their standard deviation" if several else "one seed"
    figure.suptitle(f"{facts['title']}\n{facts['flops']:.2g} FLOPs a run; {drawn}", fontsize=10)
    axes.grid(alpha=0.3)
    if labels := axes.get_legend_handles_labels()[1]:
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(frameon=False, fontsize=8, **(beside if len(labels) > INSIDE else {}))
    return figure


def _lines_by_place(axes: Any, rows: Sequence[Row], placed: dict[str, Any]) -> None:
    lines = list(dict.fromkeys(arm["line"] for arm in placed.values()))
    for line in lines:
        there = [row for row in rows if placed.get(row.arm, {}).get("line") == line]
        there.sort(key=lambda row: float(placed[row.arm]["x"]))
        if there:
            _line(axes, [placed[row.arm]["x"] for row in there], there, line)
    beside = [row for row in rows if row.arm not in placed]
    for number, row in enumerate(beside, len(lines)):
        axes.axhline(row.mean, linestyle=":", linewidth=1, color=f"C{number}", label=row.says)


def _lines_by_budget(axes: Any, rows: Sequence[Row]) -> None:
    for arm in dict.fromkeys(row.arm for row in rows):
        there = [row for row in rows if row.arm == arm]
        _line(axes, [row.results[0]["flops"] for row in there], there, there[0].says)


def _line(axes: Any, x: list[float], rows: Sequence[Row], label: str) -> None:
    y = [row.mean for row in rows]
    spread = [row.deviation for row in rows]
    axes.errorbar(x, y, yerr=spread, marker="o", markersize=4, capsize=3, linewidth=1.2, label=label)


def _points(axes: Any, rows: Sequence[Row], control: str) -> None:
    """Points, not bars: of an axis that does not begin at zero, the length of a bar would say nothing.

    The seeds are the small ones, and a line goes through the control.
    """
    values = [row.mean for row in rows]
    spread = [row.deviation for row in rows]
    places = range(len(rows))[::-1]
    for row, place in zip(rows, places, strict=True):
        axes.plot(row.scores, [place] * len(row.scores), "o", markersize=3, color="#3b6ea5", alpha=0.4)
        if row.arm == control:
            axes.axvline(row.mean, linestyle=":", linewidth=1, color="#888888", label=f"the control: {row.says}")
    axes.errorbar(values, places, xerr=spread, fmt="o", capsize=3, color="#3b6ea5")
    axes.set_yticks(list(places), [row.says for row in rows])
    axes.margins(x=0.1, y=0.1)
