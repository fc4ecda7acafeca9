"""The results of `electra analyze rescore` as tables and as a figure: word error rates before and after."""

from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of, windowed_notes
from electra.reports.figures import BEST_PLACE, new_figure
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_with_interval

TITLE_SIZE = 10
"""Font size of the panels' titles."""
TITLE = "Rescoring of a speech recognizer's hypotheses"
FIGURE_DESCRIPTION = "word error rates of the first best, rescored with each score, and of the oracle"

Model = dict[str, Any]


def build_tables(results: Results) -> list[Table]:
    """Error rates, differences, and fitted weights."""
    return [_rates_table(results), _differences_table(results), _weights_table(results)]


def build_notes(results: Results) -> list[str]:
    """What was measured, and how."""
    scale = {"probability": "probabilities, whose logarithms are used", "log": "logarithms"}[results["scale"]]
    notes = [
        f"{count_of(results['utterances'], 'utterance')}, {results['reference_words']:,} words, "
        f"{results['hypotheses']:,} hypotheses; the recognizer's scores are {scale}. An error rate is the number "
        "of errors over the number of words",
        "weight and length penalty: the point of a grid with the fewest errors on "
        f"{results['folds'] - 1} of {results['folds']} folds of the utterances, evaluated on the remaining one; "
        f"intervals: 95% of {results['resamples']:,} resamples of the utterances",
        NO_INTERVAL_NOTE,
        f"words: {results['normalisation']}",
    ]
    if results["left_out"]:
        reasons = (f"{count_of(count, 'list')} {reason}" for reason, count in results["left_out"].items())
        notes.append(f"left out: {', '.join(reasons)}")
    if results["first_best_added"]:
        notes.append(
            f"the first best of {count_of(results['first_best_added'], 'list')} has no score; it was added with "
            "the score of the best alternative"
        )
    if empty := results.get("empty_hypotheses", 0):  # unknown in results of earlier versions
        notes.append(
            f"{empty:,} {'hypotheses are' if empty != 1 else 'hypothesis is'} empty: an empty one is as likely as "
            "the least likely one of its list, and every word of the reference is an error"
        )
    notes += windowed_notes(results, "hypotheses")
    return [*notes, *(f"{name}: {meaning}" for name, meaning in results["meanings"].items())]


def _rates_table(results: Results) -> Table:
    table = NumericTable("", "model alone", "with the recognizer", title="word error rate, %")
    table.add_row("first best", "", _percent(results["first_best"]))
    table.add_row("length penalty alone", "", _percent(results["length_alone"]["rescored"]))
    for model in results["models"]:
        table.add_row(_label(results, model), _percent(model["alone"]), _percent(model["rescored"]))
    table.add_row("random hypothesis", _percent(results["random"]), "")
    table.add_row("oracle (best hypothesis)", "", _percent(results["oracle"]))
    return table


def _differences_table(results: Results) -> Table:
    title = "rescored with the recognizer: differences in points, and numbers of utterances"
    columns = ("", "to first best", "to length penalty alone", "better", "worse")
    table = NumericTable(*columns, title=title)
    for name, model in _rescored(results):
        is_baseline = model is results["length_alone"]
        table.add_row(
            name, _percent(model["to_first_best"], sign=True),
            "" if is_baseline else _percent(model["to_length_alone"], sign=True),
            f"{model['better']:,}", f"{model['worse']:,}",
        )  # fmt: skip
    return table


def _weights_table(results: Results) -> Table:
    title = "fitted weights, smallest to largest over the folds"
    table = NumericTable("", "weight", "relative to the recognizer", "length penalty", title=title)
    for name, model in _rescored(results):
        table.add_row(name, *(_range(model[key]) for key in ("weights", "strengths", "length_penalties")))
    return table


def _rescored(results: Results) -> list[tuple[str, Model]]:
    return [
        ("length penalty alone", results["length_alone"]),
        *((_label(results, model), model) for model in results["models"]),
    ]


def _label(results: Results, model: Model) -> str:
    is_one_model = len({model["model"] for model in results["models"]}) == 1
    return str(model["score"]) if is_one_model else f"{model['score']}, {model['model']}"


def _percent(rate: dict[str, Any], *, sign: bool = False) -> str:
    return format_with_interval(100 * rate["value"], [100 * end for end in rate["interval"]], 2, sign=sign)


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


def draw(results: Results) -> Any:
    """Error rates with their intervals, and error rates by the weight of the model."""
    figure = new_figure(12, 2.6 + 0.32 * (len(results["models"]) + 4))
    rates, curves = figure.subplots(1, 2, width_ratios=[1.1, 1])
    _draw_rates(rates, results)
    for number, model in enumerate(results["models"]):
        points = [point for point in model["curve"] if point["strength"]]
        x, y = [point["strength"] for point in points], [100 * point["rate"] for point in points]
        curves.plot(x, y, "o-", markersize=3, color=_color(number), label=_label(results, model))
    first_best = 100 * results["first_best"]["value"]
    curves.axhline(first_best, color="grey", linestyle=":", linewidth=1, label="first best")
    curves.set_xscale("log", base=2)
    curves.xaxis.set_major_formatter("{x:.3g}")
    curves.set(xlabel="the model's spread within a list over the recognizer's", ylabel="word error rate, %")
    curves.set_title("all utterances, nothing fitted, no length penalty", fontsize=TITLE_SIZE)
    curves.grid(alpha=0.3)
    curves.legend(frameon=False, fontsize=7, **BEST_PLACE)
    return figure


def _draw_rates(axes: Any, results: Results) -> None:
    """Filled: rescored together with the recognizer; hollow: with the model alone."""
    rows = [
        ("first best", results["first_best"], "black"),
        ("length penalty alone", results["length_alone"]["rescored"], "grey"),
        *(
            (_label(results, model), model["rescored"], _color(number))
            for number, model in enumerate(results["models"])
        ),
        ("random", results["random"], "grey"), ("oracle", results["oracle"], "black"),
    ]  # fmt: skip
    for row, (_, rate, color) in enumerate(rows):
        _draw_point(axes, row, rate, color, hollow=False)
    for number, model in enumerate(results["models"]):
        _draw_point(axes, number + 2.3, model["alone"], _color(number), hollow=True)
    axes.axvline(100 * results["first_best"]["value"], color="grey", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("word error rate, %")
    axes.set_title("filled: with the recognizer, cross-fitted; hollow: model alone", fontsize=TITLE_SIZE)
    axes.grid(axis="x", alpha=0.3)


def _draw_point(axes: Any, row: float, rate: dict[str, Any], color: str, *, hollow: bool) -> None:
    value, (low, high) = 100 * rate["value"], (100 * end for end in rate["interval"])
    fill = "white" if hollow else color
    errors = [[abs(value - low)], [abs(high - value)]]
    axes.errorbar([value], [row], xerr=errors, fmt="o", markersize=5, color=color, markerfacecolor=fill)


def _color(number: int) -> str:
    return f"C{number % 10}"
