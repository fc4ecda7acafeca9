"""Figures of runs' training and evaluation curves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from electra.export.display_name import display_name
from electra.objectives.metric_labels import loss_label, metric_label
from electra.reports.figures import new_figure
from electra.reports.metrics import Metrics, Record, read_metrics
from electra.reports.settings import has_generator, read_config

TRAINING = (
    "generator_loss", "discriminator_loss", "encoder_loss", "adversarial_loss", "baseline_loss", "sentence_loss",
    "correction_loss",
    "language_model_loss", "permutation_lm_loss",
)  # fmt: skip
"""Losses in training. Each has an axis of its own, because one is often many times as large as another."""
DETECTION = ("eval/unigram_auc", "eval/discriminator_auc")
PREDICTION = (
    "eval/masked_lm_accuracy", "eval/masked_lm_sample_accuracy", "eval/encoder_masked_lm_accuracy",
    "eval/restored_accuracy", "eval/filled_accuracy",
    "eval/language_model_accuracy", "eval/permutation_lm_accuracy",
)  # fmt: skip
COMPARED = {"eval/unigram_auc": "AUC", "eval/masked_lm_accuracy": "accuracy", "loss": "nats"}
"""The metrics by which runs are compared, and their units."""
COLORS = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
)  # fmt: skip
LINES = ("solid", "dashed", "dotted")
"""The colors and line styles of lines in one figure; the style changes after all colors have been used."""
PANEL_WIDTH, PANEL_HEIGHT = 13 / 3, 3.8
"""Inches."""
ROW_MARGIN = 0.12
"""Inches above and below each panel, so that its title does not touch the label of the panel above."""
BELOW_LABEL = -0.17
"""The top of a legend below the axes and their label, in heights of the axes; inside, it could cover a curve."""
MAX_TITLE = 60
"""Characters of a run's name above its curves; of a longer one the middle is left out."""


@dataclass(frozen=True)
class Panel:
    """One system of axes: its title, and the function that draws it."""

    title: str
    draw: Callable[[Any], None]

    def figure(self) -> Any:
        """The panel as a figure of its own."""
        figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT)
        self.draw(figure.subplots())
        return figure


