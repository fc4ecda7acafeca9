"""`electra report`: one HTML file of runs, fine-tunings, studies and analyses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electra import durable
from electra.errors import ConfigError
from electra.reports.page import render_page
from electra.reports.sections import build_sections


@dataclass(frozen=True)
class ReportConfig:
    """The command line of `electra report`."""

    folders: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER...", help_behavior_hint="(required)")
    ]
    """Folders that `electra pretrain`, `finetune`, `study` or `analyze` wrote; several runs are compared."""
    out: Path = Path("report.html")
    """The file to write."""
    title: str = "electra report"
    """Stands at the top of the page."""


def run(config: ReportConfig) -> str:
    """Write one HTML file of runs, fine-tunings, studies and analyses: tables, curves, differing settings.

    The file needs nothing else: it opens from the disk, without a network, and prints well. Runs and studies
    that are still going on are shown as far as they are.

    Examples:
        electra report RUN
        electra report RUN-1 RUN-2 OUT-CHUNKING STUDY --out all.html --title "Our text, two generators"
    """
    if not config.folders:
        raise ConfigError(
            "electra report: no folder was named; give that of a run, a fine-tuning, a study or an analysis"
        )
    found = build_sections(config.folders)
    config.out.parent.mkdir(parents=True, exist_ok=True)
    durable.write_text(config.out, render_page(config.title, found))
    return f"{config.out}: {len(found)} section{'s' if len(found) > 1 else ''}"
