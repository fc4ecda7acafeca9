"""How long a study takes on this machine, measured on steps of its control."""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from electra.data.shards import TokenData
from electra.export.huggingface import save
from electra.finetuning.dry_run import plan_finetuning
from electra.modeling.flops import training_flops
from electra.pretraining.build import build
from electra.pretraining.config import PretrainConfig
from electra.pretraining.warm_start import WarmStart
from electra.studies.runs import Common, task_config, tower_of
from electra.training.optim import build_optimizer
from electra.training.update import Update

MEASURED, WARM_UP = 15, 5
"""Steps of the control that are timed, and those before them."""


def flops_a_second(config: PretrainConfig, data: TokenData) -> float:
    """The speed of a config's steps on this machine."""
    config = replace(config, train=replace(config.train, batch_ramp_steps=0))
    parts = build(config, data, WarmStart())
    objective, precision, device = parts.objective, parts.precision, parts.device
    update = Update(
        objective, build_optimizer(objective, config.optimizer), gradient_clip=config.optimizer.gradient_clip,
        precision=precision, device=device,
    )  # fmt: skip
    objective.train()
    steps, seconds = config.train.steps or 1, []
    for step in range(WARM_UP + MEASURED):
        objective.begin_step(steps - 1, steps)  # of two stages the last one
        started = time.perf_counter()
        update(parts.feed.micro_batches(step), rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    length = config.packing.sequence_length
    flops = config.train.batch_size * training_flops(objective.networks(length), length)
    return flops / statistics.median(seconds[WARM_UP:])


def tuning_seconds(common: Common, config: PretrainConfig, data: TokenData) -> float:
    """Of all fine-tunings of one model, of the shape that a config describes; weights do not matter to it."""
    objective = build(config, data, WarmStart()).objective
    towers = objective.exportable_networks()
    tower = towers[tower_of(towers)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        save(model, encoder=tower.encoder, head=tower.head, tokenizer_json=data.tokenizer_path, card="")
        total = 0.0
        for task in common.suite:
            plan = plan_finetuning(task_config(common, task, model=model, out=Path(folder, "out")))
            total += plan.preparation + plan.predictions + common.task_seeds * plan.seconds
    return total
