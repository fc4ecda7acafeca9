"""`electra report`: one HTML file about runs, fine-tunings, studies and analyses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electra.errors import ConfigError


@dataclass(frozen=True)
class ReportConfig:
    """The command line of `electra report`."""

    folders: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER...", help_behavior_hint="(required)")
    ]
    """Folders that `electra pretrain`, `finetune`, `study` or `analyze` wrote; several runs are compared."""
    out: Path = Path("report.html")
    """The file to write, .html or .htm. An existing file is replaced."""
    title: str = "electra report"
    """Title of the page."""


def run(config: ReportConfig) -> str:
    """Write one HTML file about runs, fine-tunings, studies and analyses: tables, curves, differing settings.

    The file is self-contained: it opens without a network, and prints well. Runs and studies that are still in
    progress are shown with their results so far.

    Examples:
        electra report RUN
        electra report RUN-1 RUN-2 OUT-CHUNKING STUDY --out all.html --title "Our text, two generators"
    """
    from electra import durable
    from electra.reports.page import render_page
    from electra.reports.sections import build_sections
    from electra.serving.text_files import check_suffix

    if not config.folders:
        raise ConfigError("electra report needs the folder of a run, a fine-tuning, a study or an analysis")
    if config.out.is_dir():
        raise ConfigError(f"--out {config.out} is a folder; give a file, such as {config.out / 'report.html'}")
    check_suffix(config.out, (".html", ".htm"), option="--out")
    sections = build_sections(config.folders)
    config.out.parent.mkdir(parents=True, exist_ok=True)
    replaced = " (replaces an earlier file)" if config.out.exists() else ""
    durable.write_text(config.out, render_page(config.title, sections))
    return f"{config.out}: {len(sections)} section{'s' if len(sections) > 1 else ''}{replaced}"
