"""What `electra analyze compare` found, as tables and as a picture: two encoders side by side."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from electra.reports.analysis import Facts, count_of
from electra.reports.figures import new_figure
from electra.reports.notes import windowed_notes
from electra.reports.tables import NumericTable, format_interval, format_with_interval

TITLE = "Two encoders side by side"
SHOWS = "how alike the layers are, what can be read off them, how they fill their space, and where attention looks"

COLORS = ("C0", "C1")
SHOWN = 6
"""Words of a row of the table."""
LONGEST = 24
"""Characters of each."""
SHARES = {"first": "special, in front", "last": "special, behind", "previous": "previous", "self": "itself",
          "next": "next"}  # fmt: skip
PALETTE = ("#4c566a", "#8f9bb3", "#5ba3cf", "#f2b134", "#e07b54", "#e6e6e6")
Panel = Callable[[Any, Facts], None]


def tables(facts: Facts) -> list[Table]:
    """Of each network its last layer; probes; neighbours."""
    return [_encoders(facts), *([_probes(facts)] if facts["probes"] else []), *_neighbours(facts)]


def notes(facts: Facts) -> list[str]:
    """How alike they are, and what was read."""
    found, near = facts["alignment"], facts["neighbours"]
    first, second = (model["model"] for model in facts["models"])
    last = near["words"][-1]
    here, there = found["best_layers"]
    lines = [
        f"last layers: CKA {found['last']:.3f} (standard error {found['standard_error']:.3f}); most alike are "
        f"layer {here} of {first} and layer {there} of {second}: {found['best']:.3f}",
        *(
            f"{probe['name']}: {second} less {first} "
            f"{format_with_interval(probe['difference'], probe['interval'], 3, sign=True)}"
            for probe in facts["probes"]
        ),
        f"of a word's {near['k']} nearest other words {last['overlap']:.1%} are the same in the last layers "
        f"({_percents(last['interval'])}; by chance {near['chance']:.1%}), of a sentence's "
        f"{near['sentences']['overlap']:.1%} ({_percents(near['sentences']['interval'])}; by chance "
        f"{near['chance_of_sentences']:.1%})",
        f"{facts['text']}: {facts['words']:,} words of {facts['forms']:,} forms in {facts['sentences']:,} "
        f"sentences, drawn with seed {facts['seed']}; intervals: 95 % over sentences; layer 0: embeddings",
    ]
    if facts["without_tokens"]:
        left_out = count_of(facts["without_tokens"], "word")
        lines.append(f"{left_out} left out, for which one of the tokenizers has no token")
    lines += windowed_notes(facts, "sentences")
    return [*lines, *(f"not probed: {reason}" for reason in facts["left_out"])]


def figure(facts: Facts) -> Any:
    """A panel for each question."""
    panels: list[Panel] = [_alignment]
    panels += [_of_probe(number) for number in range(len(facts["probes"]))]
    panels += [_cosines, _dimensions, _entropy, _looks, _overlaps]
    columns = 3
    rows = -(-len(panels) // columns)
    drawing = new_figure(4.8 * columns, 4 * rows)
    drawing.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    places = drawing.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(places, panels, strict=False):
        panel(axes, facts)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    # One key to the colours for all panels, outside of them, so that it lies over nothing.
    colours = [drawing.axes[0].plot([], [], "o-", color=color)[0] for color in COLORS]
    names = [model["model"] for model in facts["models"]]
    title = f"{facts['text']}: {facts['words']:,} words in {facts['sentences']:,} sentences"
    style: dict[str, Any] = {"frameon": False, "fontsize": 11, "title_fontsize": 11}
    drawing.legend(colours, names, title=title, loc="outside upper center", ncols=2, **style)
    return drawing


def _encoders(facts: Facts) -> Table:
    table = _table(
        "last layers: how states fill their space, where attention looks",
        "", "blocks × width", "mean cosine", "dimensions used", "IsoScore", "entropy", "distance",
        "special tokens",
    )  # fmt: skip
    for model in facts["models"]:
        space = model["isotropy"][-1]
        looks = {name: float(np.mean(values[-1])) for name, values in model["attention"].items()}
        table.add_row(
            model["model"], f"{model['blocks']} × {model['hidden_size']}", f"{space['cosine']:.3f}",
            f"{space['participation']:.1f}", f"{space['score']:.3f}",
            f"{looks['entropy']:.2f} of {looks['uniform']:.2f}", f"{looks['distance']:.1f}",
            f"{looks['first'] + looks['last']:.1%}",
        )  # fmt: skip
    return table


def _probes(facts: Facts) -> Table:
    """Of each network its best layer."""
    table = _table(
        "linear probes, each network's best layer on held-out sentences",
        "probe", "", "encoder", "layer", "score", "selectivity", keys=3,
    )  # fmt: skip
    for probe in facts["probes"]:
        for number, (model, found) in enumerate(zip(facts["models"], probe["models"], strict=True)):
            best = int(np.argmax(found["scores"]))
            table.add_row(
                "" if number else probe["name"], "" if number else probe["measure"], model["model"], str(best),
                format_with_interval(found["scores"][best], found["intervals"][best], 3),
                format_with_interval(found["selectivities"][best], found["selectivity_intervals"][best], 3),
            )  # fmt: skip
    return table


def _neighbours(facts: Facts) -> Iterator[Table]:
    names = [f"nearest in {model['model']}" for model in facts["models"]]
    found = facts["neighbours"]
    common = f"common of {found['k']}"
    table = _table("nearest words of the last layers", "word", *names, common)
    for one in found["of_words"]:
        near = [", ".join(map(_shortened, one[side][:SHOWN])) for side in ("first", "second")]
        table.add_row(one["context"], *near, str(one["common"]))
    yield table
    table = _table("nearest sentences of the last layers (means of words)", "sentence", *names, common)
    for one in found["of_sentences"]:
        table.add_row(one["sentence"], one["first"][0], one["second"][0], str(one["common"]))
    yield table


def _table(title: str, *columns: str, keys: int = 1) -> Table:
    return NumericTable(*columns, title=title, keys=keys)


def _percents(interval: Sequence[float]) -> str:
    return f"{format_interval([100 * end for end in interval], 1)}%"


def _shortened(word: str, longest: int = LONGEST) -> str:
    """An address may be as long as the screen is wide, and a folder's name as a picture."""
    return word if len(word) <= longest else f"{word[: longest - 1]}…"


