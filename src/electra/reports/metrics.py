"""What a run wrote about itself, read back."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.errors import CheckpointError

Figures = dict[str, Any]


@dataclass(frozen=True)
class Metrics:
    """The objects of a metrics.jsonl, by kind and in order."""

    reports: list[Figures]
    evaluations: list[Figures]
    findings: list[Figures]


def read_metrics(run: Path) -> Metrics:
    """The metrics of a run's folder; lines that are torn, such as one that is just being written, are left out.

    Raises:
        CheckpointError: the folder has no metrics.jsonl.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise CheckpointError(f"{run} has no metrics.jsonl; is it the folder of a run?")
    metrics = Metrics([], [], [])
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            figures = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(figures, dict) or not isinstance(figures.get("step"), int):
            continue
        if "health" in figures:
            metrics.findings.append(figures)
        elif any(name.startswith("eval/") for name in figures):
            metrics.evaluations.append(figures)
        else:
            metrics.reports.append(figures)
    return metrics
