"""Choose the precision to train in: on a CPU by measurement, on a GPU by what its hardware has.

Some CPUs multiply bfloat16 matrices twice as fast as float32, others a hundred times slower.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from electra.errors import for_caller
from electra.modeling.device import synchronize

PrecisionName = Literal["float32", "bfloat16", "float16"]
logger = logging.getLogger(__name__)

TIMING_ROUNDS = 3
"""Number of times that a step is timed in each precision, in turn."""
MAX_RELATIVE_TIME = 0.95
"""bfloat16 is chosen if a step takes at most this fraction of the time in float32; closer times are noise."""
SLOW = 3.0
"""A precision whose products take as many times as long as those of float32 is worth a warning."""
PRECISIONS: dict[PrecisionName, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
CANDIDATES: tuple[PrecisionName, ...] = ("float32", "bfloat16")
"""Precisions that "auto" chooses from. Not float16, which needs loss scaling and is not faster than bfloat16."""


@dataclass(frozen=True)
class Precision:
    """The precision of a run's matrix products.

    Attributes:
        name: `float32`, `bfloat16` or `float16`.
        reason: the measurements, as text.
        product_flops: FLOP/s of a matrix product in this precision; utilization is relative to it.
    """

    name: PrecisionName
    reason: str
    product_flops: float

    def autocast(self, device: torch.device) -> torch.autocast:
        """A context in which matrix products run in this precision."""
        return torch.autocast(device.type, dtype=PRECISIONS[self.name], enabled=self.name != "float32")


def choose_precision(
    wanted: PrecisionName | Literal["auto"], device: torch.device, step: Callable[[], None]
) -> Precision:
    """Return the wanted precision; for `"auto"`, bfloat16 if it is clearly faster than float32, else float32.
    On Nvidia's GPUs it is bfloat16 if the hardware has it, on Apple's it is float32.

    Nothing is timed on a GPU: a step that is not compiled mostly waits for the host there, so float32 seemed
    faster on an H100, whose products in bfloat16 are 14 times as fast.

    On a CPU, matrix products are timed first, because a whole step in slow bfloat16 could take minutes. `step` (a
    forward and a backward pass) is timed in both precisions only if bfloat16 products are faster.
    """
    if wanted == "auto" and device.type == "mps":
        speed = product_flops(torch.float32, device)
        return Precision("float32", "bfloat16 has never been measured on Apple's GPUs", speed)
    if wanted == "auto" and device.type == "cuda":
        name: PrecisionName = "float32"
        if supported := torch.cuda.is_bf16_supported(including_emulation=False):
            name = "bfloat16"
        reason = f"the GPU {'has' if supported else 'does not have'} bfloat16"
        return Precision(name, reason, product_flops(PRECISIONS[name], device))
    names: tuple[PrecisionName, ...] = CANDIDATES if wanted == "auto" else (wanted,)
    if device.type == "cpu":
        names = tuple(dict.fromkeys(("float32", *names)))
    flops = {name: product_flops(PRECISIONS[name], device) for name in names}
    speeds = ", ".join(f"{name} {speed / 1e9:,.0f}" for name, speed in flops.items())
    products = f"matrix products in GFLOP/s: {speeds}"
    if wanted != "auto":
        if (times := flops.get("float32", 0.0) / flops[wanted]) >= SLOW:
            logger.warning(
                for_caller(
                    "%s is %.0f times slower than float32 on this CPU; train with --train.precision float32, or "
                    "auto, unless the result must be that of a run elsewhere"
                ), wanted, times,
            )  # fmt: skip
        return Precision(wanted, f"set by train.precision; {products}", flops[wanted])
    if flops["bfloat16"] <= flops["float32"]:
        return Precision("float32", products, flops["float32"])
    logger.info("timing a step in %s", " and in ".join(CANDIDATES))
    seconds = dict.fromkeys(CANDIDATES, math.inf)
    for _ in range(TIMING_ROUNDS):  # in turn, so that other work on the machine affects both
        for name in CANDIDATES:
            with Precision(name, "", 0.0).autocast(device):
                seconds[name] = min(seconds[name], _min_seconds(step, device, repeats=2))
    name = "bfloat16" if seconds["bfloat16"] < MAX_RELATIVE_TIME * seconds["float32"] else "float32"
    steps = ", ".join(f"{name} {second:.3f}" for name, second in seconds.items())
    return Precision(name, f"seconds per step: {steps}; {products}", flops[name])


def product_flops(dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a square matrix product, the best of a few runs."""
    size = 512 if device.type == "cpu" else 4096
    x = torch.randn(size, size, device=device).to(dtype)
    return 2.0 * size**3 / _min_seconds(lambda: torch.mm(x, x), device, repeats=4)


def _min_seconds(work: Callable[[], object], device: torch.device, *, repeats: int) -> float:
    """Seconds of the fastest of several runs; the first one is a warm-up and does not count."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
