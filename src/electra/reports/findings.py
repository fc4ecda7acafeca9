"""Health problems of a run, as notes of its section."""

from electra.objectives.health import has_passed
from electra.reports.metrics import Metrics


def finding_notes(metrics: Metrics, steps: int | None, *, run: str = "") -> list[str]:
    """Each health problem, whether it has passed, and what to do about it, as in the run's log.

    Args:
        steps: the length of the run; None if not known.
        run: written before each note, where a section has several runs.
    """
    progress = metrics.reports[-1]["step"] / steps if steps and metrics.reports else 0.0
    notes = []
    for finding in metrics.findings:
        passed = has_passed(
            finding["health"], finding["step"],
            reports=metrics.reports, evaluations=metrics.evaluations, progress=progress,
        )  # fmt: skip
        where = f"{run}, step" if run else "Step"
        when = ", has passed" if passed else ""
        remedy = f"; {finding['remedy']}" if finding.get("remedy") else ""
        notes.append(f"{where} {finding['step']:,}{when}: {finding['health']}: {finding['message']}{remedy}")
    return notes
