"""The results of `electra analyze compare` as tables and as a figure: two encoders side by side."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from electra.reports.analysis import Results, count_of, windowed_notes
from electra.reports.figures import new_figure
from electra.reports.tables import NumericTable, format_interval, format_with_interval

TITLE = "Comparison of two encoders"
FIGURE_DESCRIPTION = "similarity of the layers, probes, isotropy, attention, and overlap of nearest neighbors"

COLORS = ("C0", "C1")
SHOWN_NEIGHBORS = 6
"""Neighbors of a word that the table shows."""
MAX_CHARACTERS = 24
"""Characters of each."""
COLUMNS = 3
"""Panels of the figure next to each other."""
TARGETS = {"first": "first special", "last": "last special", "previous": "previous", "self": "itself",
           "next": "next"}  # fmt: skip
PALETTE = ("#4c566a", "#8f9bb3", "#5ba3cf", "#f2b134", "#e07b54", "#e6e6e6")
Panel = Callable[[Any, Results], None]


def build_tables(results: Results) -> list[Table]:
    """The last layer of each network; probes; neighbors."""
    probes = [_probes_table(results)] if results["probes"] else []
    return [_encoders_table(results), *probes, *_neighbor_tables(results)]


def build_notes(results: Results) -> list[str]:
    """How similar the networks are, and what was read."""
    alignment, neighbors = results["alignment"], results["neighbours"]
    first, second = (model["model"] for model in results["models"])
    last, sentences = neighbors["words"][-1], neighbors["sentences"]
    best_first, best_second = alignment["best_layers"]
    notes = [
        f"last layers: CKA {alignment['last']:.3f} (standard error {alignment['standard_error']:.3f}); the most "
        f"similar ones are layer {best_first} of {first} and layer {best_second} of {second}: "
        f"{alignment['best']:.3f}",
        *(
            f"{probe['name']}: {second} minus {first} "
            f"{format_with_interval(probe['difference'], probe['interval'], 3, sign=True)}"
            for probe in results["probes"]
        ),
        f"of a word's {neighbors['k']} nearest other words, {last['overlap']:.1%} are the same in the last layers "
        f"({_format_percent(last['interval'])}; by chance {neighbors['chance']:.1%}); of a sentence's nearest "
        f"sentences, {sentences['overlap']:.1%} ({_format_percent(sentences['interval'])}; by chance "
        f"{neighbors['chance_of_sentences']:.1%})",
        f"{results['text']}: {results['words']:,} words of {results['forms']:,} types in {results['sentences']:,} "
        f"sentences, sampled with seed {results['seed']}; intervals: 95% over sentences; layer 0: embeddings",
    ]
    if results["without_tokens"]:
        left_out = count_of(results["without_tokens"], "word")
        notes.append(f"{left_out} left out, for which one of the tokenizers has no token")
    notes += windowed_notes(results, "sentences")
    return [*notes, *(f"not probed: {reason}" for reason in results["left_out"])]


def draw(results: Results) -> Any:
    """A panel for each question."""
    panels: list[Panel] = [_draw_alignment]
    panels += [_probe_panel(number) for number in range(len(results["probes"]))]
    panels += [_draw_cosines, _draw_dimensions, _draw_entropy, _draw_targets, _draw_overlaps]
    rows = -(-len(panels) // COLUMNS)
    figure = new_figure(4.8 * COLUMNS, 4 * rows)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    grid = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        panel(axes, results)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    # One legend of colors for all panels, outside of them.
    handles = [figure.axes[0].plot([], [], "o-", color=color)[0] for color in COLORS]
    names = [model["model"] for model in results["models"]]
    title = f"{results['text']}: {results['words']:,} words in {results['sentences']:,} sentences"
    style: dict[str, Any] = {"frameon": False, "fontsize": 11, "title_fontsize": 11}
    figure.legend(handles, names, title=title, loc="outside upper center", ncols=2, **style)
    return figure


def _encoders_table(results: Results) -> Table:
    table = NumericTable(
        "", "blocks × width", "mean cosine", "dimensions used", "IsoScore", "entropy", "distance", "special "
        "tokens",
        title="last layers: isotropy and attention",
    )  # fmt: skip
    for model in results["models"]:
        isotropy = model["isotropy"][-1]
        attention = {name: float(np.mean(values[-1])) for name, values in model["attention"].items()}
        table.add_row(
            model["model"], f"{model['blocks']} × {model['hidden_size']}", f"{isotropy['cosine']:.3f}",
            f"{isotropy['participation']:.1f}", f"{isotropy['score']:.3f}",
            f"{attention['entropy']:.2f} of {attention['uniform']:.2f}", f"{attention['distance']:.1f}",
            f"{attention['first'] + attention['last']:.1%}",
        )  # fmt: skip
    return table


def _probes_table(results: Results) -> Table:
    """The best layer of each network."""
    title = "linear probes, each network's best layer on held-out sentences"
    table = NumericTable("probe", "", "encoder", "layer", "score", "selectivity", title=title, keys=3)
    for probe in results["probes"]:
        for number, (model, scores) in enumerate(zip(results["models"], probe["models"], strict=True)):
            best = int(np.argmax(scores["scores"]))
            table.add_row(
                "" if number else probe["name"], "" if number else probe["measure"], model["model"], str(best),
                format_with_interval(scores["scores"][best], scores["intervals"][best], 3),
                format_with_interval(scores["selectivities"][best], scores["selectivity_intervals"][best], 3),
            )  # fmt: skip
    return table


def _neighbor_tables(results: Results) -> Iterator[Table]:
    names = [f"nearest in {model['model']}" for model in results["models"]]
    neighbors = results["neighbours"]
    common = f"common of {neighbors['k']}"
    table = NumericTable("word", *names, common, title="nearest words of the last layers")
    for word in neighbors["of_words"]:
        nearest = [", ".join(map(_shorten, word[side][:SHOWN_NEIGHBORS])) for side in ("first", "second")]
        table.add_row(word["context"], *nearest, str(word["common"]))
    yield table
    table = NumericTable("sentence", *names, common, title="nearest sentences of the last layers (means of words)")
    for sentence in neighbors["of_sentences"]:
        nearest = [sentence["first"][0], sentence["second"][0]]
        table.add_row(sentence["sentence"], *nearest, str(sentence["common"]))
    yield table


def _format_percent(interval: Sequence[float]) -> str:
    return f"{format_interval([100 * end for end in interval], 1)}%"


def _shorten(word: str, longest: int = MAX_CHARACTERS) -> str:
    """Shorten a word, such as a long address, or the name of a folder."""
    return word if len(word) <= longest else f"{word[: longest - 1]}…"


def _shorten_names(results: Results, room: int) -> list[str]:
    """The networks' names, which share a number of characters in proportion to their blocks."""
    blocks = [model["blocks"] for model in results["models"]]
    widths = [max(2, room * count // sum(blocks) - 1) for count in blocks]
    return [_shorten(model["model"], width) for model, width in zip(results["models"], widths, strict=True)]


def _draw_alignment(axes: Any, results: Results) -> None:
    values = np.array(results["alignment"]["values"])
    counts = [model["blocks"] + 1 for model in results["models"]]
    image = axes.imshow(np.clip(values, 0, 1), vmin=0, vmax=1, cmap="viridis", origin="lower")
    border = counts[0] - 0.5
    axes.axhline(border, color="white", linewidth=2)
    axes.axvline(border, color="white", linewidth=2)
    layers = [str(layer) for count in counts for layer in range(count)]
    step = max(1, len(layers) // 10)
    ticks = [index for index, layer in enumerate(layers) if int(layer) % step == 0]
    axes.set_xticks(ticks, [layers[index] for index in ticks], fontsize=8)
    axes.set_yticks(ticks, [layers[index] for index in ticks], fontsize=8)
    if len(values) <= 10:
        for (row, column), value in np.ndenumerate(values):
            color = "black" if value > 0.6 else "white"
            text = f"{value:.2f}".replace("0.", ".")
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=8)
    axes.set(title="similarity of layers (CKA)")
    # Each network's name is next to its layers.
    for name, start, count, color in zip(_shorten_names(results, 42), (0, counts[0]), counts, COLORS, strict=True):
        middle = start + (count - 1) / 2
        style: dict[str, Any] = {"fontsize": 9, "color": color, "annotation_clip": False}
        axes.annotate(name, (middle, 0), (0, -20), ha="center", va="top",
                      xycoords=("data", "axes fraction"), textcoords="offset points", **style)  # fmt: skip
        axes.annotate(name, (0, middle), (-20, 0), ha="right", va="center", rotation=90,
                      xycoords=("axes fraction", "data"), textcoords="offset points", **style)  # fmt: skip
    axes.figure.colorbar(image, ax=axes, shrink=0.85)


def _probe_panel(number: int) -> Panel:
    def panel(axes: Any, results: Results) -> None:
        probe = results["probes"][number]
        for scores, color in zip(probe["models"], COLORS, strict=True):
            layers = np.arange(len(scores["scores"]))
            low, high = np.array(scores["intervals"]).T
            axes.fill_between(layers, low, high, color=color, alpha=0.2, linewidth=0)
            axes.plot(layers, scores["scores"], "o-", markersize=4, color=color)
            axes.plot(layers, scores["controls"], "--", linewidth=1, color=color)
        axes.plot([], [], "--", linewidth=1, color="grey", label="control task")
        if probe["majority"] is not None:
            axes.axhline(probe["majority"], color="grey", linestyle=":", linewidth=1, label="most frequent label")
        measure = "accuracy" if probe["measure"] == "accuracy" else "Spearman within a sentence"
        axes.set(title=f"probe: {probe['name']}", ylabel=measure)
        _finish_panel(axes)

    return panel


def _draw_isotropy(axes: Any, results: Results, key: str, title: str, label: str) -> None:
    for model, color in zip(results["models"], COLORS, strict=True):
        values = [layer[key] for layer in model["isotropy"]]
        axes.plot(values, "o-", markersize=4, color=color)
    axes.set(title=title, ylabel=label)
    _finish_panel(axes)


def _draw_cosines(axes: Any, results: Results) -> None:
    _draw_isotropy(axes, results, "cosine", "similarity of any two words", "mean cosine of all pairs")
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))


