"""The sections of a report: pre-trainings, fine-tunings, studies, analyses, and comparisons of several runs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from electra.errors import CheckpointError
from electra.export.display_name import display_names
from electra.json_files import raise_if_damaged, read_json
from electra.objectives.metric_labels import metric_label
from electra.reports.analysis import ANALYSES, load_presenter, read_analyses
from electra.reports.budget import describe_time
from electra.reports.comparison import compare_fine_tunings, compare_runs, format_value, read_config
from electra.reports.curves import run_panels
from electra.reports.figures import figure_svg
from electra.reports.findings import finding_notes
from electra.reports.fine_tuning import fine_tuning_sections
from electra.reports.metrics import read_metrics
from electra.reports.page import Figure, Section
from electra.reports.study import read_study
from electra.reports.study_figure import study_figure
from electra.reports.study_results import is_study

Contents = Mapping[str, Any]
"""The contents of a JSON or TOML file."""


def build_sections(folders: Sequence[Path]) -> list[Section]:
    """A section for each folder; several runs or fine-tunings are first compared with each other.

    Raises:
        CheckpointError: a folder holds nothing that can be reported.
    """
    folders = [part for folder in folders for part in _split_tasks(folder)]
    kinds = [kind_of(folder) for folder in folders]
    names = display_names(folders)
    sections = []
    for folder, kind, name in zip(folders, kinds, names, strict=True):
        with raise_if_damaged(folder):
            sections += _SECTIONS[kind](folder, name)
    by_kind: dict[str, dict[str, Path]] = {}
    for folder, kind, name in zip(folders, kinds, names, strict=True):
        by_kind.setdefault(kind, {})[name] = folder
    if len(fine_tunings := by_kind.get("fine-tuning", {})) > 1:
        sections.insert(0, compare_fine_tunings(fine_tunings))
    if len(runs := by_kind.get("pre-training", {})) > 1:
        sections.insert(0, compare_runs(runs))
    return sections


def _split_tasks(folder: Path) -> list[Path]:
    """The folder; or the tasks' folders, if `electra finetune --task glue` made one for each."""
    if kind_of(folder) != "fine-tuning" or "seeds" in read_json(folder / "results.json", optional=True):
        return [folder]
    tasks = sorted(path.parent for path in folder.glob("*/results.json"))
    if not tasks:
        raise CheckpointError(
            f"{folder}: results.json is of several tasks, but the folders of the tasks are missing; give the "
            "folder of one task, or fine-tune again"
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
            f"{folder}: this fine-tuning has no results yet; the same `electra finetune` command resumes it"
        )
    raise CheckpointError(
        f"{folder} holds no run, fine-tuning, study or analysis; give a folder that `electra pretrain`, "
        "`electra finetune`, `electra study` or `electra analyze` wrote"
    )


def _pretraining(folder: Path, name: str) -> list[Section]:
    metrics, config = read_metrics(folder), read_config(folder)
    environment = read_json(folder / "environment.json", optional=True)
    properties = []
    if metrics.reports:
        last = metrics.reports[-1]
        properties = [
            ("steps", f"{last['step']:,} of {config.get('train', {}).get('steps', 0):,}"),
            ("tokens", f"{last['tokens']:,}"),
            ("training FLOPs", f"{last['flops']:.3e}"),
            ("time", describe_time(metrics)),
        ]
    properties += list(_setup(config, environment))
    tables = []
    if metrics.evaluations:
        evaluation = metrics.evaluations[-1]
        table = Table("held-out metric", f"step {evaluation['step']:,}")
        for key, value in evaluation.items():
            if key.startswith("eval/"):
                table.add_row(metric_label(key), format_value(value))
        tables.append(table)
    notes = finding_notes(metrics, config.get("train", {}).get("steps"))
    figures = [Figure(panel.title, figure_svg(panel.figure())) for panel in run_panels(metrics)]
    return [Section(name, "pre-training", properties, notes, tables, figures)]


def _setup(config: Contents, environment: Contents) -> Iterator[tuple[str, str]]:
    yield "objective", str(config.get("objective", {}).get("kind", "replaced-token"))
    if data := environment.get("data", {}).get("statistics"):
        yield "data", f"{data['documents']:,} documents, {data['tokens']:,} tokens"
    if "torch" in environment:
        precision = config.get("train", {}).get("precision", "")
        machine = (
            environment.get("accelerator") or f"{environment['processor']}, threads: {environment['threads']}"
        )
        yield "machine", f"{machine}, {precision}, PyTorch {environment['torch']}"


def _study(folder: Path, name: str) -> list[Section]:
    report = read_study(folder)
    precisions = sorted({run["precision"] for run in report.runs if "precision" in run})
    properties = [
        ("budget of a run", f"{report.study['flops']:.3e} FLOPs (modern convention)"),
        ("base", str(report.study["base"])),
        ("precision", ", ".join(precisions) or "–"),
        ("fine-tuning", " ".join(report.study["tune"]) or "defaults"),
        ("interval", "95%, Student's t over the seeds, of the difference to the control with the same seed"),
    ]
    if report.study["paper"]:
        properties.append(("published", report.study["paper"]))
    figure = study_figure(report.study, report.arms)
    figures = [Figure(report.study["title"], figure_svg(figure))] if figure is not None else []
    notes = [] if report.arms else ["No run has finished yet."]
    if report.arms and report.study["suite"]:
        notes = [f"Compared with the paper: {report.summarize_agreement()}."]
    return [Section(name, "study", properties, notes, report.tables(), figures)]


def _analyses(folder: Path, name: str) -> list[Section]:
    sections = []
    for analysis in read_analyses(folder):
        presenter, results = load_presenter(analysis.name), analysis.results
        figure = presenter.draw(results)
        figures = [Figure(presenter.FIGURE_DESCRIPTION, figure_svg(figure))] if figure is not None else []
        tables, notes = presenter.build_tables(results), presenter.build_notes(results)
        sections.append(Section(presenter.TITLE, f"analysis, {name}", (), notes, tables, figures))
    return sections


_SECTIONS = {
    "pre-training": _pretraining, "fine-tuning": fine_tuning_sections, "study": _study, "analysis": _analyses,
}  # fmt: skip
