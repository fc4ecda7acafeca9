"""The config of a fine-tuning, and what it leaves to the task and to the size of the model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from electra import config
from electra.errors import ConfigError
from electra.modeling.encoders.bert import EncoderConfig
from electra.tasks.fine_tuning import Reduction
from electra.tasks.long_texts import LongTexts
from electra.training.optim import OptimizerConfig
from electra.training.tracking import TrackingConfig

Kind = Literal["named", "classification", "pair", "multilabel", "regression", "tagging"]
SMALL, LARGE = 256, 1024
"""Hidden sizes up to which, and from which on, a model takes the settings of ELECTRA-Small and -Large."""


@dataclass(frozen=True)
class DataConfig:
    """The data of a task; columns and files are for tables and tagged text of one's own."""

    path: Path | None = None
    """The folder (or, for data of one's own, the file) of the task; for GLUE, the one that holds its folders."""
    train: str | None = None
    """The file to learn from; left out: the one whose name begins with train."""
    dev: str | None = None
    """The file to be judged on; left out: the one whose name begins with dev or valid, or a part of train."""
    test: str | None = None
    """The file to be predicted; left out: the one whose name begins with test."""
    text: str | None = None
    """The column of the text."""
    pair: str | None = None
    """The column of the second text."""
    label: str | None = None
    """The column of the answer. In tagged text, columns have numbers, from 0; CoNLL-U has upos, xpos and feats."""
    separator: str = ","
    """Between the labels of one text, for kind multilabel, where they are not a list."""
    dev_share: float = 0.1
    """What is cut from the training data where there is no file for dev: the same whatever the seed."""
    fraction: float = 1.0
    """Learn from this share of the training data only, drawn anew for each seed."""
    shots: int = 0
    """Learn from so many examples of each label only, drawn anew for each seed; 0: from all."""
    max_length: int = 0
    """Tokens of a row; 0: 128 for texts, 256 for tagging, 512 for questions, or what the model allows, which is
    also what windows have."""
    long: Literal["cut", "windows", "memory"] = "cut"
    """What is read of a text, or of a pair, that has more tokens than a row. cut: its beginning. windows: all, cut
    into rows, over whose states ([CLS], or the last in a network that looks to the left) the mean is taken.
    memory: all, row behind row, with what the network remembers of those before; the head reads the last one, and
    a gradient flows through it alone."""
    longest: int = 4096
    """Tokens of a text that are read in windows or with memory; what is behind them is cut off."""

    @property
    def read_length(self) -> int:
        """Tokens that are read of a text in all, once `max_length` is settled."""
        return self.max_length if self.long == "cut" else max(self.longest, self.max_length)

    @property
    def long_texts(self) -> LongTexts | None:
        """How texts longer than a row are read; None: they are cut."""
        return None if self.long == "cut" else LongTexts(self.long, self.max_length)

    def problems(self) -> Iterator[str]:
        if not 0 < self.dev_share < 1:
            yield f"dev_share: must lie between 0 and 1, got {self.dev_share}"
        if not 0 < self.fraction <= 1:
            yield f"fraction: must lie above 0 and be at most 1, got {self.fraction}"
        if self.shots < 0:
            yield f"shots: must not be negative, got {self.shots}"
        if self.shots and self.fraction < 1:
            yield "shots: give either shots or fraction"
        if self.max_length and self.max_length < 8:
            yield f"max_length: must be at least 8, got {self.max_length}"
        if self.longest < 8:
            yield f"longest: must be at least 8, got {self.longest}"


@dataclass(frozen=True)
class HeadConfig:
    """What is put on top of the encoder."""

    text: Literal["linear", "hidden"] = "linear"
    """For texts: dropout and one layer, as in ELECTRA, or a hidden layer before it, as in transformers' class."""
    span: Literal["conditional", "plain"] = "conditional"
    """For questions: ELECTRA's pointer, whose end depends on the start, or two logits a token, as in the class of
    transformers."""


