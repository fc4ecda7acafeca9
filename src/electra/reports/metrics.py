"""The metrics that a run wrote."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.errors import CheckpointError

Record = dict[str, Any]


@dataclass(frozen=True)
class Metrics:
    """The records of a metrics.jsonl by kind, in order.

    Attributes:
        reports: metrics of training.
        evaluations: held-out metrics.
        findings: health problems.
    """

    reports: list[Record]
    evaluations: list[Record]
    findings: list[Record]


def read_metrics(run: Path) -> Metrics:
    """Read the metrics in a run's folder; incomplete lines, such as one that is just being written, are left out.

    Raises:
        CheckpointError: the folder has no metrics.jsonl.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise CheckpointError(f"{run} has no metrics.jsonl; is it the folder of a run?")
    metrics = Metrics([], [], [])
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            continue
        if "health" in record:
            metrics.findings.append(record)
        elif any(name.startswith("eval/") for name in record):
            metrics.evaluations.append(record)
        else:
            metrics.reports.append(record)
    return metrics
