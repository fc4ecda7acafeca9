"""One run of a fine-tuning: one seed, from the pre-trained weights to predictions."""

import logging
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from electra.config import to_toml
from electra.errors import DivergedError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.evaluator import (
    BEST_WEIGHTS,
    DevEvaluator,
    predict_dev,
    score_split,
    write_scored_predictions,
)
from electra.finetuning.results import MAY_CHANGE, SeedResult, failure_reason
from electra.finetuning.setup import (
    DEV,
    FinetuneSetup,
    count_steps,
    describe_rows,
    fingerprint,
    micro_batches,
)
from electra.objectives.health import CORPUS_TOO_SMALL, LOSS_SPIKE, SLOWER, WARMING_UP
from electra.tasks.base import Rows, TaskBatch
from electra.tasks.task_model import TaskModel, layer_decay_scales
from electra.training.batch_source import BatchSource, prefetch
from electra.training.config import CheckpointConfig, EvaluationConfig, TrainConfig, TrainerConfig
from electra.training.events import EventHook
from electra.training.progress_bar import OnReport
from electra.training.run_context import RunContext, TrainerOptions
from electra.training.run_folder import RunFolder, open_run, require_same_config
from electra.training.trainer import Outcome, Trainer

logger = logging.getLogger(__name__)

IGNORED_FINDINGS = (LOSS_SPIKE, SLOWER, CORPUS_TOO_SMALL, WARMING_UP)
"""Health findings of pre-training that are normal if batches differ in length."""
MIN_CHECKPOINT_STEPS = 100
"""Minimum number of steps between two checkpoints. Longer runs have ten checkpoints."""


@dataclass(frozen=True)
class FinishedSeed:
    """The result of a seed, and its model."""

    result: SeedResult
    model: TaskModel


def run_seed(
    setup: FinetuneSetup,
    seed: int,
    folder: Path,
    on_event: EventHook,
    on_report: OnReport = lambda *_: None,
) -> FinishedSeed | Outcome:
    """Train one seed in its folder, or resume it. Returns only the outcome if a signal stopped it."""
    config = replace(setup.config, seeds=1, seed=seed)
    run = open_run(folder, fresh=False)
    if run.config.exists():
        require_same_config(run, config, settled={}, ignore=MAY_CHANGE)
    model = setup.build_model(seed)
    evaluator = DevEvaluator(setup, model, run)
    trainer = _build_trainer(setup, config, evaluator, setup.training_rows(seed), on_event, on_report)
    on_event.current_step = lambda: trainer.progress.step
    diverged = None
    try:
        outcome = trainer.run()
        if outcome.stopped_by is not None:
            return outcome
    except DivergedError as error:  # other seeds may succeed
        diverged = f"it diverged at step {trainer.progress.step}"
        logger.warning("seed %s: %s", seed, error)
    if trainer.progress.skipped:
        logger.warning("%s steps were skipped because they were not finite", trainer.progress.skipped)
    outputs, examples, problem = evaluator.final_outputs(), setup.task.splits[DEV], setup.task.problem
    if diverged:  # metrics must be numbers, whatever the outputs are
        outputs = [{name: np.nan_to_num(x) for name, x in output.items()} for output in outputs]
    model.problem, predictions, metrics = predict_dev(setup, outputs)
    write_scored_predictions(run.path, DEV, problem, examples, predictions)
    others = [] if diverged else setup.scored_splits
    result = SeedResult(
        seed,
        metrics,
        failed=diverged or failure_reason(problem, predictions, examples),
        steps=trainer.progress.step,
        seconds=round(trainer.progress.seconds, 3),
        identity=setup.identity,
        diverged=bool(diverged),
        others={name: score_split(setup, model, name, run.path) for name in others},
        fingerprints={name: setup.other_fingerprints[name] for name in others},
    )
    return FinishedSeed(result, model)


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a finished seed. Its metrics and predictions stay."""
    shutil.rmtree(RunFolder(folder).checkpoints, ignore_errors=True)
    (folder / BEST_WEIGHTS).unlink(missing_ok=True)


def _build_trainer(
    setup: FinetuneSetup,
    config: FinetuneConfig,
    evaluator: DevEvaluator,
    rows: Rows,
    on_event: EventHook,
    on_report: OnReport,
) -> Trainer:
    """Return the trainer of one seed.

    Args:
        config: the config of the seed.
        rows: the rows to train on.
    """
    steps, model, run = count_steps(config, rows), evaluator.model, evaluator.run
    epoch = math.ceil(len(rows) / config.train.batch_size)
    evaluates_often = config.evaluation.keep == "best" or config.evaluation.patience

    def batches_of_step(step: int) -> list[TaskBatch]:
        return micro_batches(config, rows, step, pad=setup.pad, device=setup.device)

    trainer_config = TrainerConfig(
        TrainConfig(
            steps=steps,
            batch_size=config.train.batch_size,
            micro_batch_size=config.train.micro_batch_size,
            seed=config.seed,
            precision=setup.precision.name,
            device=config.train.device,
            report_every=config.train.report_every,
        ),
        optimizer=config.optimizer.for_steps(steps),
        evaluation=EvaluationConfig(every=config.evaluation.every or (epoch if evaluates_often else steps)),
        checkpoint=CheckpointConfig(every=max(MIN_CHECKPOINT_STEPS, math.ceil(steps / 10))),
        tracking=config.tracking,
    )
    batches = BatchSource(
        prefetch(batches_of_step, setup.device),
        epochs=lambda steps: steps / epoch,
        # A long text is read in windows of this length. With memory, backward passes are counted that do not
        # happen.
        sequence_length=max(1, round(float(np.minimum(rows.lengths, config.data.max_length).mean()))),
        identity={**setup.identity, "training part": fingerprint(rows)},
        describe_rows=lambda step: describe_rows(config, rows, step, setup.pretrained.tokenizer),
    )
    decay, mode = config.optimizer.layer_decay, config.optimizer.layer_decay_mode
    context = RunContext(
        batches,
        evaluate=evaluator.evaluate,
        run_folder=run,
        config_text=lambda _: to_toml(config),
        precision=setup.precision,
        device=setup.device,
        options=TrainerOptions(
            learning_rate_scales=layer_decay_scales(model, decay, mode=mode),
            evaluate_first=False,
            should_stop=evaluator.should_stop,
            ignored_findings=IGNORED_FINDINGS,
            command_out=run.path.parent,
        ),
        on_event=on_event,
        on_report=on_report,
    )
    return Trainer(model, trainer_config, context)
