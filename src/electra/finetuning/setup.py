"""What the seeds of a fine-tuning share: the resolved config, the task as rows, the pre-trained encoder."""

import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra.data.sampling import epoch_rows, step_seed
from electra.data.tokenizer import special_tokens
from electra.errors import for_caller
from electra.export.loading import AVERAGED, find_encoder, load_pretrained
from electra.export.pretrained import Pretrained
from electra.finetuning.config import LEAST_STEPS, FinetuneConfig, resolve
from electra.finetuning.load_task import load_task
from electra.modeling.device import resolve_device
from electra.tasks.base import InputSpec, Rows, Task, TaskBatch, collate, describe_unknown
from electra.tasks.subsampling import subsample
from electra.tasks.task_model import TaskModel
from electra.training.allocator import keep_freed_memory
from electra.training.precision import Precision, choose_precision
from electra.training.trackers import require_tracker

logger = logging.getLogger(__name__)

DEV = "dev"
FEW_STEPS = 50
"""Runs with fewer steps hardly change the model."""
FEW_DEV_EXAMPLES = 30
"""With fewer, a single example is more than 3% of dev."""


@dataclass(frozen=True)
class FinetuneSetup:
    """What the seeds of a fine-tuning share.

    Attributes:
        rows: the encoded examples of each split.
        precision: the precision of training and evaluation.
    """

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
    def input_spec(self) -> InputSpec:
        return InputSpec(self.pretrained.tokenizer, self.config.data.read_length)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Fingerprints of the data and of the encoder's weights."""
        weights = hashlib.sha256()
        for _, tensor in sorted(self.pretrained.encoder.state_dict().items()):
            weights.update(tensor.numpy().tobytes())
        return {"data": fingerprint(self.rows["train"], self.rows[DEV]), "model": weights.hexdigest()}

    @property
    def other_splits(self) -> list[str]:
        """All splits but train and dev. The best model predicts them."""
        return [split for split in self.rows if split not in ("train", DEV)]

    @cached_property
    def other_fingerprints(self) -> dict[str, str]:
        """Fingerprints of `other_splits`."""
        return {split: fingerprint(self.rows[split]) for split in self.other_splits}

    @property
    def scored_splits(self) -> list[str]:
        """Those of `other_splits` whose examples have answers."""
        return [split for split in self.other_splits if self.rows[split].labeled]

    def build_model(self, seed: int) -> TaskModel:
        """Return a copy of the pre-trained encoder (or of its shape, with random weights) with a new head, on the
        device."""
        torch.manual_seed(seed)
        dropout, pretrained = self.config.train.dropout, self.pretrained.encoder
        config = replace(pretrained.config, dropout=dropout, attention_dropout=dropout)
        encoder = config.build(query_stream="query_stream.weight" in pretrained.state_dict())
        if self.config.init == "pretrained":
            encoder.load_state_dict(pretrained.state_dict())
        reduction, long = self.config.optimizer.reduction, self.config.data.long_texts
        return TaskModel(encoder, self.task.problem, reduction=reduction, long=long).to(self.device)

    def training_rows(self, seed: int) -> Rows:
        """Return the rows that a seed trains on: all, or those of its own sample of the examples."""
        data, task = self.config.data, self.task
        if data.fraction == 1 and not data.shots:
            return self.rows["train"]
        sample = sample_training_examples(self.config, task, seed)
        logger.info(
            "seed %s uses %s of the %s training examples", seed, f"{len(sample):,}",
            f"{len(task.training_examples(task.splits['train'])):,}",
        )  # fmt: skip
        return task.problem.encode(sample, self.input_spec)

    def timed_step(self) -> Callable[[], None]:
        """Return a function that makes a forward and a backward pass. Its first call builds the model."""

        @cache
        def model_and_batch() -> tuple[TaskModel, TaskBatch]:
            batches = micro_batches(self.config, self.rows["train"], 0, pad=self.pad, device=self.device)
            return self.build_model(self.config.seed), batches[0]

        def step() -> None:
            model, batch = model_and_batch()
            model(batch).loss.backward()
            model.zero_grad(set_to_none=True)

        return step


def sample_training_examples(config: FinetuneConfig, task: Task, seed: int) -> Sequence[Any]:
    """The examples that a seed trains on, with the swapped pairs of a symmetric task."""
    data, examples = config.data, task.splits["train"]
    return task.training_examples(subsample(examples, fraction=data.fraction, shots=data.shots, seed=seed))


def build_setup(config: FinetuneConfig) -> FinetuneSetup:
    """Load the task and the encoder, encode the examples, and resolve the config.

    Raises:
        ElectraError: the config, the data or the model cannot be used.
    """
    device = resolve_device(config.train.device, option="train.device")
    require_tracker(config.tracking.tracker)
    model = find_encoder(config.model)  # before the data are read, which can take minutes
    if model.name == AVERAGED:
        logger.info("starting from %s, the average of the trained network and the original", model)
    task = load_task(config)
    for note in task.notes:
        logger.info("%s: %s", task.name, note)
    _warn_of_few_dev_examples(task)
    pretrained, given = load_pretrained(model), config
    config = resolve(
        config, pretrained.encoder.config, task,
        examples=len(sample_training_examples(config, task, config.seed)),
        longest=pretrained.max_length, trained_length=pretrained.trained_length,
    )  # fmt: skip
    rows = _encode_splits(config, task, pretrained)
    if device.type == "cpu":
        keep_freed_memory()
    setup = FinetuneSetup(config, task, rows, pretrained, Precision("float32", "", 0.0), device)
    precision = choose_precision(config.train.precision, device, setup.timed_step())
    logger.info("%s on %s: %s", precision.name, device, precision.reason)
    _log_resolved(config, given, usual_epochs=task.default_epochs, width=pretrained.encoder.config.hidden_size)
    config = replace(config, train=replace(config.train, precision=precision.name))
    return replace(setup, config=config, precision=precision)


