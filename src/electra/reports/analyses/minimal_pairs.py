"""What `electra analyze minimal-pairs` found: which share of right sentences looks likelier, and where."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts, count_of
from electra.reports.figures import new_figure
from electra.reports.notes import windowed_notes
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_with_interval

TITLE = "Right and wrong sentences"
SHOWS = "the share of pairs whose right sentence looks likelier to each score, by field, by paradigm and by length"

LENGTHS = {"shorter": "right one shorter", "equal": "as long", "longer": "right one longer"}


def tables(facts: Facts) -> list[Table]:
    """Accuracies by field and by length, the differences of scores, and accuracies by paradigm."""
    found = [_fields(facts), _lengths(facts)]
    if facts["differences"]:
        found.append(_differences(facts))
    if len(facts["paradigms"]) > 1:
        found.append(_paradigms(facts))
    return found


def notes(facts: Facts) -> list[str]:
    """What was measured, and how."""
    paradigms = count_of(len(facts["paradigms"]), "paradigm")
    ties = [f"{one['ties']:,} by {one['score']} of {one['model']}" for one in facts["scores"] if one["ties"]]
    return [
        f"{count_of(facts['pairs'], 'pair')} of {paradigms}; chance is 50 %. A field, and "
        "all, is the mean over paradigms; by length all pairs count alike. Intervals: 95 % of "
        f"{facts['resamples']:,} resamples of the pairs within each paradigm, the same for all scores",
        NO_INTERVAL_NOTE,
        f"ties, which count half: {', '.join(ties) or 'none'}",
        *windowed_notes(facts, "sentences"),
        *(f"{name}: {meaning}" for name, meaning in facts["meanings"].items()),
    ]


def _fields(facts: Facts) -> Table:
    fields = [field.replace("_", " ") for field in facts["scores"][0]["fields"]]
    table = NumericTable("", "score", "model", "all", *fields, title="right sentence likelier, %", keys=3)
    for number, one in enumerate(facts["scores"], start=1):
        values = (one["overall"], *one["fields"].values())
        table.add_row(str(number), one["score"], one["model"], *map(_percent, values))
    return table


def _lengths(facts: Facts) -> Table:
    table = NumericTable("", "score", title="by their lengths in tokens, %", keys=2)
    for name in LENGTHS:
        table.add_column(LENGTHS[name])
        table.add_column("pairs", justify="right")
    for number, one in enumerate(facts["scores"], start=1):
        cells = []
        for name in LENGTHS:
            found = one["lengths"][name]
            cells += [_percent(found) if "value" in found else "–", f"{found['pairs']:,}"]
        table.add_row(str(number), one["score"], *cells)
    return table


def _differences(facts: Facts) -> Table:
    table = NumericTable("", "", "difference, points", title="differences of all", keys=2)
    for one in shown_differences(facts):
        first, second = (_label(facts, facts["scores"][one[side]]) for side in ("first", "second"))
        ends = [100 * end for end in one["interval"]]
        table.add_row(second, f"– {first}", format_with_interval(100 * one["value"], ends, 2, sign=True))
    return table


def shown_differences(facts: Facts) -> Iterator[dict[str, Any]]:
    """All scores against the first one, and models against each other by the same score; the file has them all."""
    scores = facts["scores"]
    for one in facts["differences"]:
        if one["first"] == 0 or scores[one["first"]]["score"] == scores[one["second"]]["score"]:
            yield one


def _paradigms(facts: Facts) -> Table:
    of_fields = any(one["field"] for one in facts["paradigms"])
    front = ("paradigm", "field") if of_fields else ("paradigm",)
    table = NumericTable(*front, title="by paradigm, %; scores by their numbers above")
    for name in ("pairs", *(str(number + 1) for number in range(len(facts["scores"])))):
        table.add_column(name, justify="right")
    for one in _ordered(facts):
        values = [f"{100 * score['paradigms'][one['name']]['value']:.1f}" for score in facts["scores"]]
        field = [one["field"] or ""] if of_fields else []
        table.add_row(one["name"], *field, f"{one['pairs']:,}", *values)
    return table


def _ordered(facts: Facts) -> list[dict[str, Any]]:
    """The paradigms, field by field."""
    fields = [one["field"] for one in facts["paradigms"]]
    return sorted(facts["paradigms"], key=lambda one: fields.index(one["field"]))


def _label(facts: Facts, one: dict[str, Any]) -> str:
    alone = len({score["model"] for score in facts["scores"]}) == 1
    return str(one["score"]) if alone else f"{one['score']}, {one['model']}"


def _percent(figure: dict[str, Any]) -> str:
    return format_with_interval(100 * figure["value"], [100 * end for end in figure["interval"]], 1)


def figure(facts: Facts) -> Any:
    """Above, all and the fields with their intervals, and by length; below, each paradigm."""
    paradigms = _ordered(facts)
    if len(paradigms) > 1:
        below = 0.9 + 0.19 * len(paradigms)
        drawing = new_figure(12, 4.2 + below)
        panels = [["fields", "lengths"], ["paradigms", "paradigms"]]
        axes = drawing.subplot_mosaic(panels, height_ratios=[3.6, below])
        _draw_paradigms(axes["paradigms"], facts, paradigms)
    else:
        drawing = new_figure(12, 4.2)
        axes = drawing.subplot_mosaic([["fields", "lengths"]])
    of_fields = [{"all": one["overall"]} | one["fields"] for one in facts["scores"]]
    of_lengths = [{LENGTHS[name]: one["lengths"][name] for name in LENGTHS} for one in facts["scores"]]
    _draw_groups(axes["fields"], facts, of_fields)
    _draw_groups(axes["lengths"], facts, of_lengths)
    axes["fields"].set(title="by field: mean over paradigms", ylabel="right sentence likelier, %")
    axes["lengths"].set(title="by length in tokens: all pairs")
    handles, labels = axes["fields"].get_legend_handles_labels()
    columns = min(3, len(labels))
    drawing.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)
    return drawing


def _draw_groups(axes: Any, facts: Facts, of_scores: list[dict[str, Any]]) -> None:
    """A point with its interval for each score, side by side within a group; where there is none, no point."""
    groups = list(of_scores[0])
    for number, (one, figures) in enumerate(zip(facts["scores"], of_scores, strict=True)):
        found = [(place, figures[group]) for place, group in enumerate(groups) if "value" in figures[group]]
        x = [place + _beside(number, facts) for place, _ in found]
        y = [100 * each["value"] for _, each in found]
        ends = [[abs(100 * each["interval"][end] - 100 * each["value"]) for _, each in found] for end in (0, 1)]
        axes.errorbar(x, y, yerr=ends, fmt="o", markersize=4, color=_color(number), label=_label(facts, one))
    axes.axhline(50, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(groups)), [group.replace("_", "\n") for group in groups], fontsize=8)
    axes.grid(axis="y", alpha=0.3)


def _draw_paradigms(axes: Any, facts: Facts, paradigms: list[dict[str, Any]]) -> None:
    """A row a paradigm, a point a score, each a little lower than the one before; a line between two fields."""
    rows = range(len(paradigms))
    for number, one in enumerate(facts["scores"]):
        x = [100 * one["paradigms"][paradigm["name"]]["value"] for paradigm in paradigms]
        y = [row + _beside(number, facts) for row in rows]
        axes.plot(x, y, "o", markersize=3, color=_color(number))
    for row in rows[1:]:
        of_fields = paradigms[row]["field"] != paradigms[row - 1]["field"]
        axes.axhline(row - 0.5, color="grey", linewidth=0.8 if of_fields else 0.2)
    axes.axvline(50, color="grey", linewidth=0.8, linestyle=":")
    names = [one["name"] + (f"  ({one['field'].replace('_', ' ')})" if one["field"] else "") for one in paradigms]
    axes.set_yticks(rows, names, fontsize=7)
    axes.set(xlabel="right sentence likelier, %", title="by paradigm", xlim=(-2, 102))
    axes.set_ylim(len(paradigms) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)


def _beside(number: int, facts: Facts) -> float:
    """How far a score's points stand from the middle of their group."""
    return 0.8 * ((number + 0.5) / len(facts["scores"]) - 0.5)


def _color(number: int) -> str:
    return f"C{number % 10}"