def plot_curves(run: Path, out: Path) -> Path:
    """Draw a run's curves into a file; see `run_panels`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    run_figure(run).savefig(out, dpi=120)
    return out


def run_figure(run: Path) -> Any:
    """The panels of a run in one figure, at most three in a row, below the run's name.

    Raises:
        CheckpointError: the folder has no metrics.
    """
    panels = run_panels(read_metrics(run), read_config(run))
    columns = max(1, len(panels) if len(panels) <= 3 else 2 if len(panels) == 4 else 3)
    rows = max(1, -(-len(panels) // columns))
    figure = new_figure(PANEL_WIDTH * columns, PANEL_HEIGHT * rows + 0.3)
    figure.get_layout_engine().set(h_pad=ROW_MARGIN)
    figure.suptitle(_shorten(display_name(run)))
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for panel, axes in zip(panels, grid, strict=False):
        panel.draw(axes)
    for axes in list(figure.axes)[len(panels) :]:
        axes.set_axis_off()
    return figure


def run_panels(metrics: Metrics, config: Mapping[str, Any]) -> list[Panel]:
    """A run's training losses, held-out detection and held-out accuracy against tokens, as far as its objective
    has them."""
    losses = [name for name in TRAINING if _has(metrics.reports, name)]
    labels = {name: loss_label(name, has_generator=has_generator(config)) for name in losses}
    panels = [
        Panel(f"{label}, training", partial(_draw_loss, records=metrics.reports, name=name, label=label))
        for name, label in labels.items()
    ]
    for title, unit, names in (
        ("detection of replaced tokens, held out", "AUC", DETECTION),
        ("prediction of tokens, held out", "accuracy", PREDICTION),
    ):
        if present := [name for name in names if _has(metrics.evaluations, name)]:
            draw = partial(_draw_held_out, records=metrics.evaluations, names=present, title=title, unit=unit)
            panels.append(Panel(title, draw))
    return panels


def comparison_panels(runs: Mapping[str, Metrics], styles: Mapping[str, tuple[str, str]]) -> list[Panel]:
    """The compared metrics of several runs against tokens, a line for each run, without a legend.

    Args:
        styles: the color and the line style of each run.
    """
    return [
        Panel(metric_label(name), partial(_draw_compared, runs=runs, styles=styles, name=name))
        for name in COMPARED
        if any(_has(_records(metrics, name), name) for metrics in runs.values())
    ]


def line_styles(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A color and a line style for each name."""
    return {
        name: (COLORS[number % len(COLORS)], LINES[number // len(COLORS) % len(LINES)])
        for number, name in enumerate(names)
    }


def fine_tuning_panels(
    seeds: Mapping[str, Metrics], metric: str, label: str, styles: Mapping[str, tuple[str, str]]
) -> list[Panel]:
    """The training loss and the metric on dev of each seed against steps, without a legend.

    The metric is left out if no seed was evaluated more than once.

    Args:
        label: the name of the metric for people.
    """
    name = f"eval/{metric}"
    reports = {seed: [one for one in metrics.reports if "loss" in one] for seed, metrics in seeds.items()}
    evaluations = {
        seed: [one for one in metrics.evaluations if one.get(name) is not None] for seed, metrics in seeds.items()
    }
    panels = []
    if any(map(len, reports.values())):
        draw = partial(_draw_seeds, records=reports, name="loss", unit="nats", styles=styles)
        panels.append(Panel("training loss", partial(draw, title="training loss")))
    if any(len(records) > 1 for records in evaluations.values()):
        draw = partial(_draw_seeds, records=evaluations, name=name, unit=label, styles=styles, marker="o")
        panels.append(Panel(f"{label} on dev", partial(draw, title=f"{label} on dev")))
    return panels


def _draw_seeds(
    axes: Any,
    *,
    records: Mapping[str, list[Record]],
    name: str,
    title: str,
    unit: str,
    styles: Mapping[str, tuple[str, str]],
    marker: str | None = None,
) -> None:
    for seed, of_seed in records.items():
        color, line = styles[seed]
        x, y = [one["step"] for one in of_seed], [one[name] for one in of_seed]
        axes.plot(x, y, markersize=3, label=seed, marker=marker, color=color, linestyle=line)
    axes.set(title=title, xlabel="steps", ylabel=unit)
    axes.grid(alpha=0.3)


def _draw_loss(axes: Any, *, records: list[Record], name: str, label: str) -> None:
    _draw_curve(axes, records, name, label=label)
    _label_panel(axes, f"{label}, training", "nats")


def _draw_held_out(axes: Any, *, records: list[Record], names: Sequence[str], title: str, unit: str) -> None:
    for name in names:
        _draw_curve(axes, records, name, label=metric_label(name), marker="o")
    _label_panel(axes, title, unit)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, BELOW_LABEL))
    if names[0] in DETECTION:
        _draw_chance(axes)


def _draw_compared(
    axes: Any, *, runs: Mapping[str, Metrics], styles: Mapping[str, tuple[str, str]], name: str
) -> None:
    for run, metrics in runs.items():
        color, line = styles[run]
        marker = "o" if name.startswith("eval/") else None
        records = _records(metrics, name)
        _draw_curve(axes, records, name, label=run, marker=marker, color=color, linestyle=line)
    _label_panel(axes, metric_label(name), COMPARED[name])
    if name in DETECTION:
        _draw_chance(axes)


def _records(metrics: Metrics, name: str) -> list[Record]:
    return metrics.evaluations if name.startswith("eval/") else metrics.reports


def _has(records: Sequence[Record], name: str) -> bool:
    return any(record.get(name) is not None for record in records)


def _draw_curve(axes: Any, records: list[Record], name: str, **style: Any) -> None:
    points = [(record["tokens"] / 1e6, record[name]) for record in records if record.get(name) is not None]
    x, y = [x for x, _ in points], [y for _, y in points]
    axes.plot(x, y, markersize=3, **style)


def _label_panel(axes: Any, title: str, unit: str) -> None:
    axes.set(title=title, xlabel="million tokens", ylabel=unit)
    axes.grid(alpha=0.3)


def _draw_chance(axes: Any) -> None:
    axes.axhline(0.5, color="grey", linewidth=1, linestyle=":")
    axes.annotate("chance", (0.99, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom")


def _shorten(name: str) -> str:
    half = MAX_TITLE // 2
    return name if len(name) <= MAX_TITLE else f"{name[: half - 1]}…{name[-half:]}"
