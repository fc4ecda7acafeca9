"""Time and memory of a fine-tuning, measured on a few of its steps."""

import math
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import to_toml
from electra.data.sampling import epoch_rows
from electra.durations import format_duration
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.export import export_model
from electra.finetuning.results import SeedResult
from electra.finetuning.setup import DEV, FinetuneSetup, build_setup, count_steps, micro_batches
from electra.tasks.base import Rows, collate
from electra.tasks.task_model import TaskModel, layer_decay_scales
from electra.training.allocator import peak_memory
from electra.training.optim import build_optimizer
from electra.training.precision import Precision
from electra.training.update import Update

MEASURED_STEPS = 10


@dataclass(frozen=True)
class FinetuneEstimate:
    """The resolved config of a fine-tuning, and its estimated time and memory.

    Attributes:
        rows: number of training rows.
        steps: steps of each seed.
        preparation: seconds until the first seed starts: loading and tokenizing.
        seconds: duration of each seed, including its evaluations and the export of its model.
        predictions: seconds in which the best model predicts the other splits.
        memory: peak memory in bytes.
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
        table.add_row("training rows", f"{self.rows:,}")
        table.add_row("steps of each seed", f"{self.steps:,}")
        table.add_row("time of each seed, about", format_duration(self.seconds))
        total = self.preparation + self.config.seeds * self.seconds + self.predictions
        table.add_row("total time, including loading", format_duration(total))
        table.add_row("peak memory, about", f"{self.memory / 2**30:.2f} GiB")
        return Group(to_toml(self.config), table)


def dry_run(config: FinetuneConfig) -> FinetuneEstimate:
    """Run some steps, one of them with the longest rows, an evaluation and an export; extrapolate to the whole
    run.

    Raises:
        ElectraError: the config, the data or the model cannot be used.
    """
    start = time.perf_counter()
    setup = build_setup(config)
    preparation = time.perf_counter() - start
    config = setup.config
    rows, model = setup.training_rows(config.seed), setup.build_model(config.seed).train()
    steps = count_steps(config, rows)
    epoch = math.ceil(len(rows) / config.train.batch_size)
    total = _training_seconds(setup, model, rows, steps=steps, epoch=epoch)
    evaluation = config.evaluation
    every = evaluation.every or (epoch if evaluation.keep == "best" or evaluation.patience else steps)
    counts = {DEV: math.ceil(steps / every) + (evaluation.keep == "best"), **dict.fromkeys(setup.scored_splits, 1)}
    total += sum(count * _evaluation_seconds(setup, model, split) for split, count in counts.items())
    exported = replace(setup, precision=Precision("float32", "", 0.0))
    predictions = sum(_evaluation_seconds(exported, model, split) for split in setup.other_splits)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:  # needs memory, too, and logs what transformers cannot load
        export_model(setup, model, Path(folder), SeedResult(config.seed, {}, None, 0, 0.0))
    total += time.perf_counter() - start
    parameters = sum(p.numel() for p in model.parameters())
    memory = peak_memory(setup.device)
    return FinetuneEstimate(config, parameters, len(rows), steps, preparation, total, predictions, memory)


def _training_seconds(setup: FinetuneSetup, model: TaskModel, rows: Rows, *, steps: int, epoch: int) -> float:
    """Measure some steps, from that with the most tokens to that with the fewest, and interpolate the others."""
    config = setup.config
    optimizer = config.optimizer.for_steps(steps)
    scales = layer_decay_scales(model, config.optimizer.layer_decay, mode=config.optimizer.layer_decay_mode)
    update = Update(
        model,
        build_optimizer(model, optimizer, rate_scales=scales),
        gradient_clip=optimizer.gradient_clip,
        precision=setup.precision,
        device=setup.device,
    )
    tokens = _tokens_per_step(config, rows, min(steps, epoch))
    order = np.argsort(-tokens, kind="stable")
    positions = np.linspace(0, len(order) - 1, min(MEASURED_STEPS, len(order))).round().astype(int)
    measured = order[np.unique(positions)].tolist()
    seconds = []
    for step in [measured[0], *measured]:  # the first one is a warm-up
        start = time.perf_counter()
        batches = micro_batches(config, rows, step, pad=setup.pad, device=setup.device)
        update(batches, optimizer.learning_rate)["loss"].item()
        seconds.append(time.perf_counter() - start)
    return float(np.interp(tokens, tokens[measured][::-1], seconds[1:][::-1]).mean()) * steps


def _tokens_per_step(config: FinetuneConfig, rows: Rows, steps: int) -> NDArray[np.int64]:
    batch_size = config.train.batch_size
    indices = [
        epoch_rows(step, seed=config.seed, batch_size=batch_size, examples=len(rows)) for step in range(steps)
    ]
    return np.array([int(rows.lengths[each].sum()) for each in indices])


def _evaluation_seconds(setup: FinetuneSetup, model: TaskModel, split: str) -> float:
    """Measure the longest batch of a split and two others, and extrapolate to one evaluation."""
    rows = setup.rows[split]
    batches = list(model.batches(rows, device=setup.device))
    tokens = [len(indices) * int(rows.lengths[indices].max()) for indices in batches]
    seconds_per_token = []
    model.eval()
    for number in sorted({0, len(batches) // 2, len(batches) - 1}):
        start = time.perf_counter()
        with torch.no_grad(), setup.precision.autocast(setup.device):
            batch = collate(rows, batches[number], pad=setup.pad).to(setup.device)
            model.problem.outputs(model.logits(batch), batch)
        seconds_per_token.append((time.perf_counter() - start) / tokens[number])
    return statistics.median(seconds_per_token) * sum(tokens)