@dataclass(frozen=True)
class FinetuneOptimizerConfig:
    """AdamW with warm-up and linear decay to 0 (paper, table 7)."""

    learning_rate: float = 0.0
    """The peak; 0: 3e-4, 1e-4 or 5e-5, for models of the width of ELECTRA-Small, -Base or -Large."""
    layer_decay: float = 0.0
    """What the learning rate is multiplied by from each block to the one below; 0: .8, or .9 for large models."""
    layer_decay_mode: Literal["paper", "google"] = "paper"
    """Whether the last block has the factor once (paper) or, as in the original's code, twice, each block below it
    once more; the head has none."""
    reduction: Reduction = "mean"
    """Of the losses of a batch's rows (of its words, for tagging): mean, or sum as in the original's code, which
    clips nearly always."""
    warmup_share: float = 0.1
    """Share of the steps over which the learning rate rises from 0."""
    warmup_over_decay: bool = False
    """Let warm-up and decay both begin at step 0 and multiply them, as the original does; else decay follows."""
    weight_decay: float = 0.0
    """Decoupled decay of weights and embeddings, .01 in the original's code; biases and LayerNorms are spared."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    epsilon: float = 1e-6
    """Added to the root of the second moment."""
    bias_correction: bool = True
    """Correct Adam's moments for their start at 0; the original does not."""

    def problems(self) -> Iterator[str]:
        if self.learning_rate < 0:
            yield f"learning_rate: must not be negative, got {self.learning_rate}"
        if not 0 <= self.layer_decay <= 1:
            yield f"layer_decay: must lie between 0 and 1, got {self.layer_decay}"
        if not 0 <= self.warmup_share < 1:
            yield f"warmup_share: must lie in [0, 1), got {self.warmup_share}"
        for name in ("epsilon", "weight_decay"):
            if not getattr(self, name) >= 0:
                yield f"{name}: must not be negative, got {getattr(self, name)}"
        if not self.gradient_clip > 0:
            yield f"gradient_clip: must be above 0, got {self.gradient_clip}"

    def for_steps(self, steps: int) -> OptimizerConfig:
        """The same for the trainer."""
        return OptimizerConfig(
            learning_rate=self.learning_rate,
            warmup_steps=max(1, round(self.warmup_share * steps)),
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            gradient_clip=self.gradient_clip,
            bias_correction=self.bias_correction,
            warmup_over_decay=self.warmup_over_decay,
        )


@dataclass(frozen=True)
class FinetuneTrainConfig:
    """How long, how much at once, and on what."""

    epochs: float = 0.0
    """How often every example is seen; 0: 3, and what the paper has for some tasks (RTE and STS-B 10, SQuAD 2)."""
    batch_size: int = 32
    """Rows a step."""
    micro_batch_size: int = 0
    """Rows that are computed at once, their gradients added up; 0: the whole batch."""
    dropout: float = 0.1
    """Dropout in the encoder and before the head, whatever the model was pre-trained with."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the matrix products; auto: bfloat16 where it is clearly quicker, measured at the start.
    float16, for GPUs without bfloat16, scales the loss."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU where there is one."""
    report_every: int = 50
    """Steps between two lines of the console and of metrics.jsonl."""

    def problems(self) -> Iterator[str]:
        if self.epochs < 0:
            yield f"epochs: must not be negative, got {self.epochs}"
        if not 0 <= self.dropout < 1:
            yield f"dropout: must lie in [0, 1), got {self.dropout}"
        for name in ("batch_size", "report_every"):
            if getattr(self, name) < 1:
                yield f"{name}: must be at least 1, got {getattr(self, name)}"
        if self.micro_batch_size < 0 or (self.micro_batch_size and self.batch_size % self.micro_batch_size):
            yield f"micro_batch_size: {self.micro_batch_size} does not divide a batch_size of {self.batch_size}"


