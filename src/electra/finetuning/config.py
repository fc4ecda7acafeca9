"""The config of a fine-tuning, and the defaults that depend on the task and on the size of the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from electra import config
from electra.config import (
    DropoutProbability,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Range,
)
from electra.errors import ConfigError
from electra.tasks.config import DataConfig, HeadConfig, Reduction
from electra.training.config import AdamWConfig, LoopConfig, OptimizerConfig, TrackingConfig

if TYPE_CHECKING:
    from electra.modeling.encoders.base import EncoderConfig
    from electra.tasks.base import Task

LEAST_STEPS = 300
"""A run has so many epochs by default that it has this number of steps; with fewer, an encoder hardly learns a
task."""
NARROW, SMALL, LARGE = 256, 384, 1024
"""Hidden sizes at which the default learning rate changes: below the first one, above the second one, and from the
third one on. 256 and 1024 have the paper's rates for ELECTRA-Small and ELECTRA-Large, as the sizes between 384 and
1024 have that for ELECTRA-Base; the rates below 256 and of 384 were measured (docs/results/fine-tuning.md)."""


@dataclass(frozen=True)
class _DefaultAtZero(Range):
    """Bounds of a number that is above 0, or 0 for a default that depends on the model or the data."""

    def __str__(self) -> str:
        return "above 0, or 0 for the default"


FloatOrDefault = Annotated[float, _DefaultAtZero(ge=0)]


@dataclass(frozen=True)
class FinetuneOptimizerConfig(AdamWConfig):
    """AdamW with linear warm-up and linear decay to 0 (paper, table 7)."""

    learning_rate: FloatOrDefault = 0.0
    """Peak learning rate. 0: by the hidden size: 1e-3 below 256, 3e-4 up to 384, 1e-4 below 1024, and 5e-5 from
    there on. Those of 256 (ELECTRA-Small), 768 (Base) and 1024 (Large) are the paper's."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay of matrices and embeddings. Biases and LayerNorms have none. The original code uses
    0.01."""
    layer_decay: Fraction = 0.0
    """Factor of the learning rate from each block to the block below it. 0: 0.8, or 0.9 for large models."""
    layer_decay_mode: Literal["paper", "google"] = "paper"
    """How often the factor is applied. paper: once in the last block, once more in each block below it. google
    (the original code): twice in the last block, once more in each block below it. The head has no factor."""
    reduction: Reduction = "mean"
    """Reduction of the losses of a batch's rows (of its words, for tagging). mean, or sum as in the original code,
    which makes the gradient so large that it is nearly always clipped."""
    warmup_share: Annotated[float, Range(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises from 0."""

    def for_steps(self, steps: int) -> OptimizerConfig:
        """The trainer's optimizer settings for a run of this many steps."""
        shared = {field.name: getattr(self, field.name) for field in fields(AdamWConfig)}
        return OptimizerConfig(**shared, warmup_steps=max(1, round(self.warmup_share * steps)))


@dataclass(frozen=True)
class FinetuneTrainConfig(LoopConfig):
    """Length of a run, size of its batches, precision and device."""

    batch_size: PositiveInt = 32
    """Rows per step."""
    epochs: FloatOrDefault = 0.0
    """Passes over the training data. 0: 3, or the paper's number for some tasks (RTE and STS-B 10, SQuAD 2), and
    more if the examples are few: as many as make 300 steps."""
    dropout: DropoutProbability = 0.1
    """Dropout in the encoder and before the head, whatever the dropout of pre-training."""


@dataclass(frozen=True)
class FinetuneEvaluationConfig:
    """When a run is evaluated on dev, and which weights it keeps."""

    every: NonNegativeInt = 0
    """Steps between evaluations. 0: once per epoch, or only at the end if `keep` is last."""
    keep: Literal["last", "best"] = "last"
    """Weights that a run keeps. last: those at its end, as in the paper. best: those with the best metric on
    dev."""
    patience: NonNegativeInt = 0
    """Stop after this number of evaluations without an improvement. 0: never."""


