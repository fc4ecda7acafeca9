"""What a page says of a pre-training, a fine-tuning, a study, analyses; and of several pre-trainings together."""

import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from electra.config import read_toml
from electra.errors import CheckpointError
from electra.json_files import read_json, understood
from electra.reports.analysis import ANALYSES, load_presenter, read_analyses
from electra.reports.curves import comparison_figure, run_figure
from electra.reports.metrics import read_metrics
from electra.reports.page import Picture, Section
from electra.reports.study import read_study
from electra.reports.study_figure import study_figure
from electra.reports.study_results import is_study

Facts = Mapping[str, Any]


def build_sections(folders: Sequence[Path]) -> list[Section]:
    """A section for each folder; where there are several runs or fine-tunings, one that compares them comes first.

    Raises:
        CheckpointError: a folder holds nothing that can be reported.
    """
    folders = [one for folder in folders for one in _each(folder)]
    runs = [folder for folder in folders if kind_of(folder) == "pre-training"]
    tuned = [folder for folder in folders if kind_of(folder) == "fine-tuning"]
    found = []
    for folder in folders:
        with understood(folder):
            found += _SECTIONS[kind_of(folder)](folder)
    if len(tuned) > 1:
        found.insert(0, _fine_tunings(tuned))
    if len(runs) > 1:
        found.insert(0, _side_by_side(runs))
    return found


def _each(folder: Path) -> list[Path]:
    """The folder; or the tasks' folders, where `electra finetune --task glue` made one for each."""
    if kind_of(folder) != "fine-tuning" or "seeds" in read_json(folder / "results.json", optional=True):
        return [folder]
    tasks = sorted(path.parent for path in folder.glob("*/results.json"))
    if not tasks:
        raise CheckpointError(
            f"{folder}: results.json is of several tasks, and no task's folder is there any more; "
            "give the folder of one task, or fine-tune again"
        )
    return tasks


def kind_of(folder: Path) -> str:
    """What a folder holds: a pre-training, a fine-tuning, a study or analyses.

    Raises:
        CheckpointError: none of these.
    """
    if is_study(folder):
        return "study"
    if (folder / "metrics.jsonl").is_file():
        return "pre-training"
    if (folder / "results.json").is_file():
        return "fine-tuning"
    if any((folder / f"{name}.json").is_file() for name in ANALYSES):
        return "analysis"
    if (folder / "seed-0").is_dir():
        raise CheckpointError(
            f"{folder}: this fine-tuning has no results yet; the same `electra finetune` goes on with it, and "
            "then it can be reported"
        )
    raise CheckpointError(
        f"{folder} holds no run, fine-tuning, study or analysis; give a folder that `electra pretrain`, "
        "`electra finetune`, `electra study` or `electra analyze` wrote"
    )


def _pretraining(folder: Path) -> list[Section]:
    metrics, config, environment = (
        read_metrics(folder),
        _config(folder),
        read_json(folder / "environment.json", optional=True),
    )
    facts = []
    if metrics.reports:
        last = metrics.reports[-1]
        facts = [
            ("steps", f"{last['step']:,} of {config.get('train', {}).get('steps', 0):,}"),
            ("tokens", f"{last['tokens']:,}"),
            ("training FLOPs", f"{last['flops']:.3e}"),
            ("time", f"{last['seconds'] / 60:.1f} minutes, {last['tokens'] / last['seconds']:,.0f} tokens/s"),
        ]
    facts += list(_machine(config, environment))
    tables = []
    if metrics.evaluations:
        evaluation = metrics.evaluations[-1]
        table = Table("held-out figure", f"step {evaluation['step']:,}")
        for name, value in evaluation.items():
            if name.startswith("eval/"):
                table.add_row(_words(name), _figure(value))
        tables.append(table)
    notes = [f"Step {one['step']:,}: {one['health']}: {one['message']}" for one in metrics.findings]
    picture = Picture("losses and held-out figures against tokens", _svg(run_figure(folder)))
    return [Section(_name(folder), "pre-training", facts, notes, tables, [picture])]


def _machine(config: Facts, environment: Facts) -> Iterator[tuple[str, str]]:
    yield "objective", str(config.get("objective", {}).get("kind", "replaced-token"))
    if data := environment.get("data", {}).get("statistics"):
        yield "data", f"{data['documents']:,} documents, {data['tokens']:,} tokens"
    if "torch" in environment:
        precision = config.get("train", {}).get("precision", "")
        machine = (
            environment.get("accelerator") or f"{environment['processor']}, threads: {environment['threads']}"
        )
        yield "machine", f"{machine}, {precision}, PyTorch {environment['torch']}"


def _finetuning(folder: Path) -> list[Section]:
    results, config = read_json(folder / "results.json", optional=True), _config(folder)
    metric, seeds = results["metric"], results["seeds"]
    facts = [
        ("task", results["task"]),
        (f"{metric} on dev", f"median {results['median']:.4f}, mean {results['mean']:.4f}"),
        ("started from", str(results["pretrained"])),
        ("examples", ", ".join(f"{split} {count:,}" for split, count in results["examples"].items())),
    ]
    if len(seeds) > 1:
        facts.insert(2, ("standard deviation over seeds", f"{results['standard_deviation']:.4f}"))
    for split in dict.fromkeys(split for one in seeds for split in one.get("others", {})):
        values = [one["others"][split][metric] for one in seeds if metric in one["others"].get(split, {})]
        facts.append((f"{metric} on {split}", f"median {statistics.median(values):.4f}"))
    settings = dict(_flat(config))
    facts += [(says, str(settings[name])) for name, says in _LEARNING.items() if name in settings]
    table = Table("seed", *(names := _metrics(seeds)), "failed", "steps", "seconds")
    for one in seeds:
        figures = [_figure(one["metrics"].get(name)) for name in names]
        table.add_row(
            str(one["seed"]), *figures, one["failed"] or "", f"{one['steps']:,}", f"{one['seconds']:.0f}"
        )
    return [Section(_name(folder), "fine-tuning", facts, results["notes"], [table])]