@dataclass(frozen=True)
class FinetuneEvaluationConfig:
    """When a run is judged on dev, and what follows from it."""

    every: int = 0
    """Steps between evaluations; 0: once an epoch, and only at the end where `keep` is last."""
    keep: Literal["last", "best"] = "last"
    """Which weights of a run count: those at its end, as in the paper, or those with the best figure on dev."""
    patience: int = 0
    """Stop after so many evaluations without a better figure; 0: never."""

    def problems(self) -> Iterator[str]:
        if self.every < 0 or self.patience < 0:
            yield "every and patience must not be negative"


@dataclass(frozen=True)
class FinetuneConfig:
    """Everything that decides what a fine-tuning computes."""

    model: str = ""
    """The encoder to start from: a run, an export, or a Hugging Face folder or id of a type that is read here."""
    task: str = ""
    """A task's name (`electra finetune --help` lists them), or any name for data of one's own."""
    kind: Kind = "named"
    """What data of one's own ask for; named: the task's name says it."""
    out: Path | None = None
    """The folder of the results."""
    seeds: int = 1
    """How many runs; they differ in the head's first weights, the order of the data and dropout."""
    seed: int = 0
    """The first of the seeds."""
    data: DataConfig = field(default_factory=DataConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    optimizer: FinetuneOptimizerConfig = field(default_factory=FinetuneOptimizerConfig)
    train: FinetuneTrainConfig = field(default_factory=FinetuneTrainConfig)
    evaluation: FinetuneEvaluationConfig = field(default_factory=FinetuneEvaluationConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def problems(self) -> Iterator[str]:
        if self.seeds < 1:
            yield f"seeds: must be at least 1, got {self.seeds}"
        if not self.model:
            yield "model: is missing; give a run, an export, or a Hugging Face folder or id"


def load_task_config(settings: Mapping[str, Any], source: Path | None = None) -> FinetuneConfig:
    """The config of a fine-tuning from settings by dotted name, over a TOML file if there is one.

    Args:
        settings: such as `{"model": "RUN", "task": "cola", "data.path": "GLUE", "out": "OUT", "seeds": 5}`.

    Raises:
        ConfigError: with every problem that was found.
    """
    return config.load_config(FinetuneConfig, source, config.overrides_of(settings))


def resolved(
    settings: FinetuneConfig, encoder: EncoderConfig, *, kind: str, epochs: float, max_length: int, longest: int
) -> FinetuneConfig:
    """The config with every open setting filled in.

    Args:
        kind: the kind of the task's problem.
        epochs, max_length: what the task asks for.
        longest: the longest input of the model.

    Raises:
        ConfigError: rows longer than that were asked for, or long texts are to be read as the model or the task
            does not allow.
    """
    long = settings.data.long
    if long != "cut":
        max_length = longest
        if kind in ("tagging", "answering"):
            instead = "passages are read in windows anyway" if kind == "answering" else "give shorter sentences"
            raise ConfigError(f"data.long: {long} is for labels and values of texts, not for {kind}; {instead}")
    if long == "memory" and not encoder.memory_length:
        raise ConfigError("data.long: memory, but the model has none (its memory_length is 0); give windows")
    if settings.data.max_length > longest:
        raise ConfigError(
            f"data.max_length: {settings.data.max_length}, but the model reads {longest} tokens at most"
        )
    small, large = encoder.hidden_size <= SMALL, encoder.hidden_size >= LARGE
    optimizer = replace(
        settings.optimizer,
        learning_rate=settings.optimizer.learning_rate or (3e-4 if small else 5e-5 if large else 1e-4),
        layer_decay=settings.optimizer.layer_decay or (0.9 if large else 0.8),
    )
    return replace(
        settings,
        optimizer=optimizer,
        train=replace(settings.train, epochs=settings.train.epochs or epochs),
        data=replace(settings.data, max_length=min(settings.data.max_length or max_length, longest)),
    )
