"""How far a run has come."""

from dataclasses import dataclass, field


@dataclass
class Progress:
    """What changes as a run goes on, besides the weights; a checkpoint keeps all of it."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    passed_over: list[int] = field(default_factory=list)
    """Steps (from 0) whose batches are left out, since the run went back because of them."""
    went_back_from: int | None = None
    """Where the run last went back to a checkpoint; None once there is a newer one."""
    measured: list[float] = field(default_factory=list)
    """Seconds of each step, until `minutes` has been turned into a number of them."""
    evaluation_seconds: float = 0.0
    """What the last evaluation took."""
    steps: int | None = None
    """Length of the run, once `minutes` has been turned into it."""
    sums: dict[str, float] = field(default_factory=dict)
    """Sums since the last report: of every part of the loss, of tokens, FLOPs and seconds."""
