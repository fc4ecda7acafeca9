"""Length of a run, size of its batches, precision and device."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from electra.config import NonNegativeInt, PositiveFloat, PositiveInt
from electra.data.sampling import sequences_before


@dataclass(frozen=True)
class LoopConfig:
    """Settings of the training loop that pre-training and fine-tuning share."""

    batch_size: PositiveInt = 128
    """Rows (sequences) per step."""
    micro_batch_size: NonNegativeInt = 0
    """Rows per forward and backward pass. Gradients are accumulated over the batch. 0: the whole batch at once."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of matrix products. auto: bfloat16 if it is clearly faster, which is measured at the start.
    float16, for GPUs without bfloat16, uses loss scaling."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to compute on. auto: the GPU if there is one."""
    report_every: PositiveInt = 50
    """Steps between two reports on the console and in metrics.jsonl."""

    def problems(self) -> Iterator[str]:
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            yield f"micro_batch_size: {self.micro_batch_size} does not divide a batch_size of {self.batch_size}"


@dataclass(frozen=True)
class TrainConfig(LoopConfig):
    """Length of a run, size of its batches, precision and device."""

    steps: PositiveInt | None = None
    """Length of the run in steps."""
    minutes: float | None = None
    """Length of the run in minutes, in place of `steps`: the speed is measured first, then `steps` is fixed."""
    batch_ramp_steps: NonNegativeInt = 0
    """Steps over which the batch grows: a third each with a quarter, a half and three quarters of batch_size; 0:
    it is whole from the start."""
    seed: int = 0
    """Everything random follows from it."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the encoders with torch.compile, which takes a minute at the start; auto: on a GPU. On a CPU it has
    not paid (docs/results/performance.md)."""
    deterministic: bool = False
    """The same bits from the same run on a GPU, too, by kernels that add in a fixed order, which are slower. On a
    CPU runs are the same with the same number of threads anyway."""
    sharding: Literal["none", "full"] = "none"
    """Of several processes. none: each holds the whole networks. full: each holds its part of the weights, the
    gradients and the optimiser's state, where one device could not hold them (FSDP2); nothing is compiled then."""
    timeout_minutes: PositiveFloat = 10.0
    """Of several processes: how long one waits for the others before it gives them up and the run ends."""
    on_spike: Literal["warn", "go-back"] = "warn"
    """When the loss leaps: warn; or go-back, too, to the last checkpoint and on without the batches since the last
    report; once, until there is a newer checkpoint. (Where numbers are not finite a run always goes back, once,
    and on without that batch.)"""

    def sequences(self, steps: int) -> int:
        """How many sequences so many steps see."""
        return sequences_before(steps, batch_size=self.batch_size, ramp_steps=self.batch_ramp_steps)

    def problems(self) -> Iterator[str]:
        if self.steps is None and self.minutes is None:
            yield "steps: give the length of the run, --train.steps N or --train.minutes M"
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            yield f"minutes: must be above 0, got {self.minutes}"
        if self.batch_ramp_steps and self.minutes is not None:
            yield "batch_ramp_steps: the speed of small batches is not that of the run; give steps, not minutes"
        yield from super().problems()
