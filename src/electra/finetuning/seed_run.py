"""One run of a fine-tuning: one seed, from the pre-trained weights to predictions."""

import hashlib
import logging
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from electra import durable
from electra.config import to_toml
from electra.data.sampling import epoch_rows, step_seed
from electra.data.tokenizer import special_tokens
from electra.errors import DivergedError
from electra.export.huggingface import Pretrained
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.results import MAY_CHANGE, SeedResult, failure_reason, write_predictions
from electra.reports.metrics import read_metrics
from electra.tasks.base import InputSpec, Outputs, Prediction, Problem, Rows, Task, TaskBatch, collate
from electra.tasks.subsampling import subsample
from electra.tasks.task_model import TaskModel, layer_decay_scales
from electra.training.batch_source import BatchSource, prefetch
from electra.training.config import CheckpointConfig, EvaluationConfig, TrainConfig, TrainerConfig
from electra.training.precision import Precision
from electra.training.run_context import RunContext, TrainerOptions
from electra.training.run_folder import RunFolder, agree, open_run
from electra.training.trainer import Outcome, Trainer

logger = logging.getLogger(__name__)

SILENT = ("loss spike", "tokens/s falling", "corpus too small", "still warming up")
"""What the watch of a pre-training says and what is nothing strange where batches differ in length."""
DEV, BEST = "dev", "best.safetensors"
FEW_STEPS = 50
LEAST_LOST = 100
"""Steps between two checkpoints, at least; a tenth of the run where that is more."""


@dataclass(frozen=True)
class FinetuneSetup:
    """What the runs of a fine-tuning have in common."""

    config: FinetuneConfig
    task: Task
    rows: dict[str, Rows]
    pretrained: Pretrained
    precision: Precision
    device: torch.device

    @property
    def pad(self) -> int:
        return special_tokens(self.pretrained.tokenizer).pad

    @property
    def reading(self) -> InputSpec:
        return InputSpec(self.pretrained.tokenizer, self.config.data.read_length)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Fingerprints of the data and of the encoder's weights."""
        weights = hashlib.sha256()
        for _, tensor in sorted(self.pretrained.encoder.state_dict().items()):
            weights.update(tensor.numpy().tobytes())
        return {"data": fingerprint(self.rows["train"], self.rows[DEV]), "model": weights.hexdigest()}

    @property
    def judged(self) -> list[str]:
        """Splits besides train and dev whose examples have answers."""
        return [
            split for split, rows in self.rows.items()
            if split not in ("train", DEV) and rows.labeled
        ]  # fmt: skip

    def step(self) -> Callable[[], None]:
        """A forward and a backward pass, to be timed; the first one, which never counts, makes the network."""

        @cache
        def made() -> tuple[TaskModel, TaskBatch]:
            batches = micro_batches(self.config, self.rows["train"], 0, pad=self.pad, device=self.device)
            return build_model(self, self.config.seed), batches[0]

        def step() -> None:
            module, batch = made()
            module(batch).loss.backward()
            module.zero_grad(set_to_none=True)

        return step


@dataclass(frozen=True)
class FinishedSeed:
    """A seed that is finished, and its network."""

    result: SeedResult
    module: TaskModel


def run_seed(setting: FinetuneSetup, seed: int, folder: Path) -> FinishedSeed | Outcome:
    """Train one seed in its folder, or go on with it; the outcome alone where it was stopped by a signal."""
    config = replace(setting.config, seeds=1, seed=seed)
    run = open_run(folder, fresh=False)
    if run.config.exists():
        agree(run, config, settled={}, ignore=MAY_CHANGE)
    module = build_model(setting, seed)
    rows = training_rows(setting, seed)
    trainer, judge = _trainer(setting, config, run, module, rows)
    diverged = None
    try:
        outcome = trainer.run()
        if outcome.stopped_by is not None:
            return outcome
    except DivergedError as error:  # the other seeds may do better
        diverged = f"it diverged at step {trainer.progress.step}"
        logger.warning("seed %s: %s", seed, error)
    outputs, examples, problem = judge.final(), setting.task.splits[DEV], setting.task.problem
    if diverged:  # figures that are numbers, whatever the network says
        outputs = [{name: np.nan_to_num(x) for name, x in output.items()} for output in outputs]
    module.problem, predictions, metrics = _settled(setting, outputs)
    shown = [{**problem.describe_example(one), **said} for one, said in zip(examples, predictions, strict=True)]
    write_predictions(run.path, DEV, shown)
    failed = diverged or failure_reason(problem, predictions, examples)
    if trainer.progress.skipped:
        logger.warning("%s steps were not finite and were skipped", trainer.progress.skipped)
    others = {split: _score(setting, module, split) for split in setting.judged if not diverged}
    seconds = round(trainer.progress.seconds, 3)
    return FinishedSeed(
        SeedResult(
            seed, metrics, failed, trainer.progress.step, seconds, setting.identity, bool(diverged), others
        ),
        module,
    )  # fmt: skip


