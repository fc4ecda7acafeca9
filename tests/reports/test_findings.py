"""Health problems of a run, as notes: whether they have passed depends on how far the run is."""

import pytest

from electra.objectives.health import STUCK
from electra.reports.findings import finding_notes
from electra.reports.metrics import Metrics


@pytest.mark.parametrize(("steps", "passed"), [(100, ""), (200, ", has passed")])
def test_a_problem_of_late_steps_is_judged_by_the_last_report(steps: int, passed: str) -> None:
    """A discriminator can be called stuck in the second half of a run only."""
    stuck = {
        "step": 90, "tokens": 10**6, "eval/discriminator_auc": 0.5, "eval/unigram_auc": 0.5,
        "eval/discriminator_loss": 0.4, "eval/majority_loss": 0.4,
    }  # fmt: skip
    finding = {"step": 60, "health": STUCK, "message": "every token is original", "remedy": "train longer"}
    metrics = Metrics([{"step": 10}, {"step": 90}], [stuck], [finding])
    [note] = finding_notes(metrics, steps)
    assert note == f"Step 60{passed}: {STUCK}: every token is original; train longer"
