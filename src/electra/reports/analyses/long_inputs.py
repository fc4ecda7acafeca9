"""The results of `electra analyze long-inputs` as tables and as a figure: by position, and by distance."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of
from electra.reports.figures import new_figure
from electra.reports.tables import NumericTable

TITLE = "Long inputs"
FIGURE_DESCRIPTION = "quality by position in a row, and the gain from a word that the row has already, by distance"

Model = dict[str, Any]


def build_tables(results: Results) -> list[Table]:
    """The quality by position, and the gain by distance, of each model."""
    return [table for model in results["models"] for table in _model_tables(model)]


def build_notes(results: Results) -> list[str]:
    """What was measured on what."""
    rows = f"{count_of(results['documents'], 'held-out document')}, rows of {results['length']:,} tokens"
    notes = [
        f"{rows}; {results['share']:.0%} of the tokens replaced or masked",
        f"needles: {count_of(results['needles'], 'rare word')}, each placed late in a row, after itself or after "
        f"another rare word; the gain is in logits of a discriminator, in nats of a masked language model; 95% "
        f"intervals: {results['resamples']:,} resamples of documents",
    ]
    if results["documents"] < 10:
        notes.append("fewer than ten documents: the intervals say nothing")
    return notes


def _model_tables(model: Model) -> Iterator[Table]:
    title = f"{model['model']}: trained on at most {model['trained_length']:,} tokens"
    window = f"in windows of {model['window']:,}"
    table = NumericTable("positions", "tokens", f"{model['metric']}, at once", window, title=title)
    for part in model["positions"]:
        values = (f"{part[name]:.4f}" for name in ("at_once", "in_windows"))
        table.add_row(f"{part['first']:,}–{part['last']:,}", f"{part['tokens']:,}", *values)
    yield table
    if not model["needles"]:
        return
    table = NumericTable("distance", "gain", "95% interval", title="the late word, after itself at a distance")
    for needle in model["needles"]:
        low, high = needle["interval"]
        table.add_row(f"{needle['distance']:,}", f"{needle['gain']:+.4f}", f"{low:+.4f} to {high:+.4f}")
    yield table


def draw(results: Results) -> Any:
    """Two panels; the whole row is solid, windows are dotted. A vertical line marks the longest training input."""
    figure = new_figure(11, 4.5)
    by_position, by_distance = figure.subplots(1, 2)
    for number, model in enumerate(results["models"]):
        color = f"C{number % 10}"
        x = [((part["first"] or 32) * (part["last"] + 1)) ** 0.5 for part in model["positions"]]
        for name, style, label in (
            ("at_once", "-", "at once"),
            ("in_windows", ":", f"windows of {model['window']:,}"),
        ):
            y = [part[name] for part in model["positions"]]
            label = f"{model['model']} ({model['metric']}), {label}"
            by_position.plot(x, y, style, marker="o", markersize=3, color=color, label=label)
        if model["trained_length"] < results["length"]:
            by_position.axvline(model["trained_length"], color=color, linewidth=0.8, alpha=0.5)
        distances = [needle["distance"] for needle in model["needles"]]
        gains = [needle["gain"] for needle in model["needles"]]
        errors = [[abs(needle["gain"] - needle["interval"][end]) for needle in model["needles"]] for end in (0, 1)]
        by_distance.errorbar(
            distances, gains, yerr=errors, marker="o", markersize=3, capsize=2, color=color, label=model["model"]
        )
    by_distance.axhline(0, color="gray", linewidth=0.8)
    by_position.set(xlabel="position in the row", ylabel="AUC or loss", title="by position")
    by_distance.set(xlabel="distance in tokens", ylabel="gain", title="a rare word after itself")
    for axes in (by_position, by_distance):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    return figure
