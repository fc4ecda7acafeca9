"""The results of `electra analyze minimal-pairs` as tables and as a figure: accuracies, and where they differ."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of, windowed_notes
from electra.reports.figures import new_figure
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_with_interval

TITLE = "Minimal pairs of good and bad sentences"
FIGURE_DESCRIPTION = (
    "the fraction of pairs whose good sentence is more likely by each score, by field, by paradigm and by length"
)

LENGTHS = {"shorter": "good one shorter", "equal": "equal length", "longer": "good one longer"}


def build_tables(results: Results) -> list[Table]:
    """Accuracies by field and by length, the differences of scores, and accuracies by paradigm."""
    tables = [_fields_table(results), _lengths_table(results)]
    if results["differences"]:
        tables.append(_differences_table(results))
    if len(results["paradigms"]) > 1:
        tables.append(_paradigms_table(results))
    return tables


def build_notes(results: Results) -> list[str]:
    """What was measured, and how."""
    paradigms = count_of(len(results["paradigms"]), "paradigm")
    ties = [
        f"{score['ties']:,} by {score['score']} of {score['model']}"
        for score in results["scores"]
        if score["ties"]
    ]
    return [
        f"{count_of(results['pairs'], 'pair')} of {paradigms}; chance is 50%. The accuracy of a field, and of "
        f"all, is the mean over paradigms; by length all pairs have equal weight. Intervals: 95% of "
        f"{results['resamples']:,} resamples of the pairs within each paradigm, the same for all scores",
        NO_INTERVAL_NOTE,
        f"ties, which count half: {', '.join(ties) or 'none'}",
        *windowed_notes(results, "sentences"),
        *(f"{name}: {meaning}" for name, meaning in results["meanings"].items()),
    ]


def _fields_table(results: Results) -> Table:
    fields = [field.replace("_", " ") for field in results["scores"][0]["fields"]]
    title = "good sentence more likely, %"
    table = NumericTable("", "score", "model", "all", *fields, title=title, keys=3)
    for number, score in enumerate(results["scores"], start=1):
        values = (score["overall"], *score["fields"].values())
        table.add_row(str(number), score["score"], score["model"], *map(_percent, values))
    return table


def _lengths_table(results: Results) -> Table:
    table = NumericTable("", "score", title="by length in tokens, %", keys=2)
    for label in LENGTHS.values():
        table.add_column(label)
        table.add_column("pairs", justify="right")
    for number, score in enumerate(results["scores"], start=1):
        cells = []
        for name in LENGTHS:
            accuracy = score["lengths"][name]
            cells += [_percent(accuracy) if "value" in accuracy else "–", f"{accuracy['pairs']:,}"]
        table.add_row(str(number), score["score"], *cells)
    return table


def _differences_table(results: Results) -> Table:
    table = NumericTable("", "", "difference, points", title="differences of all", keys=2)
    for difference in shown_differences(results):
        first, second = (_label(results, results["scores"][difference[side]]) for side in ("first", "second"))
        interval = [100 * end for end in difference["interval"]]
        table.add_row(
            second, f"– {first}", format_with_interval(100 * difference["value"], interval, 2, sign=True)
        )
    return table


def shown_differences(results: Results) -> Iterator[dict[str, Any]]:
    """The differences of all scores to the first one, and of models with the same score; the file has all of
    them."""
    scores = results["scores"]
    for difference in results["differences"]:
        first, second = (scores[difference[side]]["score"] for side in ("first", "second"))
        if difference["first"] == 0 or first == second:
            yield difference


def _paradigms_table(results: Results) -> Table:
    has_fields = any(paradigm["field"] for paradigm in results["paradigms"])
    columns = ("paradigm", "field") if has_fields else ("paradigm",)
    table = NumericTable(*columns, title="by paradigm, %; scores by their numbers above")
    for name in ("pairs", *(str(number + 1) for number in range(len(results["scores"])))):
        table.add_column(name, justify="right")
    for paradigm in _sorted_paradigms(results):
        values = [f"{100 * score['paradigms'][paradigm['name']]['value']:.1f}" for score in results["scores"]]
        field = [paradigm["field"] or ""] if has_fields else []
        table.add_row(paradigm["name"], *field, f"{paradigm['pairs']:,}", *values)
    return table


def _sorted_paradigms(results: Results) -> list[dict[str, Any]]:
    """The paradigms, field by field."""
    fields = [paradigm["field"] for paradigm in results["paradigms"]]
    return sorted(results["paradigms"], key=lambda paradigm: fields.index(paradigm["field"]))


def _label(results: Results, score: dict[str, Any]) -> str:
    is_one_model = len({score["model"] for score in results["scores"]}) == 1
    return str(score["score"]) if is_one_model else f"{score['score']}, {score['model']}"


def _percent(accuracy: dict[str, Any]) -> str:
    return format_with_interval(100 * accuracy["value"], [100 * end for end in accuracy["interval"]], 1)


def draw(results: Results) -> Any:
    """Above: all pairs and fields with their intervals, and by length. Below: each paradigm."""
    paradigms = _sorted_paradigms(results)
    if len(paradigms) > 1:
        height = 0.9 + 0.19 * len(paradigms)
        figure = new_figure(12, 4.2 + height)
        panels = [["fields", "lengths"], ["paradigms", "paradigms"]]
        axes = figure.subplot_mosaic(panels, height_ratios=[3.6, height])
        _draw_paradigms(axes["paradigms"], results, paradigms)
    else:
        figure = new_figure(12, 4.2)
        axes = figure.subplot_mosaic([["fields", "lengths"]])
    by_field = [{"all": score["overall"]} | score["fields"] for score in results["scores"]]
    by_length = [{LENGTHS[name]: score["lengths"][name] for name in LENGTHS} for score in results["scores"]]
    _draw_groups(axes["fields"], results, by_field)
    _draw_groups(axes["lengths"], results, by_length)
    axes["fields"].set(title="by field: mean over paradigms", ylabel="good sentence more likely, %")
    axes["lengths"].set(title="by length in tokens: all pairs")
    handles, labels = axes["fields"].get_legend_handles_labels()
    columns = min(3, len(labels))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)
    return figure


def _draw_groups(axes: Any, results: Results, accuracies: list[dict[str, Any]]) -> None:
    """A point with its interval for each score, side by side within a group; no point where there are no pairs."""
    groups = list(accuracies[0])
    for number, (score, by_group) in enumerate(zip(results["scores"], accuracies, strict=True)):
        points = [(index, by_group[group]) for index, group in enumerate(groups) if "value" in by_group[group]]
        x = [index + _offset(number, results) for index, _ in points]
        y = [100 * point["value"] for _, point in points]
        errors = [
            [abs(100 * point["interval"][end] - 100 * point["value"]) for _, point in points] for end in (0, 1)
        ]
        label = _label(results, score)
        axes.errorbar(x, y, yerr=errors, fmt="o", markersize=4, color=_color(number), label=label)
    axes.axhline(50, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(groups)), [group.replace("_", "\n") for group in groups], fontsize=8)
    axes.grid(axis="y", alpha=0.3)


def _draw_paradigms(axes: Any, results: Results, paradigms: list[dict[str, Any]]) -> None:
    """A row per paradigm and a point per score, each a little lower than the one before; a line between fields."""
    rows = range(len(paradigms))
    for number, score in enumerate(results["scores"]):
        x = [100 * score["paradigms"][paradigm["name"]]["value"] for paradigm in paradigms]
        y = [row + _offset(number, results) for row in rows]
        axes.plot(x, y, "o", markersize=3, color=_color(number))
    for row in rows[1:]:
        is_new_field = paradigms[row]["field"] != paradigms[row - 1]["field"]
        axes.axhline(row - 0.5, color="grey", linewidth=0.8 if is_new_field else 0.2)
    axes.axvline(50, color="grey", linewidth=0.8, linestyle=":")
    names = [
        paradigm["name"] + (f"  ({paradigm['field'].replace('_', ' ')})" if paradigm["field"] else "")
        for paradigm in paradigms
    ]
    axes.set_yticks(rows, names, fontsize=7)
    axes.set(xlabel="good sentence more likely, %", title="by paradigm", xlim=(-2, 102))
    axes.set_ylim(len(paradigms) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)


def _offset(number: int, results: Results) -> float:
    """The distance of a score's points from the middle of their group."""
    return 0.8 * ((number + 0.5) / len(results["scores"]) - 0.5)


def _color(number: int) -> str:
    return f"C{number % 10}"
