"""What `electra analyze detect` found, as tables and as a picture: which wrong words of learners are found."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts, count_of
from electra.reports.figures import new_figure
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_number, format_with_interval

TITLE = "Finding the words that learners got wrong"
SHOWS = "precision against recall of each model and baseline, and average precision by how many words are wrong"

FIGURES = {
    "precision": "precision",
    "recall": "recall",
    "f0.5": "F0.5",
    "average_precision": "average precision",
    "auc": "ROC AUC",
}
RARE, EVERY = "rare words", "every word"
"""The baselines; nothing is chosen for the second."""
BUCKETED = ("flagged", "precision", "recall", "f0.5", "average_precision")


def tables(facts: Facts) -> list[Table]:
    """All figures; by how full of errors a sentence is; sentences beside their rewrites; differences."""
    found = [_whole(facts), _buckets(facts)]
    if any("rewrites" in one for one in facts["models"]):
        found.append(_rewrites(facts))
    if facts["differences"]:
        found.append(_differences(facts))
    return found


def notes(facts: Facts) -> list[str]:
    """What was read, and how."""
    tune, scored = facts["parts"]["tune"], facts["parts"]["scored"]
    share = scored["errors"] / scored["words"]
    where = f"{facts['tune']}: " if facts["tune"] else "the other "
    found = [
        f"{facts['data']}: {count_of(scored['sentences'], 'sentence')} scored, {scored['words']:,} words, "
        f"{scored['errors']:,} of them wrong ({share:.1%})",
        "thresholds, and whether a word has the maximum or the mean of its tokens' log-odds, by the best F0.5 and "
        f"average precision on {where}{count_of(tune['sentences'], 'sentence')}",
        f"95 % intervals: {facts['resamples']:,} resamples of sentences; every sentence was read by itself",
        NO_INTERVAL_NOTE,
        *_rarity(facts),
    ]
    if facts["references"]:
        found.append(f"wrong are words that at least {facts['references']} of the rewrites change")
    for one in facts["models"]:
        if one["long"]:
            sentences = count_of(one["long"], "sentence")
            found.append(f"{one['model']}: {sentences}, longer than its input, read in windows")
        if one["unseen"]:
            words = count_of(one["unseen"], "word")
            found.append(f"{one['model']}: {words} without a token, with the lowest score")
    return found


def _rarity(facts: Facts) -> Iterator[str]:
    """What the threshold of rare words is in words: its score is minus the log of one more than their count."""
    for one in facts["models"]:
        if one["model"] == RARE:
            most = max(0, round(math.exp(-one["threshold"]) - 1))
            seen = f"at most {count_of(most, 'time')}" if most else "nowhere"
            yield f"{RARE}: flagged are those that stand {seen} in the sentences of the thresholds"


def _shown(found: Mapping[str, Any] | None, *, sign: bool = False) -> str:
    if found is None:
        return "–"
    return format_with_interval(found["value"], found["interval"], 3, sign=sign)


def _named(one: Mapping[str, Any]) -> str:
    return f"{one['model']}, {one['pooling']}" if one["pooling"] else str(one["model"])


def _whole(facts: Facts) -> Table:
    table = NumericTable("", "threshold", *FIGURES.values(), title="all scored sentences")
    for one in facts["models"]:
        threshold = "–" if one["model"] == EVERY else format_number(one["threshold"], 2, sign=True)
        table.add_row(_named(one), threshold, *(_shown(one[name]) for name in FIGURES))
    return table


def _buckets(facts: Facts) -> Table:
    title = "sentences by the share of their words that is wrong"
    columns = ("wrong words", "", "sentences", "base rate", "flagged", *(FIGURES[name] for name in BUCKETED[1:]))
    table = NumericTable(*columns, title=title, keys=2)
    for bucket in facts["buckets"]:
        if not bucket["sentences"]:
            continue
        first = [f"{bucket['sentences']:,}", format_number(bucket["errors"] / bucket["words"], 3)]
        for one in facts["models"]:
            [there] = [there for there in one["buckets"] if there["bucket"] == bucket["bucket"]]
            figures = ["–" if there[name] is None else format_number(there[name]["value"], 3) for name in BUCKETED]
            name = bucket["bucket"] if one is facts["models"][0] else ""
            table.add_row(name, one["model"], *first, *figures)
            first = ["", ""]
    return table


def _rewrites(facts: Facts) -> Table:
    title = "does a sentence look more wrong than its rewrite? (0.5: chance)"
    table = NumericTable("", "pairs", "accuracy", title=title)
    for one in facts["models"]:
        if "rewrites" in one:
            table.add_row(one["model"], f"{one['rewrites']['pairs']:,}", _shown(one["rewrites"]["accuracy"]))
    return table


def _differences(facts: Facts) -> Table:
    names = ("f0.5", "average_precision", "auc")
    title = f"differences from {facts['differences'][0]['than']}, paired"
    table = NumericTable("", *(FIGURES[name] for name in names), title=title)
    for row in facts["differences"]:
        table.add_row(row["model"], *(_shown(row[name], sign=True) for name in names))
    return table


def figure(facts: Facts) -> Any:
    """Precision against recall, a ring where the threshold is; and the average precision by bucket."""
    drawing = new_figure(11, 4.5)
    curves, bars = drawing.subplots(1, 2)
    _curves(curves, facts["models"])
    _bars(bars, facts)
    for axes in (curves, bars):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    curves.legend(frameon=False, fontsize=8)
    scored = facts["parts"]["scored"]
    share = scored["errors"] / scored["words"]
    drawing.suptitle(f"{facts['data']}: {scored['words']:,} words, {share:.1%} of them wrong", fontsize=10)
    return drawing


def _curves(axes: Any, models: Sequence[Mapping[str, Any]]) -> None:
    for number, one in enumerate(models):
        color = _color(number, one)
        if len(one["curve"]) < 2:  # all words have one score
            axes.axhline(one["precision"]["value"], label=one["model"], color=color, linestyle="--")
            continue
        recall, precision = zip(*one["curve"], strict=True)
        axes.plot(recall, precision, "--" if one["kind"] == "baseline" else "-", label=one["model"], color=color)
        if one["recall"] and one["precision"]:
            place = one["recall"]["value"], one["precision"]["value"]
            axes.plot(*place, "o", markersize=8, markerfacecolor="none", color=color)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1), title="ring: the chosen threshold")


def _bars(axes: Any, facts: Facts) -> None:
    shown = [bucket for bucket in facts["buckets"] if bucket["errors"]]
    width = 0.8 / len(facts["models"])
    for number, one in enumerate(facts["models"]):
        found = {there["bucket"]: there["average_precision"] for there in one["buckets"]}
        for place, bucket in enumerate(shown):
            if (there := found.get(bucket["bucket"])) is None:
                continue
            low, high = there["interval"]
            reach = [[max(0.0, there["value"] - low)], [max(0.0, high - there["value"])]]
            x, error = place - 0.4 + (number + 0.5) * width, {"elinewidth": 1}
            axes.bar(x, there["value"], width * 0.9, yerr=reach, color=_color(number, one), error_kw=error)
    axes.set_xticks(
        range(len(shown)), [f"{bucket['bucket']}\n{bucket['sentences']:,} sentences" for bucket in shown]
    )
    axes.set(xlabel="wrong words of a sentence", ylabel="average precision", title="by how many words are wrong")


def _color(number: int, one: Mapping[str, Any]) -> str:
    grays = {RARE: "0.35", EVERY: "0.7"}
    return grays[one["model"]] if one["kind"] == "baseline" else f"C{number % 10}"
