"""The sections of a report: pre-trainings, fine-tunings, studies, analyses, and comparisons of several runs."""

from collections.abc import Sequence
from pathlib import Path

from electra.errors import CheckpointError
from electra.export.display_name import display_names
from electra.json_files import raise_if_damaged, read_json
from electra.reports.analysis import ANALYSES, load_presenter, read_analyses
from electra.reports.comparison import compare_fine_tunings, compare_runs
from electra.reports.figures import figure_svg
from electra.reports.fine_tuning import fine_tuning_sections
from electra.reports.page import Figure, Section
from electra.reports.pre_training import pre_training_sections
from electra.reports.study import read_study
from electra.reports.study_figure import study_figure
from electra.reports.study_results import is_study


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
    "pre-training": pre_training_sections,
    "fine-tuning": fine_tuning_sections,
    "study": _study,
    "analysis": _analyses,
}
