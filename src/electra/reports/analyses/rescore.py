"""What `electra analyze rescore` found, as tables and as a picture: word error rates before and after."""

from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts, count_of
from electra.reports.figures import new_figure
from electra.reports.notes import windowed_notes
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_with_interval

TITLES = 10
"""Points of the titles in the picture."""
TITLE = "A speech recogniser's hypotheses, rescored"
SHOWS = "word error rates of the first best, rescored by each score, and of the best there is"


def tables(facts: Facts) -> list[Table]:
    """Error rates, differences, and what was fitted."""
    return [_rates(facts), _differences(facts), _weights(facts)]


def notes(facts: Facts) -> list[str]:
    """What was measured, and how."""
    scores = {"probability": "probabilities, whose logarithms are taken", "log": "logarithms"}[facts["scale"]]
    found = [
        f"{count_of(facts['utterances'], 'utterance')}, {facts['reference_words']:,} words, "
        f"{facts['hypotheses']:,} hypotheses; the recogniser's scores are {scores}. An error rate is all errors "
        "over all words",
        "weight and length penalty are those of a grid with the fewest errors over "
        f"{facts['folds'] - 1} of {facts['folds']} parts of the utterances, and judge the one left; intervals: "
        f"95 % of {facts['resamples']:,} resamples of the utterances",
        NO_INTERVAL_NOTE,
        f"words: {facts['normalisation']}",
    ]
    if facts["left_out"]:
        left = ", ".join(f"{count_of(count, 'list')} {reason}" for reason, count in facts["left_out"].items())
        found.append(f"left out: {left}")
    if facts["first_best_added"]:
        found.append(
            f"of {count_of(facts['first_best_added'], 'list')} the first best has no score: it was put in front "
            "with that of the best alternative"
        )
    if empty := facts.get("empty_hypotheses", 0):  # files of before do not say
        found.append(
            f"{empty:,} {'hypotheses are' if empty != 1 else 'hypothesis is'} empty: nothing to read, as likely "
            "as the least likely of the same list, and every word of the reference is an error"
        )
    found += windowed_notes(facts, "hypotheses")
    return [*found, *(f"{name}: {meaning}" for name, meaning in facts["meanings"].items())]


def _rates(facts: Facts) -> Table:
    table = NumericTable("", "model alone", "with the recogniser", title="word error rate, %")
    table.add_row("first best", "", _percent(facts["first_best"]))
    table.add_row("length penalty alone", "", _percent(facts["length_alone"]["rescored"]))
    for one in facts["models"]:
        table.add_row(_label(facts, one), _percent(one["alone"]), _percent(one["rescored"]))
    table.add_row("any hypothesis, by lot", _percent(facts["random"]), "")
    table.add_row("the best there is", "", _percent(facts["oracle"]))
    return table


def _differences(facts: Facts) -> Table:
    title = "rescored with the recogniser: differences in points, and utterances"
    columns = ("", "to first best", "to length penalty alone", "better", "worse")
    table = NumericTable(*columns, title=title)
    for name, one in _rescored(facts):
        against = "" if one is facts["length_alone"] else _points(one["to_length_alone"])
        table.add_row(name, _points(one["to_first_best"]), against, f"{one['better']:,}", f"{one['worse']:,}")
    return table


def _weights(facts: Facts) -> Table:
    title = "fitted, from the smallest to the largest of the parts"
    table = NumericTable("", "weight", "in the recogniser's spread", "length penalty", title=title)
    for name, one in _rescored(facts):
        table.add_row(name, *(_range(one[key]) for key in ("weights", "strengths", "length_penalties")))
    return table


def _rescored(facts: Facts) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("length penalty alone", facts["length_alone"]),
        *((_label(facts, one), one) for one in facts["models"]),
    ]


def _label(facts: Facts, one: dict[str, Any]) -> str:
    alone = len({model["model"] for model in facts["models"]}) == 1
    return str(one["score"]) if alone else f"{one['score']}, {one['model']}"


def _percent(figure: dict[str, Any]) -> str:
    return format_with_interval(100 * figure["value"], [100 * end for end in figure["interval"]], 2)


def _points(figure: dict[str, Any]) -> str:
    return format_with_interval(100 * figure["value"], [100 * end for end in figure["interval"]], 2, sign=True)


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


def figure(facts: Facts) -> Any:
    """Error rates with their intervals; and error rates by how much the model counts."""
    drawing = new_figure(12, 2.6 + 0.32 * (len(facts["models"]) + 4))
    rates, curves = drawing.subplots(1, 2, width_ratios=[1.1, 1])
    _draw_rates(rates, facts)
    first = 100 * facts["first_best"]["value"]
    for number, one in enumerate(facts["models"]):
        points = [point for point in one["curve"] if point["strength"]]
        x, y = [point["strength"] for point in points], [100 * point["rate"] for point in points]
        curves.plot(x, y, "o-", markersize=3, color=_color(number), label=_label(facts, one))
    curves.axhline(first, color="grey", linestyle=":", linewidth=1, label="first best")
    curves.set_xscale("log", base=2)
    curves.xaxis.set_major_formatter("{x:.3g}")
    curves.set(xlabel="the model's spread within a list over the recogniser's", ylabel="word error rate, %")
    curves.set_title("all utterances, nothing fitted, no length penalty", fontsize=TITLES)
    curves.grid(alpha=0.3)
    curves.legend(frameon=False, fontsize=7)
    return drawing


def _draw_rates(axes: Any, facts: Facts) -> None:
    """Filled: rescored together with the recogniser; hollow: by the model alone."""
    rows = [
        ("first best", facts["first_best"], "black"),
        ("length penalty alone", facts["length_alone"]["rescored"], "grey"),
        *((_label(facts, one), one["rescored"], _color(number)) for number, one in enumerate(facts["models"])),
        ("any, by lot", facts["random"], "grey"), ("the best there is", facts["oracle"], "black"),
    ]  # fmt: skip
    for row, (_, found, color) in enumerate(rows):
        _point(axes, row, found, color, hollow=False)
    for number, one in enumerate(facts["models"]):
        _point(axes, number + 2.3, one["alone"], _color(number), hollow=True)
    axes.axvline(100 * facts["first_best"]["value"], color="grey", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("word error rate, %")
    axes.set_title("filled: with the recogniser, fitted on other parts; hollow: alone", fontsize=TITLES)
    axes.grid(axis="x", alpha=0.3)


def _point(axes: Any, row: float, found: dict[str, Any], color: str, *, hollow: bool) -> None:
    value, (low, high) = 100 * found["value"], (100 * end for end in found["interval"])
    inside = "white" if hollow else color
    ends = [[abs(value - low)], [abs(high - value)]]
    axes.errorbar([value], [row], xerr=ends, fmt="o", markersize=5, color=color, markerfacecolor=inside)


def _color(number: int) -> str:
    return f"C{number % 10}"
