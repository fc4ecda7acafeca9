"""The sections of a report: pre-trainings, fine-tunings, studies, analyses, and comparisons of several runs."""

from collections.abc import Sequence
from pathlib import Path

from electra.export.display_name import display_names
from electra.json_files import raise_if_damaged
from electra.reports.analysis import load_presenter, read_analyses
from electra.reports.comparison import compare_fine_tunings, compare_runs
from electra.reports.figures import figure_svg
from electra.reports.fine_tuning import fine_tuning_sections
from electra.reports.folders import kind_of, reportable_folders
from electra.reports.page import Figure, Section
from electra.reports.pre_training import pre_training_sections
from electra.reports.study import read_study
from electra.reports.study_figure import study_figure


def build_sections(folders: Sequence[Path]) -> list[Section]:
    """A section for each folder; several runs or fine-tunings are first compared with each other.

    Raises:
        CheckpointError: a folder holds nothing that can be reported.
    """
    folders = reportable_folders(folders)
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
