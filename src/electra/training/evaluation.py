"""When held-out figures are taken, and on how much."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluationConfig:
    """The held-out figures."""

    every: int = 0
    """Steps between evaluations; 0: ten in a run."""
    examples: int = 512
    """Held-out examples that are looked at when the run ends."""
    interim_examples: int = 0
    """Held-out examples that are looked at before that, the first ones of the same; 0: all of them."""

    memory_length: int = 0
    """Tokens that a network with a memory remembers meanwhile; 0: as many as in training (model.memory_length)."""

    def at(self, *, last: bool) -> int:
        """How many examples an evaluation looks at."""
        return self.examples if last else min(self.interim_examples or self.examples, self.examples)

    def problems(self) -> Iterator[str]:
        if self.examples < 1:
            yield f"examples: must be at least 1, got {self.examples}"
        if self.interim_examples < 0:
            yield f"interim_examples: must not be negative, got {self.interim_examples}"
        if self.memory_length < 0:
            yield f"memory_length: must not be negative, got {self.memory_length}"
