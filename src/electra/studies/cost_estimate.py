"""How long a study takes on this machine, measured on steps of its control."""

import contextlib
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from electra.analysis.frozen_probes import FROZEN_PROBES
from electra.data.shards import TokenData
from electra.export.huggingface import save
from electra.finetuning.dry_run import dry_run
from electra.modeling.device import synchronize
from electra.modeling.flops import flops_per_token
from electra.pretraining.build import build
from electra.pretraining.config import PretrainConfig
from electra.pretraining.warm_start import WarmStart
from electra.studies.arms import StudySetup
from electra.studies.finetuning import finetune_config
from electra.studies.runs import scored_network
from electra.studies.scores import score_task
from electra.training.optim import build_optimizer, update_flops
from electra.training.update import Update

logger = logging.getLogger(__name__)

WARM_UP_STEPS, MEASURED_STEPS = 5, 15


def measure_flops_per_second(config: PretrainConfig, data: TokenData) -> float:
    """The speed of training steps with a config on this machine."""
    config = replace(config, train=replace(config.train, batch_ramp_steps=0))
    parts = build(config, data, WarmStart())
    objective, precision, device = parts.objective, parts.precision, parts.device
    update = Update(
        objective, build_optimizer(objective, config.optimizer), gradient_clip=config.optimizer.gradient_clip,
        precision=precision, device=device,
    )  # fmt: skip
    objective.train()
    steps, seconds = config.train.steps or 1, []
    for step in range(WARM_UP_STEPS + MEASURED_STEPS):
        objective.begin_step(config.objective.typical_step(steps), steps)
        started = time.perf_counter()
        update(parts.batches.micro_batches(step), rate=0.0)
        synchronize(device)
        seconds.append(time.perf_counter() - started)
    length = config.packing.sequence_length
    networks = tuple(objective.networks(length).items())
    flops = config.train.batch_size * length * flops_per_token(networks, parts.batches.documents or ((length, 1),))
    flops += update_flops(objective, config.optimizer)
    return flops / statistics.median(seconds[WARM_UP_STEPS:])


def estimate_scoring_seconds(setup: StudySetup, config: PretrainConfig, data: TokenData) -> float:
    """Seconds of all fine-tunings and probes of a model with the shapes of a config; its weights do not matter."""
    networks = build(config, data, WarmStart()).objective.exportable_networks()
    network = networks[scored_network(networks)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        save(model, encoder=network.encoder, head=network.head, tokenizer_json=data.tokenizer_path, card="")
        total = 0.0
        for number, task in enumerate(setup.suite, 1):
            logger.info("measuring the time of %s", task, extra={"progress": (number, len(setup.suite))})
            if task in FROZEN_PROBES:
                started = time.perf_counter()
                score_task(setup, task, model=model, folder=Path(folder))
                total += time.perf_counter() - started
                continue
            with _only_warnings():
                plan = dry_run(finetune_config(setup, task, model=model, out=Path(folder, "out")))
            total += plan.preparation + plan.predictions + setup.task_seeds * plan.seconds
    return total


@contextlib.contextmanager
def _only_warnings() -> Iterator[None]:
    """Keep the log records of fine-tunings that are only measured off the console, except warnings."""
    package = logging.getLogger("electra")
    level = package.level
    package.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        package.setLevel(level)
