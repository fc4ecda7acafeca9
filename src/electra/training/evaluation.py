"""When held-out figures are taken, and on how much."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluationConfig:
    """The held-out figures."""

    every: int = 0
    """Steps between evaluations; 0: ten in a run."""
    examples: int = 512
    """Held-out examples that are looked at, the same ones every time."""

    def problems(self) -> Iterator[str]:
        if self.examples < 1:
            yield f"examples: must be at least 1, got {self.examples}"
