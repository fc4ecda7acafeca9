"""What a run says when it goes back to a checkpoint because its loss leapt, and when it can do so no more."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from electra.errors import DivergedError
from electra.training.health import LOSS_SPIKE, Finding
from electra.training.step_metrics import SkippedStep

NOT_FINITE_IN_A_ROW = 5
"""So many steps in a row that cannot be applied end a run."""


def with_rollback_answer(findings: Sequence[Finding], checkpoint: str | None, *, before: bool) -> list[Finding]:
    """Findings with what a run that goes back from spikes does about them, in place of advice.

    Args:
        checkpoint: the name of the one that it goes back to; None: it only warns.
        before: whether it has gone back since its newest checkpoint was written.
    """
    why_not = "the run went back once already" if before else "there is no checkpoint to go back to"
    answer = f"the run goes back to {checkpoint}" if checkpoint else f"{why_not}; this is only a warning"
    return [replace(one, remedy=answer) if one.name == LOSS_SPIKE else one for one in findings]


def diverged_error(last: SkippedStep, *, before: int | None, rows: Path, newest: str) -> DivergedError:
    """The end of a run whose steps are not finite.

    Args:
        before: the step that the run went back from already; None: so many in a row were not finite.
        rows: the file of the last step's rows.
        newest: what there is to say of the newest checkpoint.
    """
    tried = f"the run had gone back to a checkpoint because of step {before} already"
    if before is None:
        tried = f"{NOT_FINITE_IN_A_ROW} in a row"
    return DivergedError(
        f"steps are not finite, the last one step {last.step} (loss {last.loss:g}, norm of the gradient "
        f"{last.gradient_norm:g}); {tried}\n  its rows are in {rows}\n"
        f"  {newest}; lower optimizer.learning_rate or set train.precision to float32 and start beside it with "
        "--fresh"
    )