@dataclass(frozen=True)
class FinetuneConfig:
    """Everything that decides what a fine-tuning computes."""

    model: str = ""
    """Encoder to start from: a run, an export, or a Hugging Face folder or id of a supported type."""
    init: Literal["pretrained", "random"] = "pretrained"
    """Weights to start from: those of the encoder, or random ones in a network of its shape, to see what
    pre-training gains."""
    task: str = ""
    """Name of a task (see `electra finetune --help`), or any name for your own data."""
    kind: str = "named"
    """Kind of problem, for your own data: classification, pair, multilabel, regression, tagging, answering (files
    in SQuAD's format), or one that a plugin registers. named: the task's name decides."""
    out: Path | None = None
    """Folder of the results."""
    seeds: PositiveInt = 1
    """Number of runs. They differ in the initial weights of the head, the order of the data and dropout."""
    seed: NonNegativeInt = 0
    """First of the seeds."""
    data: DataConfig = field(default_factory=DataConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    optimizer: FinetuneOptimizerConfig = field(default_factory=FinetuneOptimizerConfig)
    train: FinetuneTrainConfig = field(default_factory=FinetuneTrainConfig)
    evaluation: FinetuneEvaluationConfig = field(default_factory=FinetuneEvaluationConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def problems(self) -> Iterator[str]:
        if not self.model:
            yield "model: is missing; give a run, an export, or a Hugging Face folder or id"


def load_task_config(settings: Mapping[str, Any], source: Path | None = None) -> FinetuneConfig:
    """The config of a fine-tuning from settings by dotted name, and a TOML file if one is given.

    Args:
        settings: such as `{"model": "RUN", "task": "cola", "data.path": "GLUE", "out": "OUT", "seeds": 5}`. They
            override those of the file.

    Raises:
        ConfigError: with every problem that was found.
    """
    loaded = config.load_config(FinetuneConfig, source, config.overrides_of(settings))
    return replace(loaded, tracking=loaded.tracking.trusted(settings))


def resolve(
    config: FinetuneConfig,
    encoder: EncoderConfig,
    task: Task,
    *,
    examples: int,
    longest: int,
    trained_length: int | None = None,
) -> FinetuneConfig:
    """Return the config with the defaults that depend on the task, its size, and the size of the model.

    Args:
        examples: number of examples that a seed trains on.
        longest: maximum number of tokens that the model reads.
        trained_length: length of the rows of long texts; None: `longest`.

    Raises:
        ConfigError: the rows are longer than that, or the model or the task cannot read long texts in this way.
    """
    long, max_length, problem = config.data.long, task.problem.default_max_length, task.problem
    if long != "cut":
        max_length = trained_length or longest
        if problem.reads_words or problem.is_extractive:
            hint = "passages are always read in windows" if problem.is_extractive else "give shorter sentences"
            raise ConfigError(
                f"data.long: {long} is for labels and values of texts, not for {problem.kind}; {hint}"
            )
    if long == "memory" and not encoder.memory_length:
        raise ConfigError("data.long: memory, but the model has none (its memory_length is 0); give windows")
    if config.data.max_length > longest:
        raise ConfigError(
            f"data.max_length: {config.data.max_length}, but the model reads at most {longest} tokens"
        )
    rate, decay = _default_rate_and_decay(encoder.hidden_size)
    optimizer = replace(
        config.optimizer,
        learning_rate=config.optimizer.learning_rate or rate,
        layer_decay=config.optimizer.layer_decay or decay,
    )
    return replace(
        config,
        optimizer=optimizer,
        train=replace(config.train, epochs=config.train.epochs or _default_epochs(config, task, examples)),
        data=replace(config.data, max_length=min(config.data.max_length or max_length, longest)),
    )


def _default_rate_and_decay(width: int) -> tuple[float, float]:
    if width >= LARGE:
        return 5e-5, 0.9
    return 1e-3 if width < NARROW else 3e-4 if width <= SMALL else 1e-4, 0.8


def _default_epochs(config: FinetuneConfig, task: Task, examples: int) -> float:
    """The epochs of the task, or as many as make `LEAST_STEPS` steps."""
    steps_per_epoch = math.ceil(examples / config.train.batch_size)
    return max(task.default_epochs, math.ceil(LEAST_STEPS / steps_per_epoch))