def remove_checkpoints(folder: Path) -> None:
    """Of a seed that is finished; its figures and predictions stay."""
    shutil.rmtree(RunFolder(folder).checkpoints, ignore_errors=True)
    (folder / BEST).unlink(missing_ok=True)


def build_model(setting: FinetuneSetup, seed: int) -> TaskModel:
    """The pre-trained encoder, copied, under a new head."""
    torch.manual_seed(seed)
    share, trained = setting.config.train.dropout, setting.pretrained.encoder
    config = replace(trained.config, dropout=share, attention_dropout=share)
    encoder = config.build(query_stream="query_stream.weight" in trained.state_dict())
    encoder.load_state_dict(trained.state_dict())
    module = TaskModel(
        encoder,
        setting.task.problem,
        reduction=setting.config.optimizer.reduction,
        long=setting.config.data.long_texts,
    )
    return module.to(setting.device)


def training_rows(setting: FinetuneSetup, seed: int) -> Rows:
    """The rows to learn from; of a part of the examples, that of the seed."""
    data, task = setting.config.data, setting.task
    if data.fraction == 1 and not data.shots:
        return setting.rows["train"]
    examples = task.splits["train"]
    few = subsample(examples, fraction=data.fraction, shots=data.shots, seed=seed)
    logger.info("seed %s learns from %s of the %s training examples", seed, f"{len(few):,}", f"{len(examples):,}")
    return task.problem.encode(task.training_examples(few), setting.reading)


def step_count(config: FinetuneConfig, rows: Rows) -> int:
    """Steps of a run; says so if they are few."""
    steps = max(1, math.ceil(config.train.epochs * math.ceil(len(rows) / config.train.batch_size)))
    if steps < FEW_STEPS:
        logger.warning("only %s steps: so few hardly change anything; give more --train.epochs", steps)
    return steps


def micro_batches(
    config: FinetuneConfig, rows: Rows, step: int, *, pad: int, device: torch.device
) -> list[TaskBatch]:
    """The batches of a step, a function of the step and the seed alone."""
    size = config.train.batch_size
    at_once = config.train.micro_batch_size or size
    chosen = epoch_rows(step, seed=config.seed, batch_size=size, examples=len(rows))
    return [
        collate(
            rows, chosen[start : start + at_once], pad=pad, seed=step_seed(config.seed, step, micro_step=start)
        ).to(device)
        for start in range(0, len(chosen), at_once)
    ]


def _score(setting: FinetuneSetup, module: TaskModel, split: str) -> dict[str, float]:
    examples, outputs = setting.task.splits[split], _outputs(setting, module, split)
    return module.problem.compute_metrics(examples, module.problem.decode(examples, setting.rows[split], outputs))


def _settled(
    setting: FinetuneSetup, outputs: Sequence[Outputs]
) -> tuple[Problem, list[Prediction], dict[str, float]]:
    """The problem with what outputs on dev tell (a threshold, say), and what it then says and comes to."""
    problem, examples, rows = setting.task.problem, setting.task.splits[DEV], setting.rows[DEV]
    predictions = problem.decode(examples, rows, outputs)
    metrics = problem.compute_metrics(examples, predictions)
    if (settled := problem.with_tuned_threshold(metrics)) is not problem:
        predictions = settled.decode(examples, rows, outputs)
        metrics = settled.compute_metrics(examples, predictions)
    return settled, predictions, metrics


def _outputs(setting: FinetuneSetup, module: TaskModel, split: str) -> list[Outputs]:
    with setting.precision.autocast(setting.device):
        return module.outputs(setting.rows[split], pad=setting.pad, device=setting.device)


