"""The config of a pre-training run, and the objective that it describes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from electra import config
from electra.data.packing import ONE_SEGMENT, PackingConfig
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.bert import EncoderConfig
from electra.objectives.adversarial import Adversarial
from electra.objectives.all_tokens_mlm import AllTokensMlm
from electra.objectives.causal_lm import CausalLanguageModel
from electra.objectives.config import ALONE, WITH_GENERATOR, GeneratorConfig, ObjectiveConfig, ObjectiveKind
from electra.objectives.electric import Electric
from electra.objectives.masked_lm import MaskedLanguageModel
from electra.objectives.masking import MaskingConfig
from electra.objectives.permutation_lm import PermutationLanguageModel
from electra.objectives.replace_mlm import ReplaceMlm
from electra.objectives.replaced_token import ReplacedToken
from electra.objectives.two_stage import TwoStage
from electra.objectives.vocabulary import Vocabulary
from electra.training.config import (
    CheckpointConfig,
    EvaluationConfig,
    OptimizerConfig,
    TrackingConfig,
    TrainConfig,
)

RELATIVE: tuple[ObjectiveKind, ...] = ("causal-lm", "permutation-lm", "masked-lm", "replaced-token")
"""What networks with relative positions learn."""


@dataclass(frozen=True)
class InitConfig:
    """What the weights start from: networks that were trained before, or the random numbers of [model] and what is
    put in their place."""

    discriminator: str | None = None
    """An export, a run, or a Hugging Face folder or id to continue (docs/guides/checkpoints.md lists the types);
    for masked-lm, its one encoder. The shape of [model] is taken from it."""
    generator: str | None = None
    """The same for the generator beside it, with its masked-LM head; left out: a fresh one, as in [generator]. A
    generator that is trained on needs init.discriminator, too; one with objective.fakes frozen may stand alone."""
    token_table: Literal["random", "cooccurrence"] = "random"
    """Token embeddings where no network is continued: random, or from counts of which token follows which
    (data/cooccurrence.py)."""
    attention: Literal["random", "neighbours"] = "random"
    """The first block of networks with learnt positions where none is continued: random, or heads that look at the
    tokens nearby (modeling/init.py). Beside a discriminator with relative ones it is for the generator alone."""
    output_bias: Literal["zero", "unigram"] = "zero"
    """The bias of a fresh generator's logits: zero, or the logarithm of each token's frequency, so that the first
    prediction is the unigram distribution."""

    def problems(self) -> Iterator[str]:
        for name in ("discriminator", "generator"):
            if getattr(self, name) == "":
                yield f"{name}: is empty; give a folder or an id, or leave it out"


@dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides what a pre-training run computes."""

    data: Path | None = None
    """The folder that `electra prepare` made."""
    out: Path | None = None
    """The run's folder."""
    model: EncoderConfig = field(default_factory=EncoderConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    init: InitConfig = field(default_factory=InitConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

    def problems(self) -> Iterator[str]:
        if self.init.discriminator is None:  # else it brings the shapes, which are then looked at
            yield from self.shape_problems()
        if self.optimizer.warmup_over_decay and self.train.minutes is not None:
            yield "optimizer.warmup_over_decay: the decay begins at once, so give train.steps, not train.minutes"
        if self.optimizer.steps_before and self.train.minutes is not None:
            yield "optimizer.steps_before: the schedule goes on at once, so give train.steps, not train.minutes"
        objective = self.objective
        if self.init.generator is not None and (
            objective.kind in (*ALONE, "electric") or objective.fakes not in WITH_GENERATOR
        ):
            yield "init.generator: the objective has no generator apart; leave it out"
        if self.init.generator is not None and self.init.discriminator is None and objective.fakes != "frozen":
            yield "init.generator: needs init.discriminator, too, or objective.fakes frozen"
        if objective.fakes == "frozen" and self.init.generator is None:
            yield "objective.fakes: frozen needs init.generator, the generator that was trained before"
        if objective.sharing in ("detached", "disentangled") and self.init.discriminator is not None:
            yield f"objective.sharing: {objective.sharing} begins with the generator's tables; set it to none"
        if objective.sentence_loss != "none" and self.packing.builder in ONE_SEGMENT:
            yield (
                f"objective.sentence_loss: {objective.sentence_loss} is about two segments, and rows of "
                f"packing.builder {self.packing.builder} have one; choose contiguous or sentence-pairs, or none"
            )
        if objective.sentence_loss != "none" and self.packing.one_segment_share == 1:
            yield "packing.one_segment_share: 1 leaves no pair of segments for objective.sentence_loss"
        if objective.sentence_loss != "none" and objective.kind == "electric":
            yield "objective.sentence_loss: is not for electric"
        if objective.kind == "two-stage":
            yield from self._two_stage_problems()
        yield from self._stream_problems()
        if self.masking.replacement and objective.kind == "adversarial":
            yield "masking.replacement: must be false for adversarial, where every sample has a reward"
        if self.masking.replacement and objective.kind == "permutation-lm":
            yield "masking.replacement: must be false for permutation-lm: a target has one place in the order"
        if self.masking.replacement and objective.discriminator_positions in ("masked", "random"):
            yield "masking.replacement: must be false where objective.discriminator_positions is masked or random"

    def _stream_problems(self) -> Iterator[str]:
        """Rows that go on from batch to batch."""
        model, packing = self.model, self.packing
        if packing.streams and self.train.batch_ramp_steps:
            yield "train.batch_ramp_steps: rows of a stream are as many in each batch; set it to 0"
        if model.memory_length and not packing.streams:
            yield (
                f"model.memory_length: examples of packing.builder {packing.builder} are shuffled, so there is "
                "nothing to remember; set packing.builder stream, or a memory_length of 0"
            )
        two = model.positions == "relative" and model.type_vocabulary_size > 1
        if packing.streams and two and self.init.discriminator is None:  # it may have been trained on pairs
            yield "model.type_vocabulary_size: rows of a stream have one segment; set it to 1"
        if self.evaluation.memory_length and not model.memory_length:
            yield "evaluation.memory_length: the model remembers nothing; set it to 0, or set model.memory_length"

    def _two_stage_problems(self) -> Iterator[str]:
        objective = self.objective
        if self.train.minutes is not None:
            yield "train.minutes: a run of two stages is as long as train.steps says; give that"
        if objective.first_stage == "generator" and objective.sharing != "none":
            yield "objective.sharing: the generator of a first stage stays as it is in the second; set it to none"
        if (
            objective.first_stage == "generator"
            and objective.hand_over
            and self.generator.encoder(self.model) != self.model
        ):
            yield (
                "objective.hand_over: needs a generator of the discriminator's shape: set generator.width 1, or "
                "objective.hand_over false"
            )

    def shape_problems(self) -> Iterator[str]:
        """Where the shapes of the networks are at odds with each other or with the rest."""
        generates = self.objective.generates
        relative = self.model.positions == "relative"
        learnt = not relative or (generates and self.generator.positions == "learnt")
        if self.packing.sequence_length > self.model.max_positions and learnt:
            yield (
                f"packing.sequence_length: {self.packing.sequence_length} is more than "
                f"model.max_positions, {self.model.max_positions}{' (of the generator)' if relative else ''}"
            )
        yield from self._relative_problems() if relative else self._learnt_problems()
        if not generates:
            return
        generator, size = self.generator.encoder(self.model), self.model.embedding_size
        if self.generator.positions == "relative":
            yield from self._relative_generator_problems()
            return
        if generator.layers % generator.layer_groups:
            groups = generator.layer_groups
            yield f"generator.layers: {generator.layers} do not divide into {groups} groups of blocks"
        if self.objective.sharing != "none" and self.generator.embedding_size not in (0, size):
            yield f"generator.embedding_size: shared tables are {size} wide; leave it at 0, or share none"
        if self.objective.sharing == "all" and self.generator.encoder(self.model) != self.model:
            yield ("objective.sharing: all needs a generator of the discriminator's shape: set generator.width 1")

    def _relative_generator_problems(self) -> Iterator[str]:
        objective = self.objective
        yield from (f"generator.{problem}" for problem in self.generator.encoder(self.model).problems())
        if objective.kind != "replaced-token":
            yield f"generator.positions: relative is for replaced-token, not {objective.kind}; set it to learnt"
        if objective.sharing != "none":
            yield "objective.sharing: a generator with relative positions shares nothing; set it to none"
        if self.model.memory_length and not objective.sampling_dropout:
            yield (
                "objective.sampling_dropout: false would have a generator with a memory read each row twice; set "
                "it to true"
            )

    def _learnt_problems(self) -> Iterator[str]:
        if self.objective.kind in ("causal-lm", "permutation-lm"):
            yield f"model.positions: {self.objective.kind} is for relative ones; set it to relative"

    def _relative_problems(self) -> Iterator[str]:
        objective, direction = self.objective, self.model.direction
        if objective.kind not in RELATIVE:
            yield f"model.positions: {objective.kind} is for learnt ones; relative are for {', '.join(RELATIVE)}"
            return
        if (objective.kind == "causal-lm") != (direction == "left"):
            yield f"model.direction: {direction} is not for {objective.kind}; set it to " + (
                "left" if objective.kind == "causal-lm" else "both"
            )
        if objective.kind not in ALONE and objective.sharing not in ("none", "tokens"):
            yield (
                f"objective.sharing: {objective.sharing} is for learnt positions; beside relative ones the "
                "generator may share tokens, or none"
            )
        learnt = objective.generates and self.generator.positions == "learnt"
        if not learnt and self.init.attention != "random" and self.init.discriminator is None:
            yield "init.attention: is for learnt positions; set it to random"


def load_config(source: str | Path, settings: Mapping[str, Any] | None = None) -> PretrainConfig:
    """The config of a preset or TOML file, with some settings changed.

    Args:
        source: the name of a preset, or the path of a TOML file.
        settings: values by dotted name, such as `{"data": "DATA", "out": "RUN", "train.steps": 1000}`.

    Raises:
        ConfigError: with every problem that was found.
    """
    return config.load_config(PretrainConfig, source, config.overrides_of(settings or {}))


def with_vocabulary(settings: PretrainConfig, size: int = 30_522) -> PretrainConfig:
    """The config with a vocabulary's size where it leaves that to the data (BERT's, where there are none)."""
    return replace(settings, model=replace(settings.model, vocabulary_size=settings.model.vocabulary_size or size))


SETTLED = {"train.steps": None, "train.precision": "auto", "model.vocabulary_size": 0}
"""Settings that a run fills in, with the value that leaves them open."""


ReadsFakes = ReplacedToken | ReplaceMlm | AllTokensMlm
AnyObjective = ReadsFakes | Electric | MaskedLanguageModel | CausalLanguageModel | PermutationLanguageModel
READ_FAKES: dict[ObjectiveKind, type[ReadsFakes]] = {
    "replaced-token": ReplacedToken,
    "replace-mlm": ReplaceMlm,
    "all-tokens-mlm": AllTokensMlm,
    "adversarial": Adversarial,
    "two-stage": TwoStage,
}


def build_objective(
    settings: PretrainConfig, special: SpecialTokens, tables: Mapping[str, Tensor] | None = None
) -> AnyObjective:
    """The objective that a config describes, freshly initialised.

    Args:
        tables: of the data, as `Vocabulary` takes them; without them, what needs them cannot be trained.
    """
    config, masking = settings.objective, settings.masking
    vocabulary = Vocabulary(special, settings.model.vocabulary_size, **(tables or {}))
    if config.kind == "masked-lm":
        return MaskedLanguageModel(settings.model, config=config, masking=masking, vocabulary=vocabulary)
    if config.kind == "causal-lm":
        return CausalLanguageModel(settings.model)
    if config.kind == "permutation-lm":
        return PermutationLanguageModel(settings.model, masking=masking, vocabulary=vocabulary)
    kind = Electric if config.kind == "electric" else READ_FAKES[config.kind]
    return kind(settings.model, settings.generator, config=config, masking=masking, vocabulary=vocabulary)
