"""What `electra analyze generator` found, as tables and as a picture: what is proposed for masked tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts
from electra.reports.figures import new_figure
from electra.reports.tables import NumericTable, format_with_interval

TITLE = "What the generator proposes"
SHOWS = (
    "how often the original is proposed and what fakes are, by how common the token is; whether probabilities are "
    "right as often as they say; and the same over training, or by masked share and temperature"
)

Part = Mapping[str, Any]

OF_READINGS = ("", "step", "share", "T")
"""Columns that say of what a row is."""


def tables(facts: Facts) -> list[Table]:
    """All readings; what fakes are like; by frequency band; examples."""
    found = [_overall(facts), _fakes(facts)]
    last = _last(facts)
    found.append(_bands(last))
    return [*found, *_examples(last)]


def notes(facts: Facts) -> list[str]:
    """What was masked, and how to read the figures."""
    found = [
        f"{facts['texts']} stretches of held-out text of {facts['data']}, {facts['tokens']:,} tokens, at most "
        f"{facts['length']} each; intervals: 95 %, {facts['resamples']} resamples of the texts",
        "same: how often a draw would be the original, which is then no fake; special: the probability of special "
        "and unknown tokens; calib.: calibration, the mean distance between the likeliest token's probability and "
        "how often it is right",
        "like the original: of all fakes (by probability, not of one draw) those of the same tag, first letter "
        "and so on; in brackets how many would be if fakes were drawn by frequency alone",
        "different and entropy: how many different tokens fakes are, and how evenly used, beside those they "
        "replaced (of as many)",
    ]
    if not facts["tags"]:
        found.append("the data have no tags; `electra data tags` makes them, and then likeness of tags is shown")
    alone = [name for name, steps in _steps(facts).items() if len(steps) == 1 and steps[0] is not None]
    if alone:
        found.append(
            f"{', '.join(alone)}: one checkpoint, so nothing over training; checkpoint.milestone_every keeps more"
        )
    return found


def _overall(facts: Facts) -> Table:
    columns = ("loss, 95 %", "perpl.", "entropy", "same", "top 1", "5", "10", "50", "calib.", "special")
    table = NumericTable(*OF_READINGS, *columns, title="the original", keys=len(OF_READINGS))
    for model, one in _readings(facts):
        loss = one["loss"]
        table.add_row(
            *_named(model, one), format_with_interval(loss["value"], (loss["low"], loss["high"]), 2),
            _short_number(one["perplexity"]), f"{one['entropy']['value']:.2f}", f"{one['original']['value']:.1%}",
            *(f"{one[f'top_{k}']['value']:.1%}" for k in (1, 5, 10, 50)),
            f"{one['calibration']['error']:.3f}", f"{one['special']:.2%}",
        )  # fmt: skip
    return table


def _fakes(facts: Facts) -> Table:
    ways = [one["name"] for one in facts["models"][0]["readings"][0]["alike"]]
    title = "fakes: like the original (by frequency alone), and their diversity (of what they replaced)"
    columns = (*OF_READINGS, *(f"same {way}" for way in ways), "different", "entropy")
    table = NumericTable(*columns, title=title, keys=len(OF_READINGS))
    for model, one in _readings(facts):
        many = one["diversity"]
        table.add_row(
            *_named(model, one), *(f"{_share(way['fakes'])} ({_share(way['chance'])})" for way in one["alike"]),
            f"{many['distinct_fakes']:,} ({many['distinct_text']:,})",
            f"{many['entropy_fakes']:.2f} ({many['entropy_text']:.2f})",
        )  # fmt: skip
    return table


def _named(model: Part, one: Part) -> tuple[str, ...]:
    step = "" if model["step"] is None else f"{model['step']:,}"
    return model["model"], step, f"{one['share']:g}", f"{one['temperature']:g}"


def _bands(model: Part) -> Table:
    one = model["readings"][0]
    columns = (
        "original", "tokens", "loss", "entropy", "same", "top 1", "5", "10", "50", "of the fakes",
        "of the replaced",
    )  # fmt: skip
    title = f"{_label(model)}: by how common the original is (share {one['share']:g}, T {one['temperature']:g})"
    table = NumericTable(*columns, title=title)
    for band in one["bands"]:
        table.add_row(
            band["name"], f"{band['tokens']:,}", _number(band["loss"]), _number(band["entropy"]),
            _share(band["original"]), *(_share(band[f"top_{k}"]) for k in (1, 5, 10, 50)),
            _share(band["share_of_fakes"]), _share(band["share_of_replaced"]),
        )  # fmt: skip
    return table


def _examples(model: Part) -> Iterator[Table]:
    for example in model["examples"]:
        table = NumericTable("was", "with probability", "proposed", title=example["text"])
        for mask in example["masks"]:
            proposed = ", ".join(f"{token} {value:.2f}" for token, value in mask["proposals"])
            table.add_row(mask["original"], f"{mask['probability']:.3f}", proposed)
        yield table


def figure(facts: Facts) -> Any:
    """Four pictures: by frequency, calibration, bands of fakes, and over training or by setting."""
    drawing = new_figure(12, 8)
    (by_band, calibrated), (of_fakes, over) = drawing.subplots(2, 2)
    shown = [model for model in facts["models"] if model is _last_of(facts, model["model"])]
    bands = [one["name"] for one in _last(facts)["readings"][0]["bands"]]
    for number, model in enumerate(shown):
        _frequency(by_band, model, f"C{number % 10}", bands)
        _calibration(calibrated, model, f"C{number % 10}")
    by_band.set(title="the original, by how common it is", ylabel="share of masked tokens", ylim=(0, None))
    by_band.set_xticks(range(len(bands)), [_short(name) for name in bands], fontsize=8)
    calibrated.axline((0, 0), slope=1, color="0.6", linestyle=":")
    calibrated.set(title="the likeliest token", xlabel="its probability", ylabel="how often it is right")
    _proposed(of_fakes, shown, bands)
    if any(len(steps) > 1 for steps in _steps(facts).values()):
        _training(over, facts)
    else:
        _settings(over, shown)
    for axes in (by_band, calibrated, of_fakes, over):
        axes.grid(alpha=0.3)
        if axes.get_legend() is None:
            axes.legend(frameon=False, fontsize=8)
    title = f"held-out text of {facts['data']}, {facts['tokens']:,} tokens"
    drawing.suptitle(title, fontsize=10)
    return drawing


def _frequency(axes: Any, model: Part, color: str, bands: list[str]) -> None:
    """How often a draw is the original, and the likeliest token."""
    for key, style, says in (("original", "o-", "a draw is the original"), ("top_1", "s--", "the likeliest is")):
        found = {one["name"]: one[key] for one in model["readings"][0]["bands"] if one[key] is not None}
        x = [bands.index(name) for name in found if name in bands]
        y = [value for name, value in found.items() if name in bands]
        axes.plot(x, y, style, color=color, markersize=4, label=f"{_label(model)}: {says}")


def _calibration(axes: Any, model: Part, color: str) -> None:
    """One point a bin; all have as many tokens."""
    found = model["readings"][0]["calibration"]
    x, y = [each["probability"] for each in found["bins"]], [each["right"] for each in found["bins"]]
    axes.plot(
        x, y, "o-", color=color, markersize=5, alpha=0.8, label=f"{_label(model)}: error {found['error']:.3f}"
    )


def _proposed(axes: Any, shown: list[Part], bands: list[str]) -> None:
    """What the fakes are, beside what they replaced."""
    width = 0.8 / (len(shown) + 1)
    first = {one["name"]: one["share_of_replaced"] for one in shown[-1]["readings"][0]["bands"]}
    x = range(len(bands))
    axes.bar(x, [first.get(name, 0) for name in bands], width, color="0.7", label="what they replaced")
    for number, model in enumerate(shown):
        found = {one["name"]: one["share_of_fakes"] for one in model["readings"][0]["bands"]}
        left = [place + (number + 1) * width for place in x]
        heights = [found.get(name, 0) for name in bands]
        axes.bar(left, heights, width, color=f"C{number % 10}", label=f"fakes of {_label(model)}")
    axes.set_xticks([place + width * len(shown) / 2 for place in x], [_short(name) for name in bands], fontsize=8)
    axes.set(title="how common fakes are", ylabel="share")


CURVES = (("top_1", "likeliest is the original", "s--"), ("original", "a draw is the original", "o-"))


def _training(axes: Any, facts: Facts) -> None:
    """By step: how often the original is proposed, and on the right the perplexity."""
    right = axes.twinx()
    for number, name in enumerate(_steps(facts)):
        models = [model for model in facts["models"] if model["model"] == name and model["step"] is not None]
        x = [model["step"] for model in models]
        for key, says, style in CURVES:
            values = [model["readings"][0][key] for model in models]
            y = [one["value"] for one in values]
            spread = [
                [one["value"] - one["low"] for one in values],
                [one["high"] - one["value"] for one in values],
            ]
            axes.errorbar(
                x, y, spread, fmt=style, color=f"C{number % 10}", markersize=4, capsize=2, label=f"{name}: {says}"
            )
        perplexities = [model["readings"][0]["perplexity"] for model in models]
        right.plot(x, perplexities, "^:", color=f"C{number % 10}", markersize=4)
        axes.plot([], [], "^:", color=f"C{number % 10}", markersize=4, label=f"{name}: perplexity (right)")
    axes.set(title="over training", xlabel="step", ylabel="share of masked tokens")
    right.set_ylabel("perplexity")
    # Left to itself the legend would stand on the curves of the right axis, which it does not know of.
    for one in (axes, right):
        low, high = one.get_ylim()
        one.set_ylim(low, high + (high - low) / 2)
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def _settings(axes: Any, shown: list[Part]) -> None:
    """By masked share and temperature: bars of how often a draw is the original, and the likeliest token."""
    places: list[str] = []
    bars = []
    for number, model in enumerate(shown):
        for one in model["readings"]:
            places.append(f"{_label(model)}\n{one['share']:g}, T {one['temperature']:g}")
            bars.append((number, [one["original"]["value"], *(one[f"top_{k}"]["value"] for k in (1, 5, 10, 50))]))
    names = ("a draw", "top 1", "top 5", "top 10", "top 50")
    for column, name in enumerate(names):
        x = [place + column * 0.16 for place in range(len(bars))]
        axes.bar(x, [heights[column] for _, heights in bars], 0.16, color=f"C{column}", label=name)
    axes.set_xticks([place + 0.32 for place in range(len(bars))], places, fontsize=8)
    axes.set(title="the original is proposed, by masked share and temperature", ylabel="share of masked tokens")


def _readings(facts: Facts) -> Iterator[tuple[Part, Part]]:
    return ((model, one) for model in facts["models"] for one in model["readings"])


def _steps(facts: Facts) -> dict[str, list[int | None]]:
    """Of each model the steps that were measured."""
    found: dict[str, list[int | None]] = {}
    for model in facts["models"]:
        found.setdefault(model["model"], []).append(model["step"])
    return found


def _last(facts: Facts) -> Part:
    return _last_of(facts, facts["models"][0]["model"])


def _last_of(facts: Facts, name: str) -> Part:
    """A model as it was measured last."""
    last: Part = [model for model in facts["models"] if model["model"] == name][-1]
    return last


def _label(model: Part) -> str:
    return str(model["model"]) if model["step"] is None else f"{model['model']} step {model['step']:,}"


def _short(band: str) -> str:
    return band.replace(",000", "k")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _short_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
