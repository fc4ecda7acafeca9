"""What `electra analyze minimal-pairs` found, as tables and as a picture: how often the right sentence is likelier."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts
from electra.reports.pictures import blank

TITLE = "Right and wrong sentences"
SHOWS = (
    "the share of pairs whose right sentence looks likelier, by field, by paradigm and by length, for each score"
)

LENGTHS = {"shorter": "right one shorter", "equal": "as long", "longer": "right one longer"}
UNNAMED = "all"


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
    paradigms = len(facts["paradigms"])
    ties = [f"{one['ties']:,} by {one['score']} of {one['model']}" for one in facts["scores"] if one["ties"]]
    return [
        f"{facts['pairs']:,} pairs of {paradigms} paradigm{'s' * (paradigms > 1)}; chance is 50 %. A field, and all, "
        "is the mean over paradigms; by length all pairs count alike. Intervals: 95 % of "
        f"{facts['resamples']:,} resamples of the pairs within each paradigm, the same for all scores",
        f"ties, which count half: {', '.join(ties) or 'none'}",
        *(f"{name}: {meaning}" for name, meaning in facts["meanings"].items()),
    ]


def _fields(facts: Facts) -> Table:
    fields = list(facts["scores"][0]["fields"])
    table = Table("model", "score", "all", *fields, title="right sentence likelier, %", title_justify="left")
    for one in facts["scores"]:
        table.add_row(one["model"], one["score"], _percent(one["overall"]), *map(_percent, one["fields"].values()))
    return table


def _lengths(facts: Facts) -> Table:
    table = Table("model", "score", title="by their lengths in tokens, %", title_justify="left")
    for name in LENGTHS:
        table.add_column(LENGTHS[name])
        table.add_column("pairs", justify="right")
    for one in facts["scores"]:
        cells = []
        for name in LENGTHS:
            found = one["lengths"][name]
            cells += [_percent(found) if "value" in found else "–", f"{found['pairs']:,}"]
        table.add_row(one["model"], one["score"], *cells)
    return table


def _differences(facts: Facts) -> Table:
    table = Table("", "", "difference, points", "95 % interval", title="differences of all", title_justify="left")
    for one in shown_differences(facts):
        low, high = one["interval"]
        first, second = (_label(facts, facts["scores"][one[side]]) for side in ("first", "second"))
        table.add_row(second, f"– {first}", f"{100 * one['value']:+.2f}", f"{100 * low:+.2f} to {100 * high:+.2f}")
    return table


def shown_differences(facts: Facts) -> Iterator[dict[str, Any]]:
    """All scores against the first one, and models against each other by the same score; the file has them all."""
    scores = facts["scores"]
    for one in facts["differences"]:
        if one["first"] == 0 or scores[one["first"]]["score"] == scores[one["second"]]["score"]:
            yield one


def _paradigms(facts: Facts) -> Table:
    columns = [_label(facts, one) for one in facts["scores"]]
    table = Table("paradigm", "field", "pairs", *columns, title="by paradigm, %", title_justify="left")
    for one in _ordered(facts):
        values = [f"{100 * score['paradigms'][one['name']]['value']:.1f}" for score in facts["scores"]]
        table.add_row(one["name"], one["field"] or "", f"{one['pairs']:,}", *values)
    return table


def _ordered(facts: Facts) -> list[dict[str, Any]]:
    """The paradigms, field by field."""
    fields = [one["field"] for one in facts["paradigms"]]
    return sorted(facts["paradigms"], key=lambda one: fields.index(one["field"]))


def _label(facts: Facts, one: dict[str, Any]) -> str:
    alone = len({score["model"] for score in facts["scores"]}) == 1
    return str(one["score"]) if alone else f"{one['score']}, {one['model']}"


def _percent(figure: dict[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{100 * figure['value']:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def figure(facts: Facts) -> Any:
    """Above, all and the fields with their intervals, and by length; below, each paradigm."""
    paradigms = _ordered(facts)
    several = len(paradigms) > 1
    drawing = blank(12, 4.2 + (0.9 + 0.19 * len(paradigms) if several else 0))
    if several:
        axes = drawing.subplot_mosaic(
            [["fields", "lengths"], ["paradigms", "paradigms"]], height_ratios=_heights(facts)
        )
        _draw_paradigms(axes["paradigms"], facts, paradigms)
    else:
        axes = drawing.subplot_mosaic([["fields", "lengths"]])
    fields = ["overall", *facts["scores"][0]["fields"]]
    groups = {UNNAMED if name == "overall" else name: name for name in fields}
    _draw_groups(axes["fields"], facts, list(groups), lambda one, name: _of_field(one, groups[name]))
    _draw_groups(axes["lengths"], facts, list(LENGTHS.values()), lambda one, name: _of_length(one, name))
    axes["fields"].set(title="by field: mean over paradigms", ylabel="right sentence likelier, %")
    axes["lengths"].set(title="by length in tokens: all pairs")
    handles, labels = axes["fields"].get_legend_handles_labels()
    drawing.legend(
        handles, labels, loc="outside upper center", ncols=min(3, len(labels)), frameon=False, fontsize=8
    )
    return drawing


def _heights(facts: Facts) -> list[float]:
    return [3.6, 0.9 + 0.19 * len(facts["paradigms"])]


def _of_field(one: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = one["overall"] if name == "overall" else one["fields"][name]
    return found


def _of_length(one: dict[str, Any], shown: str) -> dict[str, Any]:
    found: dict[str, Any] = one["lengths"][next(name for name, words in LENGTHS.items() if words == shown)]
    return found


def _draw_groups(axes: Any, facts: Facts, groups: list[str], of: Any) -> None:
    """A point with its interval for each score, side by side within a group."""
    scores = facts["scores"]
    for number, one in enumerate(scores):
        found = [(place, of(one, group)) for place, group in enumerate(groups)]
        found = [(place, each) for place, each in found if "value" in each]
        x = [place + 0.8 * ((number + 0.5) / len(scores) - 0.5) for place, _ in found]
        y = [100 * each["value"] for _, each in found]
        ends = [[abs(100 * each["interval"][end] - 100 * each["value"]) for _, each in found] for end in (0, 1)]
        axes.errorbar(x, y, yerr=ends, fmt="o", markersize=4, color=_color(number), label=_label(facts, one))
    axes.axhline(50, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(groups)), groups, fontsize=8)
    axes.grid(axis="y", alpha=0.3)


def _draw_paradigms(axes: Any, facts: Facts, paradigms: list[dict[str, Any]]) -> None:
    """A row a paradigm, a point a score; a line between two fields."""
    rows = range(len(paradigms))
    for number, one in enumerate(facts["scores"]):
        x = [100 * one["paradigms"][paradigm["name"]]["value"] for paradigm in paradigms]
        axes.plot(x, rows, "o", markersize=4, alpha=0.8, color=_color(number))
    for row in rows[1:]:
        if paradigms[row]["field"] != paradigms[row - 1]["field"]:
            axes.axhline(row - 0.5, color="grey", linewidth=0.6)
    axes.axvline(50, color="grey", linewidth=0.8, linestyle=":")
    names = [one["name"] + (f"  ({one['field']})" if one["field"] else "") for one in paradigms]
    axes.set_yticks(rows, names, fontsize=7)
    axes.set(xlabel="right sentence likelier, %", title="by paradigm", xlim=(-2, 102))
    axes.set_ylim(len(paradigms) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)


def _color(number: int) -> str:
    return f"C{number % 10}"
