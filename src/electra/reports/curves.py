"""Figures of runs' training and evaluation curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra.objectives.metric_labels import metric_label
from electra.reports.figures import new_figure
from electra.reports.metrics import Record, read_metrics

TRAINING = (
    "generator_loss", "discriminator_loss", "encoder_loss", "adversarial_loss", "baseline_loss", "sentence_loss",
    "correction_loss",
    "language_model_loss", "permutation_lm_loss",
)  # fmt: skip
DETECTION = ("eval/unigram_auc", "eval/discriminator_auc")
PREDICTION = (
    "eval/masked_lm_accuracy", "eval/masked_lm_sample_accuracy", "eval/encoder_masked_lm_accuracy",
    "eval/restored_accuracy", "eval/filled_accuracy",
    "eval/language_model_accuracy", "eval/permutation_lm_accuracy",
)  # fmt: skip
COMPARED = {"eval/unigram_auc": "area under the ROC curve", "eval/masked_lm_accuracy": "accuracy", "loss": "nats"}
"""The metrics by which runs are compared, and their units."""


def plot_curves(run: Path, out: Path) -> Path:
    """Draw a run's curves into a file; see `run_figure`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    run_figure(run).savefig(out, dpi=120)
    return out


def run_figure(run: Path) -> Any:
    """A run's training losses, held-out detection and held-out accuracy against tokens, as far as its objective
    has them.

    Raises:
        CheckpointError: the folder has no metrics.
    """
    metrics = read_metrics(run)
    panels = [
        ("training loss", "nats", metrics.reports, TRAINING),
        ("detection of replaced tokens, held out", "area under the ROC curve", metrics.evaluations, DETECTION),
        ("prediction of tokens, held out", "accuracy", metrics.evaluations, PREDICTION),
    ]
    panels = [panel for panel in panels if any(name in record for record in panel[2] for name in panel[3])]
    figure, grid = _new_panels(max(1, len(panels)))
    for axes, (title, unit, records, names) in zip(grid, panels, strict=False):
        for name in names:
            if any(record.get(name) is not None for record in records):
                _draw_curve(axes, records, name, metric_label(name), dots=records is metrics.evaluations)
        _label_panel(axes, title, unit)
        if names is DETECTION:
            _draw_chance(axes)
        if names is TRAINING and all((record.get(name) or 1) > 0 for record in records for name in TRAINING):
            axes.set_yscale("log")  # an adversarial loss may be negative
    return figure


def comparison_figure(runs: Sequence[Path], names: Sequence[str]) -> Any:
    """The compared metrics of several runs against tokens, a line for each run.

    Raises:
        CheckpointError: a folder has no metrics.
    """
    figure, grid = _new_panels(len(COMPARED))
    for run, label in zip(runs, names, strict=True):
        metrics = read_metrics(run)
        for axes, name in zip(grid, COMPARED, strict=True):
            is_evaluation = name.startswith("eval/")
            records = metrics.evaluations if is_evaluation else metrics.reports
            _draw_curve(axes, records, name, label, dots=is_evaluation)
    for axes, (name, unit) in zip(grid, COMPARED.items(), strict=True):
        _label_panel(axes, metric_label(name), unit)
        if name == "eval/unigram_auc":
            _draw_chance(axes)
    return figure


def _new_panels(count: int) -> tuple[Any, Sequence[Any]]:
    figure = new_figure(13 / 3 * count, 3.8)
    return figure, figure.subplots(1, count, squeeze=False)[0]


def _draw_curve(axes: Any, records: list[Record], name: str, label: str, *, dots: bool) -> None:
    points = [(record["tokens"] / 1e6, record[name]) for record in records if record.get(name) is not None]
    x, y = [x for x, _ in points], [y for _, y in points]
    axes.plot(x, y, label=label, marker="o" if dots else None, markersize=3)


def _label_panel(axes: Any, title: str, unit: str) -> None:
    axes.set(title=title, xlabel="million tokens", ylabel=unit)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def _draw_chance(axes: Any) -> None:
    axes.axhline(0.5, color="grey", linewidth=1, linestyle=":")
    axes.annotate("chance", (0.99, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom")
