"""What a page says of a pre-training, a fine-tuning, a study; and of several pre-trainings together."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from electra.config import read_toml
from electra.errors import CheckpointError
from electra.reports.curves import curves_figure, side_by_side_figure
from electra.reports.metrics import read_metrics
from electra.reports.page import Picture, Section
from electra.reports.study import read_study
from electra.reports.study_figure import study_figure

Facts = Mapping[str, Any]


def sections(folders: Sequence[Path]) -> list[Section]:
    """A section for each folder; where there are several pre-trainings, one that compares them comes first.

    Raises:
        CheckpointError: a folder holds nothing that can be reported.
    """
    runs = [folder for folder in folders if kind_of(folder) == "pre-training"]
    found = [_SECTIONS[kind_of(folder)](folder) for folder in folders]
    return [*([_side_by_side(runs)] if len(runs) > 1 else []), *found]


def kind_of(folder: Path) -> str:
    """What a folder holds: a pre-training, a fine-tuning or a study.

    Raises:
        CheckpointError: none of these.
    """
    if (folder / "study.json").is_file():
        return "study"
    if (folder / "metrics.jsonl").is_file():
        return "pre-training"
    if (folder / "results.json").is_file():
        return "fine-tuning"
    raise CheckpointError(
        f"{folder} holds no run, fine-tuning or study; give a folder that `electra pretrain`, "
        "`electra finetune` or `electra study` wrote"
    )


def _pretraining(folder: Path) -> Section:
    metrics, config, environment = read_metrics(folder), _config(folder), _json(folder / "environment.json")
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
    picture = Picture("losses and held-out figures against tokens", _svg(curves_figure(folder)))
    return Section(_name(folder), "pre-training", facts, notes, tables, [picture])


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


def _finetuning(folder: Path) -> Section:
    results = _json(folder / "results.json")
    if "seeds" not in results:
        raise CheckpointError(f"{folder} holds several tasks; give the folder of each: {folder}/*")
    metric = results["metric"]
    facts = [
        ("task", results["task"]),
        (metric, f"median {results['median']:.4f}, mean {results['mean']:.4f}"),
        ("started from", str(results["pretrained"])),
        ("examples", ", ".join(f"{split} {count:,}" for split, count in results["examples"].items())),
    ]
    if len(results["seeds"]) > 1:
        facts.insert(2, ("standard deviation over seeds", f"{results['standard_deviation']:.4f}"))
    names = list(dict.fromkeys(name for one in results["seeds"] for name in one["metrics"]))
    table = Table("seed", *names, "steps", "seconds", "failed")
    for one in results["seeds"]:
        figures = [f"{one['metrics'][name]:.4f}" if name in one["metrics"] else "–" for name in names]
        table.add_row(
            str(one["seed"]), *figures, f"{one['steps']:,}", f"{one['seconds']:.0f}", one["failed"] or ""
        )
    return Section(_name(folder), "fine-tuning", facts, results["notes"], [table])


def _study(folder: Path) -> Section:
    report = read_study(folder)
    facts = [
        ("budget of a run", f"{report.facts['flops']:.3e} FLOPs (modern convention)"),
        ("base", str(report.facts["base"])),
    ]
    if report.facts["suite"]:
        what = "95 %, Student's t over the seeds, of the difference to the control with the same seed"
        facts += [("interval", what), ("published", report.facts["paper"] or "–")]
    figure = study_figure(report.facts, report.rows)
    pictures = [Picture(report.facts["title"], _svg(figure))] if figure is not None else []
    notes = [] if report.rows else ["No run has ended yet."]
    if report.rows and report.facts["suite"]:
        notes = [f"As for the paper: {report.sum_up()}."]
    return Section(_name(folder), "study", facts, notes, report.tables(), pictures)


_SECTIONS = {"pre-training": _pretraining, "fine-tuning": _finetuning, "study": _study}


def _side_by_side(runs: Sequence[Path]) -> Section:
    """The held-out figures of several pre-trainings and the settings in which they differ."""
    names = [_name(run) for run in runs]
    evaluations = [found[-1] if (found := read_metrics(run).evaluations) else {} for run in runs]
    shared = set.intersection(*(set(one) for one in evaluations))
    table = Table("held-out figure, last", *names)
    for name in evaluations[0]:
        if name in shared and name.startswith("eval/"):
            table.add_row(_words(name), *(_figure(one[name]) for one in evaluations))
    settings = [dict(_flat(_config(run))) for run in runs]
    differences = Table("setting that differs", *names)
    for key in dict.fromkeys(key for one in settings for key in one):
        values = [str(one.get(key, "–")) for one in settings]
        if len(set(values)) > 1 and key not in ("out", "data"):
            differences.add_row(key, *values)
    tables = [one for one in (table, differences) if one.row_count]
    picture = Picture("held-out figures of all runs against tokens", _svg(side_by_side_figure(runs, names)))
    return Section("Side by side", f"{len(runs)} pre-trainings", tables=tables, pictures=[picture])


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


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _svg(figure: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
