"""Messages of a rollback to a checkpoint, and of a run that cannot roll back any more."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from electra.errors import DivergedError
from electra.objectives.health import LOSS_SPIKE, Finding
from electra.training.step_metrics import SkippedStep

MAX_SKIPPED_IN_A_ROW = 5
"""A run ends with an error after so many skipped steps in a row."""


def with_rollback_remedy(findings: Sequence[Finding], checkpoint: str | None, *, before: bool) -> list[Finding]:
    """Replace the remedy of loss spikes by what the run does about them.

    Args:
        checkpoint: the name of the checkpoint that the run goes back to; None: it only warns.
        before: whether the run has gone back since its newest checkpoint was written.
    """
    why_not = "the run went back once already" if before else "there is no checkpoint to go back to"
    remedy = f"the run goes back to {checkpoint}" if checkpoint else f"{why_not}; this is only a warning"
    return [replace(one, remedy=remedy) if one.name == LOSS_SPIKE else one for one in findings]


def diverged_error(last: SkippedStep, *, before: int | None, rows: Path, newest: str) -> DivergedError:
    """The error of a run whose steps are not finite.

    Args:
        before: the step that the run went back from already; None: too many steps in a row were not finite.
        rows: the file with the rows of the last step.
        newest: a sentence about the newest checkpoint.
    """
    reason = f"the run had gone back to a checkpoint because of step {before} already"
    if before is None:
        reason = f"{MAX_SKIPPED_IN_A_ROW} in a row"
    return DivergedError(
        f"the loss or gradient is not finite, last at step {last.step} (loss {last.loss:g}, norm of the gradient "
        f"{last.gradient_norm:g}); {reason}\n  its rows are in {rows}\n"
        f"  {newest}; lower optimizer.learning_rate or set train.precision to float32, and start a new run with "
        "--fresh"
    )