def _metrics(seeds: Sequence[Facts]) -> list[str]:
    """The figures of a task; those of its single kinds of spans are in results.json."""
    return [name for name in dict.fromkeys(name for one in seeds for name in one["metrics"]) if "/" not in name]


_LEARNING = {
    "optimizer.learning_rate": "learning rate",
    "optimizer.layer_decay": "layer-wise decay",
    "train.epochs": "epochs",
    "train.batch_size": "rows a step",
    "train.precision": "precision",
    "data.fraction": "share of the training examples",
    "data.max_length": "tokens of a row at most",
}
"""Settings of a fine-tuning that say how it learnt."""


def _study(folder: Path) -> list[Section]:
    report = read_study(folder)
    precisions = sorted({run["precision"] for run in report.runs if "precision" in run})
    facts = [
        ("budget of a run", f"{report.facts['flops']:.3e} FLOPs (modern convention)"),
        ("base", str(report.facts["base"])),
        ("precision", ", ".join(precisions) or "–"),
        ("fine-tuning", " ".join(report.facts["tune"]) or "defaults"),
        ("interval", "95 %, Student's t over the seeds, of the difference to the control with the same seed"),
    ]
    if report.facts["paper"]:
        facts.append(("published", report.facts["paper"]))
    figure = study_figure(report.facts, report.arms)
    pictures = [Picture(report.facts["title"], _svg(figure))] if figure is not None else []
    notes = [] if report.arms else ["No run has ended yet."]
    if report.arms and report.facts["suite"]:
        notes = [f"As for the paper: {report.summarize_agreement()}."]
    return [Section(_name(folder), "study", facts, notes, report.tables(), pictures)]


def _analyses(folder: Path) -> list[Section]:
    found = []
    for one in read_analyses(folder):
        presenter = load_presenter(one.name)
        figure = presenter.figure(one.facts)
        pictures = [Picture(presenter.SHOWS, _svg(figure))] if figure is not None else []
        tables, notes = presenter.tables(one.facts), presenter.notes(one.facts)
        found.append(Section(presenter.TITLE, f"analysis, {_name(folder)}", (), notes, tables, pictures))
    return found


_SECTIONS = {
    "pre-training": _pretraining, "fine-tuning": _finetuning, "study": _study, "analysis": _analyses,
}  # fmt: skip


def _side_by_side(runs: Sequence[Path]) -> Section:
    """The held-out figures of several pre-trainings and the settings in which they differ."""
    names = [_name(run) for run in runs]
    evaluations = [found[-1] if (found := read_metrics(run).evaluations) else {} for run in runs]
    shared = set.intersection(*(set(one) for one in evaluations))
    table = Table("held-out figure, last", *names)
    for name in evaluations[0]:
        if name in shared and name.startswith("eval/"):
            table.add_row(_words(name), *(_figure(one[name]) for one in evaluations))
    tables = [*([table] if table.row_count else []), *_differences(runs, names)]
    picture = Picture("held-out figures of all runs against tokens", _svg(comparison_figure(runs, names)))
    return Section("Side by side", f"{len(runs)} pre-trainings", tables=tables, pictures=[picture])


def _fine_tunings(folders: Sequence[Path]) -> Section:
    """The headline figures of several fine-tunings and the settings in which they differ."""
    table = Table("fine-tuning", "task", "figure on dev", "median", "mean", "seeds", "failed")
    for folder in folders:
        results = read_json(folder / "results.json", optional=True)
        table.add_row(
            _name(folder), results["task"], results["metric"], f"{results['median']:.4f}",
            f"{results['mean']:.4f}", str(len(results["seeds"])), str(results["failed"]),
        )  # fmt: skip
    names = [_name(folder) for folder in folders]
    return Section(
        "All fine-tunings", f"{len(folders)} fine-tunings", tables=[table, *_differences(folders, names)]
    )


def _differences(folders: Sequence[Path], names: Sequence[str]) -> list[Table]:
    """A table of the settings in which runs differ; none where they do not."""
    settings = [dict(_flat(_config(folder))) for folder in folders]
    table = Table("setting that differs", *names)
    for key in dict.fromkeys(key for one in settings for key in one):
        values = [one.get(key, "–") for one in settings]
        if any(value != values[0] for value in values) and key not in ("out", "data", "data.path"):
            table.add_row(key, *map(str, values))
    return [table] if table.row_count else []


def _flat(table: Facts, before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _name(folder: Path) -> str:
    """Enough of a folder's path to know it by."""
    parts = [part for part in folder.parts if part not in ("/", ".", "..")] or [folder.resolve().name]
    return "/".join(parts[-5:] if parts[-1] == "run" else parts[-2:])


def _words(name: str) -> str:
    return name.removeprefix("eval/").replace("_", " ")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _config(folder: Path) -> Facts:
    path = folder / "config.toml"
    return read_toml(path) if path.is_file() else {}


def _svg(figure: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
