"""What a fine-tuning will take: measured on a few of its own steps."""

import math
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import to_toml
from electra.data.sampling import epoch_rows
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.export import export_model
from electra.finetuning.results import SeedResult
from electra.finetuning.run import build_setup
from electra.finetuning.seed_run import (
    DEV,
    FinetuneSetup,
    build_model,
    micro_batches,
    step_count,
    training_rows,
)
from electra.tasks.base import collate
from electra.tasks.task_model import TaskModel, layer_decay_scales
from electra.training.allocator import peak_memory
from electra.training.optim import build_optimizer
from electra.training.precision import Precision
from electra.training.tracking import clock
from electra.training.update import Update

TRIED = 10
"""Steps that are taken."""


@dataclass(frozen=True)
class FinetunePlan:
    """A fine-tuning's resolved config and what it would take.

    Attributes:
        preparation: seconds until the first seed begins: loading and tokenising.
        seconds: of each seed, with its evaluations and the exported model.
        predictions: seconds in which the best seed's model, as it was exported, predicts the further splits.
        memory: bytes at the peak.
    """

    config: FinetuneConfig
    parameters: int
    rows: int
    steps: int
    preparation: float
    seconds: float
    predictions: float
    memory: int

    def __rich__(self) -> RenderableType:
        table = Table("", "", show_header=False)
        table.add_row("parameters", f"{self.parameters:,}")
        table.add_row("rows to learn from", f"{self.rows:,}")
        table.add_row("steps of each seed", f"{self.steps:,}")
        table.add_row("time of each seed, about", clock(self.seconds))
        total = self.preparation + self.config.seeds * self.seconds + self.predictions
        table.add_row("time in all, from loading on", clock(total))
        table.add_row("memory at the peak, about", f"{self.memory / 2**30:.2f} GiB")
        return Group(to_toml(self.config), table)


def plan_finetuning(config: FinetuneConfig) -> FinetunePlan:
    """Take the step with the longest rows and some others, count how many tokens all steps have, and export once.

    Raises:
        ElectraError: the config, the data or the model cannot be used as they are.
    """
    start = time.perf_counter()
    setting = build_setup(config)
    preparation = time.perf_counter() - start
    config = setting.config
    rows = training_rows(setting, config.seed)
    steps, module = step_count(config, rows), build_model(setting, config.seed).train()
    optimizer = config.optimizer.for_steps(steps)
    decay, mode = config.optimizer.layer_decay, config.optimizer.layer_decay_mode
    update = Update(
        module,
        build_optimizer(
            module, optimizer,
            rate_scales=layer_decay_scales(module, decay, mode=mode),
        ),
        gradient_clip=optimizer.gradient_clip,
        precision=setting.precision,
        device=setting.device,
    )  # fmt: skip
    epoch = math.ceil(len(rows) / config.train.batch_size)
    lengths = [
        rows.lengths[epoch_rows(step, seed=config.seed, batch_size=config.train.batch_size, examples=len(rows))]
        for step in range(min(steps, epoch))
    ]
    sizes = np.array([int(each.sum()) for each in lengths])
    order = np.argsort(-sizes, kind="stable")
    tried = order[np.unique(np.linspace(0, len(order) - 1, min(TRIED, len(order))).round().astype(int))].tolist()
    seconds = []
    for step in [tried[0], *tried]:  # the first one warms up
        start = time.perf_counter()
        batches = micro_batches(config, rows, step, pad=setting.pad, device=setting.device)
        update(batches, optimizer.learning_rate)["loss"].item()
        seconds.append(time.perf_counter() - start)
    of_steps = float(np.interp(sizes, sizes[tried][::-1], seconds[1:][::-1]).mean()) * steps
    look = config.evaluation
    every = look.every or (epoch if look.keep == "best" or look.patience else steps)
    looks = {DEV: math.ceil(steps / every) + (look.keep == "best"), **dict.fromkeys(setting.judged, 1)}
    total = of_steps + sum(count * _evaluation_seconds(setting, module, split) for split, count in looks.items())
    further = [split for split in setting.rows if split not in ("train", DEV)]
    exported = replace(setting, precision=Precision("float32", "", 0.0))
    predictions = sum(_evaluation_seconds(exported, module, split) for split in further)
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # which also needs memory, and says what transformers cannot hold
        export_model(setting, module, Path(folder), SeedResult(config.seed, {}, None, 0, 0.0))
    total += time.perf_counter() - start
    parameters = sum(p.numel() for p in module.parameters())
    memory = peak_memory(setting.device)
    return FinetunePlan(config, parameters, len(rows), steps, preparation, total, predictions, memory)


def _evaluation_seconds(setting: FinetuneSetup, module: TaskModel, split: str) -> float:
    """Of one look at a split, from its longest batch and two more."""
    rows = setting.rows[split]
    batches = list(module.batches(rows, device=setting.device))
    tokens = [len(chosen) * int(rows.lengths[chosen].max()) for chosen in batches]
    rates = []
    module.eval()
    for place in sorted({0, len(batches) // 2, len(batches) - 1}):
        chosen, size = batches[place], tokens[place]
        start = time.perf_counter()
        with torch.no_grad(), setting.precision.autocast(setting.device):
            batch = collate(rows, chosen, pad=setting.pad).to(setting.device)
            module.problem.outputs(module.logits(batch), batch)
        rates.append((time.perf_counter() - start) / size)
    return statistics.median(rates) * sum(tokens)
