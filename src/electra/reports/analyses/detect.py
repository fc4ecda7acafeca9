"""The results of `electra analyze detect` as tables and as a figure: which wrong words of learners are found."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of
from electra.reports.figures import BEST_PLACE, new_figure
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_number, format_with_interval

TITLE = "Detection of learners' wrong words"
FIGURE_DESCRIPTION = (
    "precision and recall of each model and baseline, and average precision by the error rate of sentences"
)

METRICS = {
    "precision": "precision",
    "recall": "recall",
    "f0.5": "F0.5",
    "average_precision": "average precision",
    "auc": "ROC AUC",
}
RARE, EVERY = "rare words", "every word"
"""The baselines; the second one has no threshold."""
BUCKET_METRICS = ("flagged", "precision", "recall", "f0.5", "average_precision")

Model = Mapping[str, Any]


def build_tables(results: Results) -> list[Table]:
    """All metrics; by the error rate of sentences; sentences against their rewrites; differences."""
    tables = [_metrics_table(results), _buckets_table(results)]
    if any("rewrites" in model for model in results["models"]):
        tables.append(_rewrites_table(results))
    if results["differences"]:
        tables.append(_differences_table(results))
    return tables


def build_notes(results: Results) -> list[str]:
    """What was read, and how."""
    tune, scored = results["parts"]["tune"], results["parts"]["scored"]
    error_rate = scored["errors"] / scored["words"]
    source = f"{results['tune']}: " if results["tune"] else "the other "
    notes = [
        f"{results['data']}: {count_of(scored['sentences'], 'sentence')} scored, {scored['words']:,} words, "
        f"{scored['errors']:,} of them wrong ({error_rate:.1%})",
        "thresholds, and the maximum or mean of the log-odds of a word's tokens, are those with the best F0.5 and "
        f"average precision on {source}{count_of(tune['sentences'], 'sentence')}",
        f"95% intervals: {results['resamples']:,} resamples of sentences; each sentence was read by itself",
        NO_INTERVAL_NOTE,
        *_rare_words_notes(results),
    ]
    if results["references"]:
        notes.append(f"a word is wrong if at least {results['references']} of the rewrites change it")
    for model in results["models"]:
        if model["long"]:
            notes.append(
                f"{model['model']}: {count_of(model['long'], 'sentence')} longer than its input, read in windows"
            )
        if model["unseen"]:
            words = count_of(model["unseen"], "word")
            notes.append(f"{model['model']}: {words} without a token, with the lowest score")
    return notes


def _rare_words_notes(results: Results) -> Iterator[str]:
    """The threshold of rare words as a count: a word's score is minus the log of its count plus one."""
    for model in results["models"]:
        if model["model"] == RARE:
            most = max(0, round(math.exp(-model["threshold"]) - 1))
            condition = f"occur at most {count_of(most, 'time')}" if most else "do not occur"
            yield f"{RARE}: flags words that {condition} in the sentences for thresholds"


def _format(value: Mapping[str, Any] | None, *, sign: bool = False) -> str:
    if value is None:
        return "–"
    return format_with_interval(value["value"], value["interval"], 3, sign=sign)


def _metrics_table(results: Results) -> Table:
    table = NumericTable("", "threshold", *METRICS.values(), title="all scored sentences")
    for model in results["models"]:
        name = f"{model['model']}, {model['pooling']}" if model["pooling"] else model["model"]
        threshold = "–" if model["model"] == EVERY else format_number(model["threshold"], 2, sign=True)
        table.add_row(name, threshold, *(_format(model[key]) for key in METRICS))
    return table


