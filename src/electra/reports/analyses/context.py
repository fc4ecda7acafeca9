"""What `electra analyze context` found, as tables and as a picture: what a longer memory is worth, and where."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts, count_of
from electra.reports.figures import new_figure
from electra.reports.tables import NumericTable

TITLE = "What a longer memory is worth"
SHOWS = "perplexity against context, and the loss by where in its document a token stands"


def tables(facts: Facts) -> list[Table]:
    """Of each model, the loss by memory, and what reading costs."""
    return [table for model in facts["models"] for table in _tables(model)]


def notes(facts: Facts) -> list[str]:
    """What was read."""
    return [f"{_read(facts)}; losses in nats"]


def _read(facts: Facts) -> str:
    return f"{count_of(facts['documents'], 'held-out document')}, {count_of(facts['tokens'], 'token')}"


def _tables(model: dict[str, Any]) -> Iterator[Table]:
    late = list(model["readings"][0]["late"])
    title = f"{model['model']}: windows of {model['window']}, trained with a memory of {model['trained_memory']}"
    columns = ("memory", "loss", "perplexity", "early", *(f"from {int(first):,} on" for first in late))
    table = NumericTable(*columns, title=title)
    for one in model["readings"]:
        losses = [f"{loss:.4f}" for loss in (one["early"], *one["late"].values())]
        table.add_row(f"{one['memory']:,}", f"{one['loss']:.4f}", f"{one['perplexity']:.2f}", *losses)
    yield table
    if not model["speeds"]:
        return
    columns = (
        "memory",
        "ms a token",
        "sliding window of",
        "ms a token",
        "so many times",
        "loss",
        "sliding window",
    )
    table = NumericTable(*columns, title="reading one document with memory, and by a sliding window")
    for one in model["speeds"]:
        table.add_row(
            f"{one['memory']:,}", f"{1000 * one['memory_seconds']:.3f}", f"{one['context']:,}",
            f"{1000 * one['sliding_seconds']:.2f}", f"{one['times']:.0f}", f"{one['memory_loss']:.4f}",
            f"{one['sliding_loss']:.4f}",
        )  # fmt: skip
    yield table


def figure(facts: Facts) -> Any:
    """Perplexity against context, and the loss by where in its document a token stands.

    Models that were trained alike have one colour. A ring, and in the second picture a whole line, is for the
    memory of training; of a single model the shortest and the longest memory are drawn there, too.
    """
    drawing = new_figure(11, 4.5)
    by_context, by_position = drawing.subplots(1, 2)
    models = facts["models"]
    kinds = list(dict.fromkeys(_kind(model) for model in models))
    for number, kind in enumerate(kinds):
        alike = [model for model in models if _kind(model) == kind]
        label, color = ", ".join(model["model"] for model in alike), f"C{number % 10}"
        for model in alike:
            named = label if model is alike[0] else None
            _perplexities(by_context, model, color, named)
            _positions(by_position, model, color, named, others=len(models) == 1)
    by_context.set(xlabel="context: memory and window, tokens", ylabel="perplexity", title="all tokens")
    by_position.set(xlabel="where in its document a token stands", ylabel="loss, nats", title="early and late")
    for axes in (by_context, by_position):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    drawing.suptitle(_read(facts), fontsize=10)
    return drawing


def _kind(model: dict[str, Any]) -> tuple[int, int]:
    return model["trained_memory"], model["window"]


def _perplexities(axes: Any, model: dict[str, Any], color: str, label: str | None) -> None:
    readings = sorted(model["readings"], key=lambda one: int(one["memory"]))
    x = [one["memory"] + model["window"] for one in readings]
    axes.plot(x, [one["perplexity"] for one in readings], "o-", markersize=4, color=color, label=label)
    for one in readings:
        if one["memory"] == model["trained_memory"]:
            ring: dict[str, Any] = {"markersize": 10, "markerfacecolor": "none", "color": color}
            axes.plot(one["memory"] + model["window"], one["perplexity"], "o", **ring)


def _positions(axes: Any, model: dict[str, Any], color: str, label: str | None, *, others: bool) -> None:
    """Each stretch stands in its (geometric) middle."""
    readings = sorted(model["readings"], key=lambda one: int(one["memory"]))
    as_trained = min(readings, key=lambda one: abs(int(one["memory"]) - int(model["trained_memory"])))
    chosen = [(as_trained, "-")]
    if others:
        chosen += [
            (one, style) for one, style in ((readings[0], ":"), (readings[-1], "--")) if one is not as_trained
        ]
    for one, style in chosen:
        x = [((stretch["first"] or 8) * (stretch["last"] + 1)) ** 0.5 for stretch in one["by_position"]]
        y = [stretch["loss"] for stretch in one["by_position"]]
        named = None if label is None else f"{label}: memory {one['memory']:,}"
        axes.plot(x, y, style, marker="o", markersize=3, color=color, label=named)
