"""A picture of a run's curves."""

from pathlib import Path

from electra.reports.metrics import Figures, read_metrics

TRAINING = {"generator_loss": "generator", "discriminator_loss": "discriminator"}
DETECTION = {"eval/unigram_auc": "unigram fakes", "eval/discriminator_auc": "the generator's fakes"}
GENERATOR = {"eval/masked_lm_accuracy": "argmax", "eval/masked_lm_sample_accuracy": "samples"}


def plot_curves(run: Path, out: Path) -> Path:
    """Draw training losses, held-out detection and held-out masked-LM accuracy of a run against tokens seen.

    Raises:
        CheckpointError: the folder has no metrics.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, whatever the machine
    from matplotlib.figure import Figure

    metrics = read_metrics(run)
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [
        ("training loss", "nats", metrics.reports, TRAINING),
        ("finding fakes in held-out text", "area under the ROC curve", metrics.evaluations, DETECTION),
        ("filling masks in held-out text", "accuracy", metrics.evaluations, GENERATOR),
    ]
    for axes, (title, unit, records, series) in zip(figure.subplots(1, 3), panels, strict=True):
        for name, label in series.items():
            x, y = _points(records, name)
            axes.plot(x, y, label=label, marker="o" if records is metrics.evaluations else None, markersize=3)
        axes.set(title=title, xlabel="million tokens", ylabel=unit)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        if series is DETECTION:
            axes.axhline(0.5, color="grey", linewidth=1, linestyle=":")
            axes.annotate("chance", (0.99, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom")
        if series is TRAINING:
            axes.set_yscale("log")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)
    return out


def _points(records: list[Figures], name: str) -> tuple[list[float], list[float]]:
    found = [(record["tokens"] / 1e6, record[name]) for record in records if record.get(name) is not None]
    return [x for x, _ in found], [y for _, y in found]