def _buckets_table(results: Results) -> Table:
    title = "sentences by their fraction of wrong words"
    metrics = (METRICS[key] for key in BUCKET_METRICS[1:])
    table = NumericTable("wrong words", "", "sentences", "base rate", "flagged", *metrics, title=title, keys=2)
    for bucket in results["buckets"]:
        if not bucket["sentences"]:
            continue
        counts = [f"{bucket['sentences']:,}", format_number(bucket["errors"] / bucket["words"], 3)]
        for model in results["models"]:
            is_first = model is results["models"][0]
            [values] = [values for values in model["buckets"] if values["bucket"] == bucket["bucket"]]
            cells = [
                "–" if values[key] is None else format_number(values[key]["value"], 3) for key in BUCKET_METRICS
            ]
            name = bucket["bucket"] if is_first else ""
            table.add_row(name, model["model"], *(counts if is_first else ["", ""]), *cells)
    return table


def _rewrites_table(results: Results) -> Table:
    title = "does a sentence look more wrong than its rewrite? (chance: 0.5)"
    table = NumericTable("", "pairs", "accuracy", title=title)
    for model in results["models"]:
        if "rewrites" in model:
            rewrites = model["rewrites"]
            table.add_row(model["model"], f"{rewrites['pairs']:,}", _format(rewrites["accuracy"]))
    return table


def _differences_table(results: Results) -> Table:
    keys = ("f0.5", "average_precision", "auc")
    title = f"differences from {results['differences'][0]['than']}, paired"
    table = NumericTable("", *(METRICS[key] for key in keys), title=title)
    for row in results["differences"]:
        table.add_row(row["model"], *(_format(row[key], sign=True) for key in keys))
    return table


def draw(results: Results) -> Any:
    """Precision and recall, with a ring at the selected threshold; and average precision by bucket."""
    figure = new_figure(11, 4.5)
    curves, bars = figure.subplots(1, 2)
    _draw_curves(curves, results["models"])
    _draw_bars(bars, results)
    for axes in (curves, bars):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    curves.legend(frameon=False, fontsize=8, **BEST_PLACE)
    scored = results["parts"]["scored"]
    error_rate = scored["errors"] / scored["words"]
    figure.suptitle(f"{results['data']}: {scored['words']:,} words, {error_rate:.1%} of them wrong", fontsize=10)
    return figure


def _draw_curves(axes: Any, models: Sequence[Model]) -> None:
    for number, model in enumerate(models):
        color = _color(number, model)
        if len(model["curve"]) < 2:  # all words have the same score
            axes.axhline(model["precision"]["value"], label=model["model"], color=color, linestyle="--")
            continue
        recall, precision = zip(*model["curve"], strict=True)
        style = "--" if model["kind"] == "baseline" else "-"
        axes.plot(recall, precision, style, label=model["model"], color=color)
        if model["recall"] and model["precision"]:
            point = model["recall"]["value"], model["precision"]["value"]
            axes.plot(*point, "o", markersize=8, markerfacecolor="none", color=color)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1), title="ring: the selected threshold")


def _draw_bars(axes: Any, results: Results) -> None:
    buckets = [bucket for bucket in results["buckets"] if bucket["errors"]]
    width = 0.8 / len(results["models"])
    for number, model in enumerate(results["models"]):
        values = {bucket["bucket"]: bucket["average_precision"] for bucket in model["buckets"]}
        for index, bucket in enumerate(buckets):
            if (value := values.get(bucket["bucket"])) is None:
                continue
            low, high = value["interval"]
            errors = [[max(0.0, value["value"] - low)], [max(0.0, high - value["value"])]]
            x, style = index - 0.4 + (number + 0.5) * width, {"elinewidth": 1}
            axes.bar(x, value["value"], width * 0.9, yerr=errors, color=_color(number, model), error_kw=style)
    axes.set_xticks(
        range(len(buckets)), [f"{bucket['bucket']}\n{bucket['sentences']:,} sentences" for bucket in buckets]
    )
    axes.set(
        xlabel="wrong words of a sentence", ylabel="average precision", title="by the error rate of sentences"
    )


def _color(number: int, model: Model) -> str:
    grays = {RARE: "0.35", EVERY: "0.7"}
    return grays[model["model"]] if model["kind"] == "baseline" else f"C{number % 10}"
