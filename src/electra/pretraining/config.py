"""The config of a pre-training run."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from electra import config
from electra.config import problems_of
from electra.data.packing import ONE_SEGMENT, PackingConfig
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.base import Capability, EncoderConfig, kinds_with
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.base import Objective
from electra.objectives.config import GeneratorConfig, ObjectiveConfig, ObjectiveParts
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.replaced_token import ReplacedTokenConfig
from electra.objectives.vocabulary import Vocabulary
from electra.pretraining.init_config import InitConfig
from electra.registry import encoders
from electra.training.config import (
    CheckpointConfig,
    EvaluationConfig,
    OptimizerConfig,
    TrackingConfig,
    TrainConfig,
)


@dataclass(frozen=True)
class PretrainConfig:
    """The config of a pre-training run."""

    data: Path | None = None
    """A folder of prepared data (electra prepare)."""
    out: Path | None = None
    """The run's folder."""
    model: EncoderConfig = field(default_factory=BertConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    objective: ObjectiveConfig = field(default_factory=ReplacedTokenConfig)
    init: InitConfig = field(default_factory=InitConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def problems(self) -> Iterator[str]:
        """Contradictions between sections."""
        if self.init.discriminator is None:  # else the shapes are known, and checked, after it is loaded
            yield from self.shape_problems()
        if self.optimizer.warmup_over_decay and self.train.minutes is not None:
            yield "optimizer.warmup_over_decay: the decay starts at step 0, so give train.steps, not train.minutes"
        if self.optimizer.steps_before and self.train.minutes is not None:
            yield "optimizer.steps_before: the decay starts at step 0, so give train.steps, not train.minutes"
        if self.optimizer.matrices == "muon" and self.train.sharding == "full":
            yield "optimizer.matrices: muon needs whole matrices on each process; set train.sharding to none"
        objective = self.objective
        if self.init.has_generator and not objective.accepts_pretrained_generator:
            name = "generator" if self.init.generator is not None else "generator_layers"
            yield f"init.{name}: this objective has no separate generator; leave it out"
        if self.init.generator is not None and self.init.discriminator is None and objective.fakes != "frozen":
            yield "init.generator: needs init.discriminator, too, or objective.fakes frozen"
        yield from objective.problems_with(self)
        if self.packing.packs_documents and not objective.reads_packed_rows:
            yield f"packing.builder: objective {objective.kind} cannot read packed rows; choose another builder"
        if self.packing.packs_documents and self.train.compile == "on":
            yield (
                "train.compile: packed rows have other shapes in each batch, and each would be compiled; set it "
                "to auto or off, or choose another packing.builder"
            )
        yield from self._sentence_problems()
        yield from self._stream_problems()

    def _sentence_problems(self) -> Iterator[str]:
        """Contradictions between the loss for pairs of segments and the packing."""
        loss = self.objective.sentence_loss
        if loss == "none":
            return
        if self.packing.builder in ONE_SEGMENT:
            yield (
                f"objective.sentence_loss: {loss} needs two segments, but rows of packing.builder "
                f"{self.packing.builder} have one; set packing.builder contiguous or sentence-pairs"
            )
        if self.packing.one_segment_share == 1:
            yield "packing.one_segment_share: 1 leaves no pair of segments for objective.sentence_loss"

    def _stream_problems(self) -> Iterator[str]:
        """Contradictions of streams and memories."""
        model, packing = self.model, self.packing
        has_memory = "memory" in model.capabilities
        if packing.streams and self.train.batch_ramp_steps:
            yield "train.batch_ramp_steps: every batch of a stream has the same number of rows; set it to 0"
        if model.memory_length and not packing.streams:
            yield (
                f"model.memory_length: examples of packing.builder {packing.builder} are shuffled, so a memory is "
                "useless; set packing.builder stream, or model.memory_length 0"
            )
        if model.memory_length and not self.objective.carries_memory:
            yield f"model.memory_length: {self.objective.kind} has no memory; set it to 0"
        segments = has_memory and model.type_vocabulary_size > 1
        if packing.streams and segments and self.init.discriminator is None:  # else it may be trained on pairs
            yield "model.type_vocabulary_size: rows of a stream have one segment; set it to 1"
        if self.evaluation.memory_length and not model.memory_length:
            yield "evaluation.memory_length: the model has no memory; set it to 0, or set model.memory_length"

    def shape_problems(self) -> Iterator[str]:
        """Contradictions between the shapes of the networks, or with other sections."""
        model, objective = self.model, self.objective
        # The shape cannot be computed from sizes that are out of bounds; the section's own check reports them.
        has_shape = objective.has_generator and not any(problems_of(self.generator))
        generator = self.generator.encoder(model) if has_shape else None
        length = self.packing.sequence_length
        tables = [network for network in (model, generator) if network is not None and network.limits_length]
        if any(length > network.max_positions for network in tables):
            of = "" if model.limits_length else " (of the generator)"
            yield f"packing.sequence_length: {length} is more than model.max_positions, {model.max_positions}{of}"
        if missing := objective.encoder_capabilities - model.capabilities:
            yield _missing_capabilities(objective, model, missing)
        if objective.share_norm and objective.sharing != "all" and "shared-norm" not in model.capabilities:
            yield f"objective.share_norm: kind {model.kind} cannot share this LayerNorm; set it to false"
        if self.init.discriminator is None and self.init.attention != "random":
            networks = [model] if generator is None else [model, generator]
            if not any("neighbor-start" in network.capabilities for network in networks):
                yield f"init.attention: kind {model.kind} does not support {self.init.attention}; set it to random"
        if generator is not None:
            yield from self._generator_problems(generator)

    def _generator_problems(self, generator: EncoderConfig) -> Iterator[str]:
        model, objective, size = self.model, self.objective, self.model.embedding_size
        inherited = set(problems_of(model))
        yield from (f"generator.{problem}" for problem in problems_of(generator) if problem not in inherited)
        sharing = objective.sharing
        own = self.generator.embedding_size not in (0, size)
        if sharing != "none" and own:
            yield f"generator.embedding_size: shared tables are {size} wide; leave it at 0, or share none"
        if generator.square_only and sharing != "none":
            yield f"objective.sharing: a generator of kind {generator.kind} cannot share weights; set it to none"
        elif sharing not in ("none", "tokens") and not self._can_share_tables(generator):
            yield (
                f"objective.sharing: {sharing} needs two encoders of one kind that can share tables; next to "
                f"kind {model.kind}, the generator may share tokens, or none"
            )
        elif sharing == "all" and generator != model:
            yield "objective.sharing: all needs a generator of the discriminator's shape: set generator.width 1"
        if generator.memory_length and not getattr(objective, "sampling_dropout", True):
            yield (
                "objective.sampling_dropout: with false, a generator with a memory would read each row twice; set "
                "it to true"
            )

    def _can_share_tables(self, generator: EncoderConfig) -> bool:
        return generator.kind == self.model.kind and "shared-tables" in self.model.capabilities


def _missing_capabilities(
    objective: ObjectiveConfig, model: EncoderConfig, missing: Collection[Capability]
) -> str:
    """The message that an encoder lacks capabilities that an objective needs."""
    needs = ", ".join(sorted(missing))
    able = kinds_with(objective.encoder_capabilities)
    hint = f"encoders that have it: {', '.join(able)}" if able else "no encoder has it with default settings"
    if "left-to-right" in missing and model.kind not in able:
        with_direction = [name for name, kind in encoders if "direction" in {f.name for f in fields(kind)}]
        hint = f"set model.kind {' or '.join(with_direction)} and model.direction left"
    elif "bidirectional" in missing:
        hint = "set model.direction both"
    return f"model.kind: {objective.kind} needs an encoder that is or has {needs}, and {model.kind} is not; {hint}"


def load_config(source: str | Path, settings: Mapping[str, Any] | None = None) -> PretrainConfig:
    """Load a preset or TOML file, with some settings changed.

    Args:
        source: the name of a preset, or the path of a TOML file.
        settings: values by dotted name, such as `{"data": "DATA", "out": "RUN", "train.steps": 1000}`.

    Raises:
        ConfigError: it lists all problems.
    """
    loaded = config.load_config(PretrainConfig, source, config.overrides_of(settings or {}))
    return replace(loaded, tracking=loaded.tracking.trusted(settings or {}))


def with_vocabulary(settings: PretrainConfig, size: int = 30_522) -> PretrainConfig:
    """Set the vocabulary size if the config leaves it open (default: BERT's)."""
    return replace(settings, model=replace(settings.model, vocabulary_size=settings.model.vocabulary_size or size))


def build_objective(
    settings: PretrainConfig,
    special: SpecialTokens,
    tables: Mapping[str, Tensor] | None = None,
    *,
    entries: int | None = None,
) -> Objective:
    """Build the objective of a config, freshly initialized.

    Args:
        tables: tables over the vocabulary (see `Vocabulary`); settings that need a missing table cannot be
            trained.
        entries: entries of the tokenizer; None: as many as the token table has rows.
    """
    vocabulary = Vocabulary(special, settings.model.vocabulary_size, entries=entries, **(tables or {}))
    parts = ObjectiveParts(settings.model, settings.generator, settings.masking, vocabulary)
    return settings.objective.build(parts)
