"""The results of `electra analyze context` as tables and as a figure: losses by memory length and by position."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of
from electra.reports.figures import BEST_PLACE, new_figure
from electra.reports.tables import NumericTable

TITLE = "The gain from a longer memory"
FIGURE_DESCRIPTION = "perplexity by context length, and loss by the position of a token in its document"

Model = dict[str, Any]


def build_tables(results: Results) -> list[Table]:
    """The losses by memory length, and the speed of reading, of each model."""
    return [table for model in results["models"] for table in _model_tables(model)]


def build_notes(results: Results) -> list[str]:
    """What was read."""
    return [f"{_describe_text(results)}; losses in nats"]


def _describe_text(results: Results) -> str:
    return f"{count_of(results['documents'], 'held-out document')}, {count_of(results['tokens'], 'token')}"


def _model_tables(model: Model) -> Iterator[Table]:
    late = list(model["readings"][0]["late"])
    title = f"{model['model']}: windows of {model['window']}, trained with a memory of {model['trained_memory']}"
    columns = ("memory", "loss", "perplexity", "early", *(f"from {int(first):,} on" for first in late))
    table = NumericTable(*columns, title=title)
    for reading in model["readings"]:
        losses = [f"{loss:.4f}" for loss in (reading["early"], *reading["late"].values())]
        table.add_row(f"{reading['memory']:,}", f"{reading['loss']:.4f}", f"{reading['perplexity']:.2f}", *losses)
    yield table
    if not model["speeds"]:
        return
    columns = ("memory", "ms/token", "window", "window ms/token", "speedup", "loss", "window loss")
    table = NumericTable(*columns, title="reading one document with memory, and with a sliding window")
    for speed in model["speeds"]:
        table.add_row(
            f"{speed['memory']:,}", f"{1000 * speed['memory_seconds']:.3f}", f"{speed['context']:,}",
            f"{1000 * speed['sliding_seconds']:.2f}", f"{speed['times']:.0f}", f"{speed['memory_loss']:.4f}",
            f"{speed['sliding_loss']:.4f}",
        )  # fmt: skip
    yield table


def draw(results: Results) -> Any:
    """Perplexity by context length, and loss by position.

    Models with the same training have one color. The memory of training has a ring, and in the second panel a
    solid line; for a single model the shortest and the longest memory are drawn there, too.
    """
    figure = new_figure(11, 4.5)
    by_context, by_position = figure.subplots(1, 2)
    models = results["models"]
    kinds = list(dict.fromkeys(_kind(model) for model in models))
    for number, kind in enumerate(kinds):
        similar = [model for model in models if _kind(model) == kind]
        name, color = ", ".join(model["model"] for model in similar), f"C{number % 10}"
        for model in similar:
            label = name if model is similar[0] else None
            _draw_perplexities(by_context, model, color, label)
            _draw_losses(by_position, model, color, label, extremes=len(models) == 1)
    by_context.set(xlabel="context: memory and window, tokens", ylabel="perplexity", title="all tokens")
    by_position.set(xlabel="position in the document", ylabel="loss, nats", title="by position")
    for axes in (by_context, by_position):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8, **BEST_PLACE)
    figure.suptitle(_describe_text(results), fontsize=10)
    return figure


def _kind(model: Model) -> tuple[int, int]:
    return model["trained_memory"], model["window"]


def _sorted_readings(model: Model) -> list[Model]:
    return sorted(model["readings"], key=lambda reading: int(reading["memory"]))


def _draw_perplexities(axes: Any, model: Model, color: str, label: str | None) -> None:
    readings = _sorted_readings(model)
    x = [reading["memory"] + model["window"] for reading in readings]
    axes.plot(x, [reading["perplexity"] for reading in readings], "o-", markersize=4, color=color, label=label)
    for reading in readings:
        if reading["memory"] == model["trained_memory"]:
            ring: dict[str, Any] = {"markersize": 10, "markerfacecolor": "none", "color": color}
            axes.plot(reading["memory"] + model["window"], reading["perplexity"], "o", **ring)


def _draw_losses(axes: Any, model: Model, color: str, label: str | None, *, extremes: bool) -> None:
    """Each range of positions is drawn at its geometric mean."""
    readings = _sorted_readings(model)
    trained = min(readings, key=lambda reading: abs(int(reading["memory"]) - int(model["trained_memory"])))
    lines = [(trained, "-")]
    if extremes:
        shortest, longest = readings[0], readings[-1]
        lines += [
            (reading, style) for reading, style in ((shortest, ":"), (longest, "--")) if reading is not trained
        ]
    for reading, style in lines:
        x = [((part["first"] or 8) * (part["last"] + 1)) ** 0.5 for part in reading["by_position"]]
        y = [part["loss"] for part in reading["by_position"]]
        name = None if label is None else f"{label}: memory {reading['memory']:,}"
        axes.plot(x, y, style, marker="o", markersize=3, color=color, label=name)