class DevEvaluator:
    """Looks at dev as a run goes on, keeps the best weights where they are wanted, and says when it is enough."""

    def __init__(self, setting: FinetuneSetup, module: TaskModel, run: RunFolder) -> None:
        self.setting, self.module, self.run = setting, module, run
        self.key = f"eval/{setting.task.problem.metric}"
        self.best = run.path / BEST
        self.outputs: list[Outputs] | None = None  # of the last evaluation

    def evaluate(self, _: int) -> dict[str, float]:
        """Figures on dev."""
        self.outputs = _outputs(self.setting, self.module, DEV)
        metrics = _settled(self.setting, self.outputs)[2]
        figures = {f"eval/{name}": value for name, value in metrics.items()}
        if self.setting.config.evaluation.keep == "best" and figures[self.key] > max(
            self._before(), default=-math.inf
        ):
            weights = {name: p.detach().contiguous() for name, p in self.module.named_parameters()}
            durable.write(self.best, lambda partial: save_file(weights, partial))
        return figures

    def enough(self, evaluation: dict[str, Any]) -> bool:
        """Whether so many evaluations have brought nothing better."""
        patience, values = self.setting.config.evaluation.patience, self._before()
        return bool(patience) and len(values) - 1 - values.index(max(values)) >= patience

    def final(self) -> list[Outputs]:
        """Outputs on dev of the weights that count, which the network has from here on."""
        if self.setting.config.evaluation.keep == "best" and self.best.is_file():
            weights = load_file(self.best)
            assert weights.keys() == dict(self.module.named_parameters()).keys(), (
                "what was kept is of this network"
            )
            self.module.load_state_dict(weights, strict=False)  # what blocks share stands there once
            self.outputs = None
        return self.outputs or _outputs(self.setting, self.module, DEV)

    def _before(self) -> list[float]:
        """The figures of the evaluations so far, of which a resumed run has those before its checkpoint."""
        return [float(figures[self.key]) for figures in read_metrics(self.run.path).evaluations]


def _trainer(
    setting: FinetuneSetup, config: FinetuneConfig, run: RunFolder, module: TaskModel, rows: Rows
) -> tuple[Trainer, DevEvaluator]:
    steps = step_count(config, rows)
    epoch = math.ceil(len(rows) / config.train.batch_size)
    judge = DevEvaluator(setting, module, run)
    looks = config.evaluation.keep == "best" or config.evaluation.patience

    def made(step: int) -> list[TaskBatch]:
        return micro_batches(config, rows, step, pad=setting.pad, device=setting.device)

    sections = TrainerConfig(
        TrainConfig(
            steps=steps,
            batch_size=config.train.batch_size,
            micro_batch_size=config.train.micro_batch_size,
            seed=config.seed,
            precision=setting.precision.name,
            device=config.train.device,
            report_every=config.train.report_every,
        ),
        optimizer=config.optimizer.for_steps(steps),
        evaluation=EvaluationConfig(every=config.evaluation.every or (epoch if looks else steps)),
        checkpoint=CheckpointConfig(every=max(LEAST_LOST, math.ceil(steps / 10))),
        tracking=config.tracking,
    )
    batches = BatchSource(
        prefetch(made, setting.device),
        epochs=lambda steps: steps / epoch,
        # Long texts are read in windows, of which it is the length. With memory, passes backwards are counted
        # that are not made.
        sequence_length=max(1, round(float(np.minimum(rows.lengths, config.data.max_length).mean()))),
        identity={**setting.identity, "training part": fingerprint(rows)},
    )
    context = RunContext(
        batches,
        evaluate=judge.evaluate,
        run_folder=run,
        config_text=lambda _: to_toml(config),
        precision=setting.precision,
        device=setting.device,
        options=TrainerOptions(
            learning_rate_scales=layer_decay_scales(
                module, config.optimizer.layer_decay, mode=config.optimizer.layer_decay_mode
            ),
            evaluate_first=False,
            should_stop=judge.enough,
            ignored_findings=SILENT,
            command_out=run.path.parent,
        ),
    )
    return Trainer(module, sections, context), judge


def fingerprint(*parts: Rows) -> str:
    """Of everything that the network sees of splits."""
    digest = hashlib.sha256()
    for rows in parts:
        digest.update(rows.ids.tobytes() + rows.starts.tobytes())
        for values in (*rows.targets.values(), *rows.token_targets.values()):
            digest.update(values.tobytes())
    return digest.hexdigest()