def _warn_of_few_dev_examples(task: Task) -> None:
    if (count := len(task.splits[DEV])) < FEW_DEV_EXAMPLES:
        message = (
            "%s: dev has only %s %s, so chance decides much of its metrics; give a larger dev file, or raise "
            "--data.dev_share"
        )
        logger.warning(for_caller(message), task.name, count, "example" if count == 1 else "examples")


def _log_resolved(config: FinetuneConfig, given: FinetuneConfig, *, usual_epochs: float, width: int) -> None:
    """Log the settings that follow from the model and from the number of examples, and why they are so."""
    optimizer, epochs, size = config.optimizer, config.train.epochs, config.train.batch_size
    chosen = {"rate": not given.optimizer.learning_rate, "decay": not given.optimizer.layer_decay}
    by_width = " and ".join(name for name, is_default in chosen.items() if is_default)
    logger.info(
        "learning rate %g, times %g from each block to the block below%s; %g %s of %s %s a step%s",
        optimizer.learning_rate, optimizer.layer_decay,
        f" ({by_width} by the model's width, {width})" if by_width else "",
        epochs, "epoch" if epochs == 1 else "epochs", size, "row" if size == 1 else "rows",
        f" (more than the usual {usual_epochs:g}, so that there are {LEAST_STEPS} steps)"
        if epochs > usual_epochs and not given.train.epochs else "",
    )  # fmt: skip


def _encode_splits(config: FinetuneConfig, task: Task, pretrained: Pretrained) -> dict[str, Rows]:
    """Return the rows of each split, and log how many examples are cut and whether the vocabulary fits."""
    splits = {**task.splits, "train": task.training_examples(task.splits["train"])}
    spec = InputSpec(pretrained.tokenizer, config.data.read_length)
    unknown_id = special_tokens(pretrained.tokenizer).unknown
    encoded = {}
    for split, examples in splits.items():
        rows = encoded[split] = task.problem.encode(examples, spec)
        if rows.cut:
            logger.info(
                "%s: %s of %s examples of %s are too long and were cut (%s tokens per row; the model reads %s)",
                task.name, f"{len(rows.cut):,}", f"{len(examples):,}", split, spec.max_length,
                pretrained.max_length,
            )  # fmt: skip
        if warning := describe_unknown(int((rows.ids == unknown_id).sum()), len(rows.ids)):
            logger.warning("%s: %s: %s", task.name, split, warning)
    return encoded


def count_steps(config: FinetuneConfig, rows: Rows) -> int:
    """Return the number of steps of a run, and warn if it is small."""
    steps = max(1, math.ceil(config.train.epochs * math.ceil(len(rows) / config.train.batch_size)))
    if steps < FEW_STEPS:
        message = "the run has only %s steps, which hardly change the model; increase --train.epochs"
        logger.warning(for_caller(message), steps)
    return steps


def micro_batches(
    config: FinetuneConfig, rows: Rows, step: int, *, pad: int, device: torch.device
) -> list[TaskBatch]:
    """Return the micro-batches of a step, which depend on the step and the seed alone."""
    batch_size = config.train.batch_size
    size = config.train.micro_batch_size or batch_size
    indices = _rows_of_step(config, rows, step)
    return [
        collate(
            rows, indices[start : start + size], pad=pad, seed=step_seed(config.seed, step, micro_step=start)
        ).to(device)
        for start in range(0, len(indices), size)
    ]


def describe_rows(config: FinetuneConfig, rows: Rows, step: int, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return the number and the text of each row of a step, for people to read."""
    indices = _rows_of_step(config, rows, step)
    texts = [tokenizer.decode(rows.ids[rows.starts[i] : rows.starts[i + 1]].tolist()) for i in indices]
    return [{"row": int(i), "text": text} for i, text in zip(indices, texts, strict=True)]


def _rows_of_step(config: FinetuneConfig, rows: Rows, step: int) -> NDArray[np.int64]:
    """Return the numbers of the rows of a step's batch."""
    batch_size = config.train.batch_size
    return epoch_rows(step, seed=config.seed, batch_size=batch_size, examples=len(rows))


def fingerprint(*splits: Rows) -> str:
    """Return a checksum of everything that the network sees of splits."""
    digest = hashlib.sha256()
    for rows in splits:
        digest.update(rows.ids.tobytes() + rows.starts.tobytes())
        for values in (*rows.targets.values(), *rows.token_targets.values()):
            digest.update(values.tobytes())
    return digest.hexdigest()