def _names_in(facts: Facts, room: int) -> list[str]:
    """The networks' names beside each other where there is room for so many characters, by how deep each is."""
    blocks = [model["blocks"] for model in facts["models"]]
    rooms = [max(2, room * count // sum(blocks) - 1) for count in blocks]
    return [_shortened(model["model"], width) for model, width in zip(facts["models"], rooms, strict=True)]


def _alignment(axes: Any, facts: Facts) -> None:
    values = np.array(facts["alignment"]["values"])
    counts = [model["blocks"] + 1 for model in facts["models"]]
    image = axes.imshow(np.clip(values, 0, 1), vmin=0, vmax=1, cmap="viridis", origin="lower")
    border = counts[0] - 0.5
    axes.axhline(border, color="white", linewidth=2)
    axes.axvline(border, color="white", linewidth=2)
    layers = [str(layer) for count in counts for layer in range(count)]
    step = max(1, len(layers) // 10)
    places = [place for place, layer in enumerate(layers) if int(layer) % step == 0]
    axes.set_xticks(places, [layers[place] for place in places], fontsize=8)
    axes.set_yticks(places, [layers[place] for place in places], fontsize=8)
    if len(values) <= 10:
        for (row, column), value in np.ndenumerate(values):
            color = "black" if value > 0.6 else "white"
            said = f"{value:.2f}".replace("0.", ".")
            axes.text(column, row, said, ha="center", va="center", color=color, fontsize=8)
    axes.set(title="how alike the layers are (CKA)")
    # Each name stands beside its own layers.
    for name, start, count, color in zip(_names_in(facts, 42), (0, counts[0]), counts, COLORS, strict=True):
        middle = start + (count - 1) / 2
        style: dict[str, Any] = {"fontsize": 9, "color": color, "annotation_clip": False}
        axes.annotate(name, (middle, 0), (0, -20), ha="center", va="top",
                      xycoords=("data", "axes fraction"), textcoords="offset points", **style)  # fmt: skip
        axes.annotate(name, (0, middle), (-20, 0), ha="right", va="center", rotation=90,
                      xycoords=("axes fraction", "data"), textcoords="offset points", **style)  # fmt: skip
    axes.figure.colorbar(image, ax=axes, shrink=0.85)


def _of_probe(number: int) -> Panel:
    def panel(axes: Any, facts: Facts) -> None:
        probe = facts["probes"][number]
        for found, color in zip(probe["models"], COLORS, strict=True):
            layers = np.arange(len(found["scores"]))
            low, high = np.array(found["intervals"]).T
            axes.fill_between(layers, low, high, color=color, alpha=0.2, linewidth=0)
            axes.plot(layers, found["scores"], "o-", markersize=4, color=color)
            axes.plot(layers, found["controls"], "--", linewidth=1, color=color)
        axes.plot([], [], "--", linewidth=1, color="grey", label="control task")
        if probe["majority"] is not None:
            axes.axhline(probe["majority"], color="grey", linestyle=":", linewidth=1, label="commonest label")
        measure = "accuracy" if probe["measure"] == "accuracy" else "Spearman within a sentence"
        axes.set(title=f"probe: {probe['name']}", ylabel=measure)
        _finish(axes)

    return panel


def _lines(axes: Any, facts: Facts, key: str, title: str, label: str) -> None:
    for model, color in zip(facts["models"], COLORS, strict=True):
        values = [layer[key] for layer in model["isotropy"]]
        axes.plot(values, "o-", markersize=4, color=color)
    axes.set(title=title, ylabel=label)
    _finish(axes)


def _cosines(axes: Any, facts: Facts) -> None:
    _lines(axes, facts, "cosine", "how alike any two words are", "mean cosine of all pairs")
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))


def _dimensions(axes: Any, facts: Facts) -> None:
    _lines(axes, facts, "participation", "how many dimensions are used", "participation ratio")
    axes.set_ylim(bottom=0)


def _entropy(axes: Any, facts: Facts) -> None:
    for side, (model, color) in enumerate(zip(facts["models"], COLORS, strict=True)):
        heads = np.array(model["attention"]["entropy"])
        blocks = np.arange(1, len(heads) + 1)
        aside = blocks + (side - 0.5) * 0.16
        axes.plot(np.repeat(aside, heads.shape[1]), heads.ravel(), "o", markersize=4, alpha=0.45, color=color)
        axes.plot(aside, heads.mean(1), "-", color=color)
        uniform = np.mean(model["attention"]["uniform"])
        axes.axhline(uniform, color=color, linestyle=":", linewidth=1)
    axes.plot([], [], ":", color="grey", linewidth=1, label="everywhere alike")
    axes.set(title="entropy of attention, a dot a head", ylabel="nats")
    axes.set_ylim(bottom=0)
    _finish(axes, "block")


def _looks(axes: Any, facts: Facts) -> None:
    """Bars of shares, the first network's blocks left of the second's."""
    ticks: list[float] = []
    labels: list[str] = []
    start = 0
    for model, name_shown, own in zip(facts["models"], _names_in(facts, 64), COLORS, strict=True):
        shares = [np.mean(model["attention"][name], axis=1) for name in SHARES]
        places, bottom = start + np.arange(model["blocks"]), np.zeros(model["blocks"])
        for share, color in zip([*shares, 1 - sum(shares)], PALETTE, strict=True):
            axes.bar(places, share, bottom=bottom, color=color, width=0.85)
            bottom = bottom + share
        ticks += [float(place) for place in places]
        labels += [str(block) for block in range(1, model["blocks"] + 1)]
        axes.text(places.mean(), 1.02, name_shown, ha="center", va="bottom", fontsize=8, color=own)
        start += model["blocks"] + 1
    step = max(1, len(ticks) // 16)
    axes.set_xticks(ticks[::step], labels[::step], fontsize=8)
    for name, color in zip([*SHARES.values(), "elsewhere"], PALETTE, strict=True):
        axes.bar([0], [0], color=color, label=name)
    axes.set(ylim=(0, 1.12), xlabel="block", ylabel="share of attention", title="where a token looks")
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    _key_below(axes)


def _overlaps(axes: Any, facts: Facts) -> None:
    near = facts["neighbours"]
    values = np.array([one["overlap"] for one in near["words"]])
    low, high = np.array([one["interval"] for one in near["words"]]).T
    layers = np.arange(len(values))
    axes.errorbar(layers, values, (values - low, high - values), fmt="o-", markersize=4, capsize=3, color="C2",
                  label="words, layer beside layer")  # fmt: skip
    last = near["sentences"]
    around = [[last["overlap"] - last["interval"][0]], [last["interval"][1] - last["overlap"]]]
    axes.errorbar([layers[-1] + 0.15], [last["overlap"]], around, fmt="s", markersize=5, capsize=3, color="C4",
                  label="sentences, last layers")  # fmt: skip
    axes.axhline(near["chance"], color="C2", linestyle=":", linewidth=1)
    axes.axhline(near["chance_of_sentences"], color="C4", linestyle=":", linewidth=1)
    axes.plot([], [], ":", color="grey", linewidth=1, label="by chance")
    axes.set(title=f"common among the {near['k']} nearest", ylabel="share")
    axes.set_ylim(bottom=0)
    _finish(axes)


def _finish(axes: Any, what: str = "layer") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(what)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    _key_below(axes)


def _key_below(axes: Any) -> None:
    """What lines and colours mean, below a panel, where it covers nothing; the networks' are above all panels."""
    if axes.get_legend_handles_labels()[1]:
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 3}
        axes.legend(frameon=False, fontsize=8, **below)
