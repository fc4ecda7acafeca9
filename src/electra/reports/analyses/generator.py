"""The results of `electra analyze generator` as tables and as a figure: what is proposed for masked tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results
from electra.reports.figures import BEST_PLACE, new_figure
from electra.reports.tables import NumericTable, format_with_interval

TITLE = "The generator's proposals"
FIGURE_DESCRIPTION = (
    "accuracy and fakes by the frequency of tokens, calibration, and the same over training, or by masked "
    "fraction and temperature"
)

Part = Mapping[str, Any]

KEYS = ("", "step", "share", "T")
"""The columns that identify a row: model, step, masked fraction, temperature."""
TOP = (1, 5, 10, 50)


def build_tables(results: Results) -> list[Table]:
    """All readings; properties of fakes; frequency bands; examples."""
    last = _last(results, results["models"][0]["model"])
    return [_original_table(results), _fakes_table(results), _bands_table(last), *_example_tables(last)]


def build_notes(results: Results) -> list[str]:
    """What was masked, and how to read the numbers."""
    notes = [
        f"{results['texts']} segments of held-out text of {results['data']}, {results['tokens']:,} tokens, at "
        f"most {results['length']} each; intervals: 95%, {results['resamples']} resamples of the texts",
        "share: masked fraction; T: temperature; same: how often a sample equals the original, which is then no "
        "fake; special: the probability of special and unknown tokens; calib.: calibration error, the mean "
        "distance between the most probable token's probability and its accuracy",
        "same tag, same first letter and so on: the fraction of fakes that have it in common with the original "
        "(by probability, not of one sample); in brackets: the same if fakes were sampled by frequency alone",
        "distinct and entropy: the number of distinct fakes and how evenly they are used; in brackets: the same "
        "of the equally many tokens that they replaced",
    ]
    if not results["tags"]:
        notes.append("the data has no tags; create them with `electra data tags` to compare the tags of fakes")
    alone = [name for name, steps in _steps(results).items() if len(steps) == 1 and steps[0] is not None]
    if alone:
        notes.append(
            f"{', '.join(alone)}: there is only one checkpoint, so training cannot be shown; "
            "checkpoint.milestone_every keeps more"
        )
    return notes


def _original_table(results: Results) -> Table:
    top = ("top 1", *(str(k) for k in TOP[1:]))
    columns = ("loss, 95%", "perpl.", "entropy", "same", *top, "calib.", "special")
    table = NumericTable(*KEYS, *columns, title="the original", keys=len(KEYS))
    for model, reading in _readings(results):
        loss, perplexity = reading["loss"], reading["perplexity"]
        table.add_row(
            *_key_cells(model, reading), format_with_interval(loss["value"], (loss["low"], loss["high"]), 2),
            f"{perplexity:,.0f}" if perplexity >= 100 else f"{perplexity:.1f}",
            f"{reading['entropy']['value']:.2f}", f"{reading['original']['value']:.1%}",
            *(f"{reading[f'top_{k}']['value']:.1%}" for k in TOP),
            f"{reading['calibration']['error']:.3f}", f"{reading['special']:.2%}",
        )  # fmt: skip
    return table


def _fakes_table(results: Results) -> Table:
    classes = [classes["name"] for classes in results["models"][0]["readings"][0]["alike"]]
    title = "fakes: similarity to the original (by frequency alone), and diversity (of the replaced tokens)"
    columns = (*KEYS, *(f"same {name}" for name in classes), "distinct", "entropy")
    table = NumericTable(*columns, title=title, keys=len(KEYS))
    for model, reading in _readings(results):
        diversity = reading["diversity"]
        similarity = (f"{_percent(same['fakes'])} ({_percent(same['chance'])})" for same in reading["alike"])
        table.add_row(
            *_key_cells(model, reading), *similarity,
            f"{diversity['distinct_fakes']:,} ({diversity['distinct_text']:,})",
            f"{diversity['entropy_fakes']:.2f} ({diversity['entropy_text']:.2f})",
        )  # fmt: skip
    return table


def _key_cells(model: Part, reading: Part) -> tuple[str, ...]:
    step = "" if model["step"] is None else f"{model['step']:,}"
    return model["model"], step, f"{reading['share']:g}", f"{reading['temperature']:g}"


def _bands_table(model: Part) -> Table:
    reading = model["readings"][0]
    columns = (
        "original", "tokens", "loss", "entropy", "same", "top 1", *(str(k) for k in TOP[1:]), "of the fakes",
        "of the replaced",
    )  # fmt: skip
    title = (
        f"{_label(model)}: by frequency of the original (share {reading['share']:g}, T {reading['temperature']:g})"
    )
    table = NumericTable(*columns, title=title)
    for band in reading["bands"]:
        table.add_row(
            band["name"], f"{band['tokens']:,}", _number(band["loss"]), _number(band["entropy"]),
            _percent(band["original"]), *(_percent(band[f"top_{k}"]) for k in TOP),
            _percent(band["share_of_fakes"]), _percent(band["share_of_replaced"]),
        )  # fmt: skip
    return table


def _example_tables(model: Part) -> Iterator[Table]:
    for example in model["examples"]:
        table = NumericTable("original", "probability", "proposals", title=example["text"])
        for mask in example["masks"]:
            proposals = ", ".join(f"{token} {value:.2f}" for token, value in mask["proposals"])
            table.add_row(mask["original"], f"{mask['probability']:.3f}", proposals)
        yield table


def draw(results: Results) -> Any:
    """Four panels: by frequency, calibration, bands of fakes, and over training or by setting."""
    figure = new_figure(12, 8)
    (by_band, calibration), (of_fakes, over) = figure.subplots(2, 2)
    models = [model for model in results["models"] if model is _last(results, model["model"])]
    bands = [band["name"] for band in models[0]["readings"][0]["bands"]]
    for number, model in enumerate(models):
        _draw_by_band(by_band, model, f"C{number % 10}", bands)
        _draw_calibration(calibration, model, f"C{number % 10}")
    by_band.set(
        title="prediction of the original, by its frequency", ylabel="fraction of masked tokens", ylim=(0, None)
    )
    by_band.set_xticks(range(len(bands)), [_shorten(name) for name in bands], fontsize=8)
    calibration.axline((0, 0), slope=1, color="0.6", linestyle=":")
    calibration.set(title="calibration of the most probable token", xlabel="probability", ylabel="accuracy")
    _draw_fakes(of_fakes, models, bands)
    if any(len(steps) > 1 for steps in _steps(results).values()):
        _draw_training(over, results)
    else:
        _draw_settings(over, models)
    for axes in (by_band, calibration, of_fakes, over):
        axes.grid(alpha=0.3)
        if axes.get_legend() is None:
            axes.legend(frameon=False, fontsize=8, **BEST_PLACE)
    figure.suptitle(f"held-out text of {results['data']}, {results['tokens']:,} tokens", fontsize=10)
    return figure


def _draw_by_band(axes: Any, model: Part, color: str, bands: list[str]) -> None:
    for key, style, label in (
        ("original", "o-", "a sample is correct"),
        ("top_1", "s--", "the top token is correct"),
    ):
        values = {band["name"]: band[key] for band in model["readings"][0]["bands"] if band[key] is not None}
        x = [bands.index(name) for name in values if name in bands]
        y = [value for name, value in values.items() if name in bands]
        axes.plot(x, y, style, color=color, markersize=4, label=f"{_label(model)}: {label}")


def _draw_calibration(axes: Any, model: Part, color: str) -> None:
    """A point for each bin; all bins have equally many tokens."""
    calibration = model["readings"][0]["calibration"]
    x, y = ([part[key] for part in calibration["bins"]] for key in ("probability", "right"))
    label = f"{_label(model)}: error {calibration['error']:.3f}"
    axes.plot(x, y, "o-", color=color, markersize=5, alpha=0.8, label=label)


def _draw_fakes(axes: Any, models: list[Part], bands: list[str]) -> None:
    """The frequency bands of fakes, next to those of the tokens that they replaced."""
    width = 0.8 / (len(models) + 1)
    replaced = {band["name"]: band["share_of_replaced"] for band in models[-1]["readings"][0]["bands"]}
    x = range(len(bands))
    axes.bar(x, [replaced.get(name, 0) for name in bands], width, color="0.7", label="replaced tokens")
    for number, model in enumerate(models):
        fakes = {band["name"]: band["share_of_fakes"] for band in model["readings"][0]["bands"]}
        left = [index + (number + 1) * width for index in x]
        heights = [fakes.get(name, 0) for name in bands]
        axes.bar(left, heights, width, color=f"C{number % 10}", label=f"fakes of {_label(model)}")
    axes.set_xticks(
        [index + width * len(models) / 2 for index in x], [_shorten(name) for name in bands], fontsize=8
    )
    axes.set(title="frequency bands of fakes", ylabel="fraction")


CURVES = (("top_1", "top token is correct", "s--"), ("original", "a sample is correct", "o-"))


def _draw_training(axes: Any, results: Results) -> None:
    """Accuracy by step, and perplexity on the right axis."""
    right = axes.twinx()
    for number, name in enumerate(_steps(results)):
        models = [model for model in results["models"] if model["model"] == name and model["step"] is not None]
        x, style = [model["step"] for model in models], {"color": f"C{number % 10}", "markersize": 4}
        for key, label, fmt in CURVES:
            values = [model["readings"][0][key] for model in models]
            errors = [
                [value["value"] - value["low"] for value in values],
                [value["high"] - value["value"] for value in values],
            ]
            y = [value["value"] for value in values]
            axes.errorbar(x, y, errors, fmt=fmt, capsize=2, label=f"{name}: {label}", **style)
        perplexities = [model["readings"][0]["perplexity"] for model in models]
        right.plot(x, perplexities, "^:", **style)
        axes.plot([], [], "^:", label=f"{name}: perplexity (right)", **style)
    axes.set(title="over training", xlabel="step", ylabel="fraction of masked tokens")
    right.set_ylabel("perplexity")
    # Room for the legend above the curves: its automatic place would ignore those of the right axis.
    for side in (axes, right):
        low, high = side.get_ylim()
        side.set_ylim(low, high + (high - low) / 2)
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def _draw_settings(axes: Any, models: list[Part]) -> None:
    """Accuracy by masked fraction and temperature: bars for samples and for the top tokens."""
    labels, bars = [], []
    for model in models:
        for reading in model["readings"]:
            labels.append(f"{_label(model)}\n{reading['share']:g}, T {reading['temperature']:g}")
            bars.append([reading["original"]["value"], *(reading[f"top_{k}"]["value"] for k in TOP)])
    for column, name in enumerate(("sample", *(f"top {k}" for k in TOP))):
        x = [index + column * 0.16 for index in range(len(bars))]
        axes.bar(x, [heights[column] for heights in bars], 0.16, color=f"C{column}", label=name)
    axes.set_xticks([index + 0.32 for index in range(len(bars))], labels, fontsize=8)
    axes.set(
        title="prediction of the original, by masked fraction and temperature", ylabel="fraction of masked tokens"
    )


def _readings(results: Results) -> Iterator[tuple[Part, Part]]:
    return ((model, reading) for model in results["models"] for reading in model["readings"])


def _steps(results: Results) -> dict[str, list[int | None]]:
    """The measured steps of each model."""
    steps: dict[str, list[int | None]] = {}
    for model in results["models"]:
        steps.setdefault(model["model"], []).append(model["step"])
    return steps


def _last(results: Results, name: str) -> Part:
    """The last measured step of a model."""
    last: Part = [model for model in results["models"] if model["model"] == name][-1]
    return last


def _label(model: Part) -> str:
    return str(model["model"]) if model["step"] is None else f"{model['model']} step {model['step']:,}"


def _shorten(band: str) -> str:
    return band.replace(",000", "k")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
