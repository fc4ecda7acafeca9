"""A study's picture: lines where arms have a place along an axis or several budgets, else a point for each."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra.reports.study import Row

SCORE = "average of the tasks"


def draw_study(facts: dict[str, Any], rows: Sequence[Row], out: Path) -> list[Path]:
    """study.png and study.svg in a folder."""
    figure = study_figure(facts, rows)
    if figure is None:
        return []
    files = [out / "study.png", out / "study.svg"]
    for file in files:
        partial = file.with_name(f".{os.getpid()}.{file.name}")
        figure.savefig(partial, dpi=130)
        partial.replace(file)
    return files


def study_figure(facts: dict[str, Any], rows: Sequence[Row]) -> Any | None:
    """The score, or the held-out AUC where nothing was fine-tuned; None where there is nothing to draw."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, whatever the machine
    from matplotlib.figure import Figure

    scored = bool(facts["suite"])
    rows = [row for row in rows if not math.isnan(_value(row, scored=scored))]
    if not rows:
        return None
    placed = {name: arm for name, arm in facts["arms"].items() if arm["x"] is not None}
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    if placed and len(facts["shares"]) == 1:
        _lines_by_place(axes, rows, placed, scored=scored)
        axes.set_xlabel(facts["axis"])
    elif len(facts["shares"]) > 1:
        _lines_by_budget(axes, rows, scored=scored)
        axes.set_xlabel("training FLOPs")
        axes.set_xscale("log")
    else:
        _points(axes, rows, scored=scored)
    label = SCORE if scored else "held-out AUC on unigram fakes"
    (axes.set_xlabel if not (placed or len(facts["shares"]) > 1) else axes.set_ylabel)(label)
    axes.set_title(facts["title"])
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    return figure


def _value(row: Row, *, scored: bool) -> float:
    """What is drawn of an arm; NaN where it has no such figure."""
    if scored:
        return row.mean if row.scores else math.nan
    figure = row.figure("eval/unigram_auc")
    return math.nan if figure is None else figure


def _lines_by_place(axes: Any, rows: Sequence[Row], placed: dict[str, Any], *, scored: bool) -> None:
    for line in dict.fromkeys(arm["line"] for arm in placed.values()):
        there = [row for row in rows if placed.get(row.arm, {}).get("line") == line]
        there.sort(key=lambda row: float(placed[row.arm]["x"]))
        _line(axes, [placed[row.arm]["x"] for row in there], there, line, scored=scored)
    for row in rows:
        if row.arm not in placed:
            axes.axhline(_value(row, scored=scored), linestyle=":", linewidth=1, label=row.says)


def _lines_by_budget(axes: Any, rows: Sequence[Row], *, scored: bool) -> None:
    for arm in dict.fromkeys(row.arm for row in rows):
        there = [row for row in rows if row.arm == arm]
        _line(axes, [row.results[0]["flops"] for row in there], there, there[0].says, scored=scored)


def _line(axes: Any, x: list[float], rows: Sequence[Row], label: str, *, scored: bool) -> None:
    y = [_value(row, scored=scored) for row in rows]
    spread = [row.deviation if scored else 0.0 for row in rows]
    axes.errorbar(x, y, yerr=spread, marker="o", markersize=4, capsize=3, linewidth=1.2, label=label)


def _points(axes: Any, rows: Sequence[Row], *, scored: bool) -> None:
    """Points, not bars: of an axis that does not begin at zero, the length of a bar would say nothing."""
    values = [_value(row, scored=scored) for row in rows]
    spread = [row.deviation if scored else 0.0 for row in rows]
    places = range(len(rows))[::-1]
    axes.errorbar(values, places, xerr=spread, fmt="o", capsize=3, color="#3b6ea5")
    axes.set_yticks(list(places), [row.says for row in rows])
    axes.margins(x=0.1, y=0.1)
