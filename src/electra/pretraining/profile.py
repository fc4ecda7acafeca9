"""`electra pretrain --profile N`: where the time of a training step goes."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from electra.modeling.device import synchronize
from electra.pretraining.build import build, open_data
from electra.pretraining.config import PretrainConfig
from electra.pretraining.resolve import resolve
from electra.training.optim import build_optimizer
from electra.training.run_folder import open_run
from electra.training.update import Update

WARMUP_STEPS = 3
"""Steps before the profiled ones: the first steps allocate memory and compile."""
TABLE_ROWS = 10


@dataclass(frozen=True)
class Operation:
    """An operation in all profiled steps together, without the operations that it calls.

    Attributes:
        seconds: time on the device of the run.
    """

    name: str
    seconds: float
    calls: int


@dataclass(frozen=True)
class Profile:
    """The profile: operations in descending order of time, and the path of the trace."""

    trace: Path
    device: torch.device
    steps: int
    operations: list[Operation]

    def __rich__(self) -> RenderableType:
        total = sum(operation.seconds for operation in self.operations)
        title = f"{self.steps} steps on {self.device}, {1000 * total / self.steps:,.1f} ms of operations per step"
        table = Table(title=title, title_justify="left")
        table.add_column("operation")
        for column in ("share", "ms per step", "calls per step"):
            table.add_column(column, justify="right")
        for operation in self.operations[:TABLE_ROWS]:
            share, milliseconds = operation.seconds / total, 1000 * operation.seconds / self.steps
            calls = f"{operation.calls / self.steps:,.0f}"
            table.add_row(operation.name, f"{share:.1%}", f"{milliseconds:,.1f}", calls)
        others = sum(operation.seconds for operation in self.operations[TABLE_ROWS:])
        table.add_row("all others", f"{others / total:.1%}", f"{1000 * others / self.steps:,.1f}", "", style="dim")
        return Group(table, f"trace: {self.trace} (for https://ui.perfetto.dev or chrome://tracing)")


def profile_steps(config: PretrainConfig, steps: int) -> Profile:
    """Train for a few steps and write a Chrome trace; weights and metrics are discarded.

    Raises:
        ElectraError: the config, the data or the run's folder cannot be used.
    """
    data, out = open_data(config)
    resolved = resolve(config, data)
    trace = open_run(out, fresh=False).trace
    parts = build(replace(resolved.config, out=None), data, resolved.warm_start)
    objective, device = parts.objective, parts.device
    update = Update(
        objective,
        build_optimizer(objective, config.optimizer),
        gradient_clip=config.optimizer.gradient_clip,
        precision=parts.precision,
        device=device,
    )
    objective.train()

    if total := config.train.steps:
        objective.begin_step(config.objective.typical_step(total), total)

    def train(begin: int, end: int) -> None:
        for step in range(begin, end):
            update(parts.batches.micro_batches(step), rate=config.optimizer.learning_rate)
        synchronize(device)

    train(0, WARMUP_STEPS)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # without it, the profiler writes to the console
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiler:
        train(WARMUP_STEPS, WARMUP_STEPS + steps)
    trace.parent.mkdir(exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    return Profile(trace, device, steps, operations(profiler.key_averages(), on_cpu=device.type == "cpu"))


def operations(events: Iterable[Any], *, on_cpu: bool) -> list[Operation]:
    """Operations in descending order of their own time.

    On a GPU these are the kernels: the operations that launch them, and user annotations, contain the same time
    again.
    """
    result = []
    for event in events:
        if on_cpu:
            result.append(Operation(event.key, event.self_cpu_time_total / 1e6, event.count))
        elif event.device_type.name != "CPU" and not event.is_user_annotation:
            result.append(Operation(event.key, event.self_device_time_total / 1e6, event.count))
    return sorted(result, key=lambda operation: -operation.seconds)
