"""How long a run is, how much of it at once, and on what."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from electra.data.sampling import sequences_before


@dataclass(frozen=True)
class TrainConfig:
    """How long, how much at once, and on what."""

    steps: int | None = None
    """Length of the run in steps."""
    minutes: float | None = None
    """Length of the run in minutes, in place of `steps`: the speed is measured first, then `steps` is fixed."""
    batch_size: int = 128
    """Sequences a step."""
    batch_ramp_steps: int = 0
    """Steps over which the batch grows: a third each with a quarter, a half and three quarters of batch_size; 0:
    it is whole from the start."""
    micro_batch_size: int = 0
    """Sequences that are computed at once, their gradients added up; 0: the whole batch."""
    seed: int = 0
    """Everything random follows from it."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the matrix products; auto: bfloat16 where it is clearly quicker, measured at the start.
    float16, for GPUs without bfloat16, scales the loss."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU where there is one."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the encoders with torch.compile, which takes a minute at the start; auto: on a GPU. On a CPU it has
    not paid (docs/results/performance.md)."""
    deterministic: bool = False
    """The same bits from the same run on a GPU, too, by kernels that add in a fixed order, which are slower. On a
    CPU runs are the same with the same number of threads anyway."""
    sharding: Literal["none", "full"] = "none"
    """Of several processes. none: each holds the whole networks. full: each holds its part of the weights, the
    gradients and the optimiser's state, where one device could not hold them (FSDP2); nothing is compiled then."""
    timeout_minutes: float = 10.0
    """Of several processes: how long one waits for the others before it gives them up and the run ends."""
    on_spike: Literal["warn", "go-back"] = "warn"
    """When the loss leaps: warn; or go-back, too, to the last checkpoint and on without the batches since the last
    report; once, until there is a newer checkpoint. (Where numbers are not finite a run always goes back, once,
    and on without that batch.)"""
    report_every: int = 50
    """Steps between two lines of the console and of metrics.jsonl."""

    def sequences(self, steps: int) -> int:
        """How many sequences so many steps see."""
        return sequences_before(steps, batch_size=self.batch_size, ramp_steps=self.batch_ramp_steps)

    def problems(self) -> Iterator[str]:
        if self.steps is None and self.minutes is None:
            yield "steps: give the length of the run, --train.steps N or --train.minutes M"
        if self.steps is not None and self.steps < 1:
            yield f"steps: must be at least 1, got {self.steps}"
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            yield f"minutes: must be above 0, got {self.minutes}"
        if self.batch_ramp_steps and self.minutes is not None:
            yield "batch_ramp_steps: the speed of small batches is not that of the run; give steps, not minutes"
        if self.batch_ramp_steps < 0:
            yield f"batch_ramp_steps: must not be negative, got {self.batch_ramp_steps}"
        if not self.timeout_minutes > 0:
            yield f"timeout_minutes: must be above 0, got {self.timeout_minutes}"
        for name in ("batch_size", "report_every"):
            if getattr(self, name) < 1:
                yield f"{name}: must be at least 1, got {getattr(self, name)}"
        if self.micro_batch_size < 0 or (self.micro_batch_size and self.batch_size % self.micro_batch_size):
            yield f"micro_batch_size: {self.micro_batch_size} does not divide a batch_size of {self.batch_size}"
