"""The results of `electra analyze long-inputs` as tables and as a figure: by position, and by distance."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of
from electra.reports.figures import BEST_PLACE, new_figure
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
    """A panel by position for each metric, and one by distance.

    The whole row is solid, windows are dotted. A vertical line marks the longest input in training.
    """
    models, metrics = results["models"], list(dict.fromkeys(model["metric"] for model in results["models"]))
    figure = new_figure(5.5 * (len(metrics) + 1), 4.5)
    panels = dict(zip([*metrics, "gain"], figure.subplots(1, len(metrics) + 1), strict=True))
    for number, model in enumerate(models):
        color, by_position = f"C{number % 10}", panels[model["metric"]]
        _draw_positions(by_position, model, color)
        if model["trained_length"] < results["length"]:
            by_position.axvline(model["trained_length"], color=color, linewidth=0.8, alpha=0.5)
        distances, gains = ([needle[name] for needle in model["needles"]] for name in ("distance", "gain"))
        errors = [[abs(one["gain"] - one["interval"][end]) for one in model["needles"]] for end in (0, 1)]
        panels["gain"].errorbar(
            distances, gains, yerr=errors, marker="o", markersize=3, capsize=2, color=color, label=model["model"]
        )
    panels["gain"].axhline(0, color="gray", linewidth=0.8)
    panels["gain"].set(xlabel="distance in tokens", ylabel="gain", title="a rare word after itself")
    for metric in metrics:
        panels[metric].set(xlabel="position in the row", ylabel=metric, title="by position")
    for axes in panels.values():
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8, **BEST_PLACE)
    return figure


def _draw_positions(axes: Any, model: Model, color: str) -> None:
    x = [((part["first"] or 32) * (part["last"] + 1)) ** 0.5 for part in model["positions"]]
    for name, style, label in (
        ("at_once", "-", "at once"),
        ("in_windows", ":", f"windows of {model['window']:,}"),
    ):
        y = [part[name] for part in model["positions"]]
        axes.plot(x, y, style, marker="o", markersize=3, color=color, label=f"{model['model']}, {label}")