def _draw_dimensions(axes: Any, results: Results) -> None:
    _draw_isotropy(axes, results, "participation", "number of used dimensions", "participation ratio")
    axes.set_ylim(0, 1.05 * axes.dataLim.y1)  # the margin of the default limits is too small from 0


def _draw_entropy(axes: Any, results: Results) -> None:
    for side, (model, color) in enumerate(zip(results["models"], COLORS, strict=True)):
        heads = np.array(model["attention"]["entropy"])
        x = np.arange(1, len(heads) + 1) + (side - 0.5) * 0.16
        axes.plot(np.repeat(x, heads.shape[1]), heads.ravel(), "o", markersize=4, alpha=0.45, color=color)
        axes.plot(x, heads.mean(1), "-", color=color)
        uniform = np.mean(model["attention"]["uniform"])
        axes.axhline(uniform, color=color, linestyle=":", linewidth=1)
    axes.plot([], [], ":", color="grey", linewidth=1, label="uniform attention")
    axes.set(title="entropy of attention, a dot per head", ylabel="nats")
    axes.set_ylim(bottom=0)
    _finish_panel(axes, "block")


def _draw_targets(axes: Any, results: Results) -> None:
    """Stacked bars, the first network's blocks to the left of the second one's."""
    ticks: list[float] = []
    labels: list[str] = []
    start = 0
    for model, name, color in zip(results["models"], _shorten_names(results, 64), COLORS, strict=True):
        fractions = [np.mean(model["attention"][target], axis=1) for target in TARGETS]
        x, bottom = start + np.arange(model["blocks"]), np.zeros(model["blocks"])
        for fraction, fill in zip([*fractions, 1 - sum(fractions)], PALETTE, strict=True):
            axes.bar(x, fraction, bottom=bottom, color=fill, width=0.85)
            bottom = bottom + fraction
        ticks += [float(position) for position in x]
        labels += [str(block) for block in range(1, model["blocks"] + 1)]
        axes.text(x.mean(), 1.02, name, ha="center", va="bottom", fontsize=8, color=color)
        start += model["blocks"] + 1
    step = max(1, len(ticks) // 16)
    axes.set_xticks(ticks[::step], labels[::step], fontsize=8)
    for name, fill in zip([*TARGETS.values(), "other tokens"], PALETTE, strict=True):
        axes.bar([0], [0], color=fill, label=name)
    axes.set(ylim=(0, 1.12), xlabel="block", ylabel="fraction of attention", title="targets of attention")
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    _legend_below(axes)


def _draw_overlaps(axes: Any, results: Results) -> None:
    neighbors = results["neighbours"]
    values = np.array([layer["overlap"] for layer in neighbors["words"]])
    low, high = np.array([layer["interval"] for layer in neighbors["words"]]).T
    layers = np.arange(len(values))
    axes.errorbar(layers, values, (values - low, high - values), fmt="o-", markersize=4, capsize=3, color="C2",
                  label="words, layer by layer")  # fmt: skip
    last = neighbors["sentences"]
    errors = [[last["overlap"] - last["interval"][0]], [last["interval"][1] - last["overlap"]]]
    axes.errorbar([layers[-1] + 0.15], [last["overlap"]], errors, fmt="s", markersize=5, capsize=3, color="C4",
                  label="sentences, last layers")  # fmt: skip
    axes.axhline(neighbors["chance"], color="C2", linestyle=":", linewidth=1)
    axes.axhline(neighbors["chance_of_sentences"], color="C4", linestyle=":", linewidth=1)
    axes.plot([], [], ":", color="grey", linewidth=1, label="chance")
    axes.set(title=f"common among the {neighbors['k']} nearest", ylabel="fraction")
    axes.set_ylim(bottom=0)
    _finish_panel(axes)


def _finish_panel(axes: Any, xlabel: str = "layer") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    _legend_below(axes)


def _legend_below(axes: Any) -> None:
    """The legend of lines and fills below a panel, where it covers nothing."""
    if axes.get_legend_handles_labels()[1]:
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 3}
        axes.legend(frameon=False, fontsize=8, **below)
