"""The section of a fine-tuning: its results, the curves of its seeds, and the scores of each label."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from electra.json_files import read_json
from electra.objectives.metric_labels import metric_label
from electra.reports.comparison import describe_few, format_metric
from electra.reports.curves import fine_tuning_panels, line_styles
from electra.reports.figures import figure_svg
from electra.reports.findings import finding_notes
from electra.reports.label_scores import label_table, read_label_scores
from electra.reports.metrics import Metrics, read_metrics
from electra.reports.page import Figure, LegendEntry, Section
from electra.reports.settings import flatten, format_setting, read_config

UNFOLDED_LABELS = 12
"""A table of more labels only shows its title until it is opened."""
TRAINING_SETTINGS = {
    "optimizer.learning_rate": "learning rate",
    "optimizer.layer_decay": "layer-wise decay",
    "train.epochs": "epochs",
    "train.batch_size": "rows per step",
    "train.precision": "precision",
    "data.fraction": "fraction of the training examples",
    "data.max_length": "maximum tokens of a row",
}
"""Settings that are shown, and their labels."""


def fine_tuning_sections(folder: Path, name: str) -> list[Section]:
    """The section of the folder of a fine-tuning, in a list."""
    results, config = read_json(folder / "results.json", optional=True), read_config(folder)
    metric, seeds = results["metric"], results["seeds"]
    label = metric_label(metric)
    properties = [
        ("task", results["task"]),
        (f"{label} on dev", _describe_scores(results) + describe_few(results)),
        ("started from", str(results["pretrained"] or "random weights")),
        ("examples", ", ".join(f"{split} {count:,}" for split, count in results["examples"].items())),
    ]
    if len(seeds) > 1:
        properties.insert(2, ("standard deviation over seeds", f"{results['standard_deviation']:.4f}"))
    for split in dict.fromkeys(split for seed in seeds for split in seed.get("others", {})):
        values = [seed["others"][split][metric] for seed in seeds if metric in seed["others"].get(split, {})]
        score = f"{'median ' * (len(values) > 1)}{statistics.median(values):.4f}"
        properties.append((f"{label} on {split}", score + describe_few(results, split)))
    settings, of_seeds = dict(flatten(config)), _read_seeds(folder, seeds)
    properties += [
        (words, format_setting(settings[key])) for key, words in TRAINING_SETTINGS.items() if key in settings
    ]
    tables: list[Table] = [_seeds_table(seeds, of_seeds)]
    folded: list[Table] = []
    best, metrics = results.get("best_seed", 0), seeds[0]["metrics"] if seeds else {}
    if scores := read_label_scores(folder / f"seed-{best}" / "dev.jsonl", spans="span_f1" in metrics):
        title = f"{len(scores)} labels on dev, seed {best}"
        (folded if len(scores) > UNFOLDED_LABELS else tables).append(label_table(scores, title=title))
    figures, legend = _curves(of_seeds, metric)
    steps = {one["seed"]: one["steps"] for one in seeds}
    notes = results["notes"] + [
        note
        for seed, of_seed in of_seeds.items()
        for note in finding_notes(of_seed, steps[seed], run=f"Seed {seed}")
    ]
    return [Section(name, "fine-tuning", properties, notes, tables, figures, legend, folded)]


def _describe_scores(results: Mapping[str, Any]) -> str:
    """The metric on dev; of several seeds the median and the mean."""
    if len(results["seeds"]) == 1:
        return f"{results['median']:.4f}"
    return f"median {results['median']:.4f}, mean {results['mean']:.4f}"


def _read_seeds(folder: Path, seeds: Sequence[Mapping[str, Any]]) -> dict[int, Metrics]:
    """The metrics of all seeds whose folders have them."""
    runs = {one["seed"]: folder / f"seed-{one['seed']}" for one in seeds}
    return {seed: read_metrics(run) for seed, run in runs.items() if (run / "metrics.jsonl").is_file()}


def _seeds_table(seeds: Sequence[Mapping[str, Any]], of_seeds: Mapping[int, Metrics]) -> Table:
    """The metrics of each seed, and its time; folders before 2026-11-26 have not written that of evaluations."""
    evaluating = {
        seed: sum(one["evaluation_seconds"] for one in metrics.evaluations)
        for seed, metrics in of_seeds.items()
        if all("evaluation_seconds" in one for one in metrics.evaluations)
    }
    has_all = all(one["seed"] in evaluating for one in seeds)
    times = ("seconds", "of which evaluation") if has_all else ("seconds without evaluation",)
    keys, failed = _metric_keys(seeds), any(one["failed"] for one in seeds)
    table = Table("seed", *map(metric_label, keys), *["failed"] * failed, "steps", *times)
    for one in seeds:
        values = [format_metric(one["metrics"].get(key)) for key in keys]
        spent = evaluating[one["seed"]] if has_all else 0.0
        seconds = [one["seconds"] + spent, spent][: len(times)]
        reason = [one["failed"] or ""] if failed else []
        table.add_row(str(one["seed"]), *values, *reason, f"{one['steps']:,}", *(f"{x:.0f}" for x in seconds))
    return table


def _curves(of_seeds: Mapping[int, Metrics], metric: str) -> tuple[list[Figure], list[LegendEntry]]:
    """The curves of all seeds, and the legend if there are several."""
    metrics = {f"seed {seed}": one for seed, one in of_seeds.items()}
    styles = line_styles(list(metrics))
    panels = fine_tuning_panels(metrics, metric, metric_label(metric), styles)
    figures = [Figure(f"{panel.title} of each seed", figure_svg(panel.figure())) for panel in panels]
    legend = [LegendEntry(seed, *style) for seed, style in styles.items()]
    return figures, legend if figures and len(legend) > 1 else []


def _metric_keys(seeds: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics of a task; those of single kinds of spans are only in results.json."""
    return [key for key in dict.fromkeys(key for seed in seeds for key in seed["metrics"]) if "/" not in key]
