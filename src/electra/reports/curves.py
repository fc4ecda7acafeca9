"""Pictures of runs' curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra.reports.figures import new_figure
from electra.reports.metrics import Figures, read_metrics

TRAINING = {
    "generator_loss": "masked LM", "discriminator_loss": "discriminator", "encoder_loss": "encoder",
    "adversarial_loss": "adversarial", "baseline_loss": "baseline", "sentence_loss": "pairs of segments",
    "language_model_loss": "language model", "permutation_lm_loss": "permutation LM",
}  # fmt: skip
DETECTION = {"eval/unigram_auc": "unigram fakes", "eval/discriminator_auc": "fakes as in training"}
FILLING = {
    "eval/masked_lm_accuracy": "masks, argmax", "eval/masked_lm_sample_accuracy": "masks, samples",
    "eval/encoder_masked_lm_accuracy": "masks, the large network", "eval/restored_accuracy": "fakes restored",
    "eval/language_model_accuracy": "the next token", "eval/permutation_lm_accuracy": "targets in a random order",
}  # fmt: skip
BESIDE = {
    "eval/unigram_auc": ("finding unigram fakes in held-out text", "area under the ROC curve"),
    "eval/masked_lm_accuracy": ("filling masks in held-out text", "accuracy"),
    "loss": ("training loss, all parts", "nats"),
}
"""What runs are compared by."""


def plot_curves(run: Path, out: Path) -> Path:
    """Draw a run's curves into a file; see `run_figure`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    run_figure(run).savefig(out, dpi=120)
    return out


def run_figure(run: Path) -> Any:
    """Training losses, held-out detection and held-out masked-LM accuracy of a run against tokens seen; only what
    its objective has.

    Raises:
        CheckpointError: the folder has no metrics.
    """
    metrics = read_metrics(run)
    kinds = [
        ("training loss", "nats", metrics.reports, TRAINING),
        ("finding fakes in held-out text", "area under the ROC curve", metrics.evaluations, DETECTION),
        ("finding the right token in held-out text", "accuracy", metrics.evaluations, FILLING),
    ]
    known = [{name for record in records for name in record} for _, _, records, _ in kinds]
    kinds = [kind for kind, names in zip(kinds, known, strict=True) if names & kind[-1].keys()]
    figure, panels = _panels(max(1, len(kinds)))
    for axes, (title, unit, records, series) in zip(panels, kinds, strict=False):
        for name, label in series.items():
            if any(record.get(name) is not None for record in records):
                _draw(axes, records, name, label, dots=records is metrics.evaluations)
        _named(axes, title, unit)
        if series is DETECTION:
            _chance(axes)
        if series is TRAINING and all((one.get(name) or 1) > 0 for one in records for name in TRAINING):
            axes.set_yscale("log")  # what is adversarial may be negative
    return figure


def comparison_figure(runs: Sequence[Path], names: Sequence[str]) -> Any:
    """The figures that runs are compared by against tokens seen, a line for each run.

    Raises:
        CheckpointError: a folder has no metrics.
    """
    figure, panels = _panels(len(BESIDE))
    for run, label in zip(runs, names, strict=True):
        metrics = read_metrics(run)
        for axes, name in zip(panels, BESIDE, strict=True):
            records = metrics.evaluations if name.startswith("eval/") else metrics.reports
            _draw(axes, records, name, label, dots=name.startswith("eval/"))
    for axes, (name, (title, unit)) in zip(panels, BESIDE.items(), strict=True):
        _named(axes, title, unit)
        if name == "eval/unigram_auc":
            _chance(axes)
    return figure


def _panels(count: int) -> tuple[Any, Sequence[Any]]:
    figure = new_figure(13 / 3 * count, 3.8)
    return figure, figure.subplots(1, count, squeeze=False)[0]


def _draw(axes: Any, records: list[Figures], name: str, label: str, *, dots: bool) -> None:
    found = [(record["tokens"] / 1e6, record[name]) for record in records if record.get(name) is not None]
    x, y = [x for x, _ in found], [y for _, y in found]
    axes.plot(x, y, label=label, marker="o" if dots else None, markersize=3)


def _named(axes: Any, title: str, unit: str) -> None:
    axes.set(title=title, xlabel="million tokens", ylabel=unit)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def _chance(axes: Any) -> None:
    axes.axhline(0.5, color="grey", linewidth=1, linestyle=":")
    axes.annotate("chance", (0.99, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom")
