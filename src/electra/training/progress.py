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
    measured: list[float] = field(default_factory=list)
    """Seconds of each step, until `minutes` has been turned into a number of them."""
    evaluation_seconds: float = 0.0
    """What the last evaluation took."""
    steps: int | None = None
    """Length of the run, once `minutes` has been turned into it."""
    sums: dict[str, float] = field(default_factory=dict)
    """Sums since the last report: of every part of the loss, of tokens, FLOPs and seconds."""
