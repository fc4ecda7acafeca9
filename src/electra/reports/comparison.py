"""The sections that compare several pre-trainings, or several fine-tunings, with each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from electra.json_files import read_json
from electra.objectives.metric_labels import metric_label
from electra.reports.budget import (
    describe_budget,
    describe_steps,
    evaluation_seconds,
    is_evaluated_at_end,
    run_steps,
)
from electra.reports.curves import comparison_panels, line_styles
from electra.reports.figures import figure_svg
from electra.reports.metrics import Metrics, read_metrics
from electra.reports.page import Figure, LegendEntry, Section
from electra.reports.settings import different_settings, read_config

BEST = {
    "eval/unigram_auc": max, "eval/masked_lm_accuracy": max, "eval/masked_lm_loss": min,
    "eval/encoder_masked_lm_accuracy": max, "eval/encoder_masked_lm_loss": min,
    "eval/filled_accuracy": max, "eval/filled_loss": min,
    "eval/language_model_accuracy": max, "eval/language_model_loss": min, "eval/perplexity": min,
    "eval/permutation_lm_accuracy": max, "eval/permutation_lm_loss": min,
}  # fmt: skip
"""Metrics of which one value is the best. Those of replaced tokens are missing, also `restored_...`: each run
replaces tokens in its own way, and is not better because its own are easier to find. So are those of sampled
tokens, because each run samples in its own way, and entropies, of which neither more nor less is better."""

FEW = 100
"""A metric of fewer examples is shown with their number."""


def compare_runs(runs: Mapping[str, Path]) -> Section:
    """The budgets and last held-out metrics of several pre-trainings, their curves and different settings."""
    metrics = {name: read_metrics(folder) for name, folder in runs.items()}
    steps = {name: run_steps(folder, read_config(folder)) for name, folder in runs.items()}
    corpora = [_corpus(folder) for folder in runs.values()]
    comparable = len(set(corpora)) == 1
    ended = [name for name in runs if is_evaluated_at_end(metrics[name], steps[name])] if comparable else []
    _add_budgets(table := Table("budget, and last held-out metrics", *runs), metrics, steps)
    _add_metrics(table, metrics, rivals=ended)
    notes = _notes_on_best(metrics, steps, ended) if comparable else [_describe_corpora(list(runs), corpora)]
    styles = line_styles(list(runs))
    compared = metrics
    if len({_objective(folder) for folder in runs.values()}) > 1:  # losses of different kinds
        notes.append(
            "Training losses are not drawn: the objectives differ, and their losses are of different kinds."
        )
        compared = {name: Metrics([], one.evaluations, []) for name, one in metrics.items()}
    panels = comparison_panels(compared, styles)
    figures = [Figure(f"{panel.title} of all runs", figure_svg(panel.figure())) for panel in panels]
    return Section(
        "Comparison of pre-trainings",
        f"{len(runs)} pre-trainings",
        notes=notes,
        tables=[table],
        figures=figures,
        legend=[LegendEntry(name, *style) for name, style in styles.items()],
        folded=different_settings(runs),
    )


def _add_budgets(table: Table, runs: Mapping[str, Metrics], steps: Mapping[str, int | None]) -> None:
    """What each run has cost so far: longer runs have better metrics."""
    table.add_row("steps", *(describe_steps(metrics, steps[name]) for name, metrics in runs.items()))
    tokens, flops, times = zip(*map(describe_budget, runs.values()), strict=True)
    timed = all(evaluation_seconds(metrics) is not None for metrics in runs.values())
    table.add_row("tokens", *tokens)
    table.add_row("training FLOPs", *flops)
    table.add_row("time" if timed else "time (of some runs without evaluations)", *times)


def _add_metrics(table: Table, runs: Mapping[str, Metrics], *, rivals: Sequence[str]) -> None:
    """The last held-out metrics, with the best of the rivals in bold."""
    evaluations = [(metrics.evaluations or [{}])[-1] for metrics in runs.values()]
    for key in dict.fromkeys(key for evaluation in evaluations for key in evaluation):
        if key.startswith("eval/"):
            values = {name: one.get(key) for name, one in zip(runs, evaluations, strict=True)}
            table.add_row(metric_label(key), *_mark(values, BEST.get(key), rivals))


def _notes_on_best(
    runs: Mapping[str, Metrics], steps: Mapping[str, int | None], ended: Sequence[str]
) -> list[str]:
    """What bold numbers mean, and which runs have none."""
    if not any(metrics.evaluations for metrics in runs.values()):
        return []
    notes = []
    if len(ended) > 1:
        notes.append(
            "Bold: the best of its row, whatever its budget. Metrics of replaced or sampled tokens, also those at "
            "chosen positions, have no best, because each run draws these tokens in its own way. Entropies have "
            "none, either."
        )
    if others := [name for name in runs if name not in ended]:
        are = "is not evaluated at its end yet" if len(others) == 1 else "are not evaluated at their ends yet"
        notes.append(
            f"Never bold: {', '.join(others)}, which {are}. Earlier evaluations can read fewer held-out rows, and "
            "cannot be compared with the last ones."
        )
    return notes


def compare_fine_tunings(fine_tunings: Mapping[str, Path]) -> Section:
    """The results of several fine-tunings, and the settings in which they differ."""
    results = {name: read_json(folder / "results.json", optional=True) for name, folder in fine_tunings.items()}
    several = any(len(one["seeds"]) > 1 for one in results.values())  # of one seed all averages are the same
    scores = {"median": "median", "mean": "mean"} if several else {"median": "score"}
    failed = any(one["failed"] for one in results.values())
    columns = [*scores.values(), *["seeds"] * several, *["failed"] * failed]
    table = Table("fine-tuning", "task", "metric on dev", *columns)
    for name, one in results.items():
        rivals = [other for other in results.values() if _rivals(one) == _rivals(other)]
        cells = []
        for key in scores:
            is_best = len(rivals) > 1 and one[key] == max(other[key] for other in rivals)
            cells.append(Text(f"{one[key]:.4f}", style="bold" if is_best else ""))
        counts = [str(len(one["seeds"]))] * several + [str(one["failed"])] * failed
        metric = metric_label(one["metric"]) + describe_few(one)
        table.add_row(name, one["task"], metric, *cells, *counts)
    return Section(
        "Comparison of fine-tunings",
        f"{len(fine_tunings)} fine-tunings",
        notes=["Bold: the best of those with the same task, metric and number of dev examples."],
        tables=[table],
        folded=different_settings(fine_tunings),
    )


def describe_few(results: Mapping[str, Any], split: str = "dev") -> str:
    """How few examples a metric was measured on; "" if they are enough."""
    count = results.get("examples", {}).get(split, FEW)
    return f" ({count:,} example{'s' * (count != 1)})" if count < FEW else ""


def _rivals(results: Mapping[str, Any]) -> tuple[Any, ...]:
    """What fine-tunings whose results can be compared have in common."""
    return results["task"], results["metric"], results.get("examples", {}).get("dev")


def _mark(values: Mapping[str, float | None], best: Any, rivals: Sequence[str]) -> list[Text]:
    known = [value for name, value in values.items() if name in rivals and value is not None]
    target = best(known) if best and len(known) > 1 and len(set(known)) > 1 else None
    return [
        Text(
            format_metric(value), style="bold" if name in rivals and value is not None and value == target else ""
        )
        for name, value in values.items()
    ]


def _corpus(folder: Path) -> str:
    """The fingerprint of the data of a run; "" if it is not known."""
    data = read_json(folder / "environment.json", optional=True).get("data", {})
    return str(data.get("fingerprint", ""))


def _describe_corpora(names: Sequence[str], corpora: Sequence[str]) -> str:
    groups = [
        ", ".join(name for name, own in zip(names, corpora, strict=True) if own == corpus)
        for corpus in dict.fromkeys(corpora)
    ]
    described = "; ".join(f"{number}: {group}" for number, group in enumerate(groups, 1))
    return (
        f"The runs have read different corpora ({described}). Figures and curves of different corpora cannot be "
        "compared, so no best is marked."
    )


def _objective(folder: Path) -> str:
    return str(read_config(folder).get("objective", {}))


def format_metric(value: float | None) -> str:
    """A metric with four decimals; "–" if there is none."""
    return "–" if value is None else f"{value:.4f}"
