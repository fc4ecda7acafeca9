"""Which precision to train in: measured, not assumed.

Some CPUs multiply bfloat16 matrices twice as fast as float32, others a hundred times slower; only a
measurement tells them apart.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

PrecisionName = Literal["float32", "bfloat16", "float16"]
ROUNDS = 3
"""In which a step is timed in both."""
CLEARLY = 0.95
"""Of float32's time a step in bfloat16 must take at most: for less, chance would decide."""
PRECISIONS: dict[PrecisionName, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
MEASURED: tuple[PrecisionName, ...] = ("float32", "bfloat16")
"""Those that are chosen from. float16 is for who asks for it: it needs a scale, and is quicker nowhere."""


@dataclass(frozen=True)
class Precision:
    """The precision of a run's products.

    Attributes:
        name: `float32`, `bfloat16` or `float16`.
        reason: what was measured, for a person to read.
        product_flops: FLOP/s of a plain matrix product in it: what utilisation is a share of.
    """

    name: PrecisionName
    reason: str
    product_flops: float

    def autocast(self, device: torch.device) -> torch.autocast:
        """A context in which products run in this precision."""
        return torch.autocast(device.type, dtype=PRECISIONS[self.name], enabled=self.name != "float32")


def choose_precision(
    wanted: PrecisionName | Literal["auto"], device: torch.device, step: Callable[[], None]
) -> Precision:
    """The wanted precision; for `"auto"` float32, unless bfloat16 is clearly quicker.

    Plain products are timed first: where bfloat16 loses there, a whole step in it could take minutes. Only
    where it wins is `step` (a forward and a backward pass) timed in both.
    """
    names = MEASURED if wanted == "auto" else (wanted,)
    flops = {name: product_flops(PRECISIONS[name], device) for name in names}
    speeds = ", ".join(f"{name} {speed / 1e9:,.0f}" for name, speed in flops.items())
    products = f"matrix products in GFLOP/s: {speeds}"
    if wanted != "auto":
        return Precision(wanted, f"as set; {products}", flops[wanted])
    if flops["bfloat16"] <= flops["float32"]:
        return Precision("float32", products, flops["float32"])
    seconds = dict.fromkeys(MEASURED, math.inf)
    for _ in range(ROUNDS):  # in turn: beside other work one of the two would else be timed in a worse moment
        for name in MEASURED:
            with Precision(name, "", 0.0).autocast(device):
                seconds[name] = min(seconds[name], _quickest(step, device, repeats=2))
    name = "bfloat16" if seconds["bfloat16"] < CLEARLY * seconds["float32"] else "float32"
    steps = ", ".join(f"{name} {second:.3f}" for name, second in seconds.items())
    return Precision(name, f"seconds a step: {steps}; {products}", flops[name])


def product_flops(dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a square matrix product, the best of a few."""
    size = 512 if device.type == "cpu" else 4096
    x = torch.randn(size, size, device=device).to(dtype)
    return 2.0 * size**3 / _quickest(lambda: torch.mm(x, x), device, repeats=4)


def _quickest(work: Callable[[], object], device: torch.device, *, repeats: int) -> float:
    """Seconds of the quickest of several runs; the first one only warms up."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
