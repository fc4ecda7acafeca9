"""The base class of objectives' configs, and the config of the generator.

An objective is one file: a frozen dataclass that extends `ObjectiveConfig`, registered under its `kind`, and the
module that it builds (see `electra.objectives.base.Objective`). masked_lm.py is an example.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol

from electra.config import NonNegativeFloat, NonNegativeInt, PositiveInt, Table, value_problem
from electra.data.collate import SentenceKind
from electra.data.packing import PackingConfig
from electra.modeling.encoders.base import Capability, EncoderConfig
from electra.modeling.encoders.tables import with_kind_of_positions
from electra.objectives.base import Objective
from electra.objectives.description import ModelDescription
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.vocabulary import NGRAMS, FakesKind, Vocabulary
from electra.registry import encoders, objectives

DEFAULT_OBJECTIVE = "replaced-token"
"""The objective of configs without `objective.kind`, and of discriminators from other libraries."""
Sharing = Literal["none", "tokens", "embeddings", "detached", "disentangled", "all"]


@dataclass(frozen=True)
class GeneratorConfig:
    """The shape of the generator, where it differs from the shape of the discriminator (paper, section 3.2)."""

    kind: str = ""
    """Architecture of the generator (see model.kind). Empty: model.kind, or bert if model.kind is relative."""
    hidden_size: PositiveInt = 64
    """Width of the states; a quarter to a half of the discriminator's width works best."""
    embedding_size: NonNegativeInt = 0
    """Width of its embedding tables, if it shares none. 0: the width of the discriminator's."""
    layers: NonNegativeInt = 0
    """Number of Transformer blocks. 0: as many as the discriminator."""
    feed_forward_size: NonNegativeInt = 0
    """Inner width of the feed-forward layers. 0: 4 × hidden_size."""
    heads: NonNegativeInt = 0
    """Number of attention heads. 0: one for every 64 of hidden_size, at least one."""
    width: NonNegativeFloat = 0.0
    """Hidden size, feed-forward size and heads as a fraction of the discriminator's; it replaces these three
    settings, and `heads` is then the minimum number of heads. 0: the three settings are used."""

    def encoder_kind(self, discriminator: EncoderConfig) -> str:
        """The kind of the generator's encoder, given the discriminator."""
        return self.kind or discriminator.generator_kind or discriminator.kind

    def encoder(self, discriminator: EncoderConfig) -> EncoderConfig:
        """The full config of the generator's encoder; settings without a field here are the discriminator's."""
        heads, hidden = self.heads or max(1, self.hidden_size // 64), self.hidden_size
        inner = self.feed_forward_size or 4 * self.hidden_size
        if self.width:
            heads = max(self.heads, 1, round(self.width * discriminator.heads))
            hidden = heads * max(1, round(self.width * discriminator.hidden_size / heads))
            inner = max(1, round(self.width * discriminator.feed_forward_size))
        base = discriminator.with_kind(self.encoder_kind(discriminator))
        embedding = hidden if base.square_only else discriminator.embedding_size
        shape = replace(
            base, hidden_size=hidden, embedding_size=self.embedding_size or embedding,
            layers=self.layers or discriminator.layers, feed_forward_size=inner, heads=heads,
        )  # fmt: skip
        return shape.as_generator()

    def problems(self) -> Iterator[str]:
        if not self.width and self.hidden_size % (self.heads or max(1, self.hidden_size // 64)):
            yield f"heads: cannot share a hidden_size of {self.hidden_size} evenly"
        if self.kind and self.kind not in encoders.names():
            yield f"kind: there is no encoder {self.kind!r}; known are {', '.join(encoders.names())}"

    @classmethod
    def variant(cls, table: Table) -> tuple[type["GeneratorConfig"], Table]:
        """Return the class, and the TOML table with the older setting `positions` replaced by `kind`."""
        return cls, with_kind_of_positions(table, learned="")


class Sections(Protocol):
    """The sections of a run's config that an objective may check for contradictions."""

    @property
    def model(self) -> EncoderConfig: ...
    @property
    def generator(self) -> GeneratorConfig: ...
    @property
    def masking(self) -> MaskingConfig: ...
    @property
    def packing(self) -> PackingConfig: ...
    @property
    def init(self) -> Any: ...
    @property
    def train(self) -> Any: ...


@dataclass(frozen=True)
class ObjectiveParts:
    """The configs and tables that an objective is built from.

    Attributes:
        model: the shape of the full-size network.
        generator: the shape of the generator, for objectives that have one.
    """

    model: EncoderConfig
    generator: GeneratorConfig
    masking: MaskingConfig
    vocabulary: Vocabulary


@dataclass(frozen=True)
class ObjectiveConfig(ABC):
    """The pre-training objective and its settings."""

    kind: str = DEFAULT_OBJECTIVE
    """Training objective. replaced-token: ELECTRA. masked-lm: BERT's objective, with the masks of [masking].
    electric: Electric, an energy-based cloze model whose discriminator gives pseudo-log-likelihoods. replace-mlm:
    sampled tokens replace [MASK], and the full-size network predicts the masked positions. all-tokens-mlm: it
    predicts every position, with a gate that can copy the input token. adversarial: the generator is trained to
    fool the discriminator. two-stage: one network is trained alone for a share of the run, then the rest.
    causal-lm: the objective of Transformer-XL, the next token. permutation-lm: the objective of XLNet, tokens
    chosen by [masking], in a random order."""

    encoder_needs: ClassVar[frozenset[Capability]] = frozenset({"bidirectional"})
    """Capabilities that the encoder of [model] must have."""
    carries_memory: ClassVar[bool] = False
    """Whether encoders with a memory can be trained."""
    reads_packed_rows: ClassVar[bool] = True
    """Whether it can be trained on rows of several documents (packing.builder packed)."""
    unused_settings: ClassVar[tuple[str, ...]] = ()
    """Settings in other sections that the objective does not read, as prefixes of their names."""
    unused_reason: ClassVar[str] = ""
    """The reason, for messages, such as "no generator"."""
    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Settings of this objective that are an error with another objective, unless they have their default or one
    of these values. Other settings are ignored there, because presets of a size may have them."""
    scores: ClassVar[Literal["log-odds", "energy"]] = "log-odds"
    """The meaning of the discriminator's logits: log-odds that a token was replaced, or energies."""

    @abstractmethod
    def build(self, parts: ObjectiveParts) -> Objective:
        """Build the objective with freshly initialized weights."""

    @property
    def encoder_capabilities(self) -> frozenset[Capability]:
        """Capabilities that the encoder needs with these settings."""
        return self.encoder_needs

    @property
    def sentence_loss(self) -> SentenceKind:
        """The additional loss for pairs of segments."""
        return "none"

    @property
    def has_generator(self) -> bool:
        """Whether there is a generator with a shape of its own."""
        return False

    @property
    def fakes(self) -> FakesKind | None:
        """Source of the replaced tokens; None: no token is replaced."""
        return None

    @property
    def needs_tags(self) -> bool:
        """Whether the data must have a part of speech for each token (`electra data tags`)."""
        return self.fakes == "same-tag"

    @property
    def needs_trigrams(self) -> bool:
        """Whether replaced tokens are drawn from trigrams of the training text."""
        return self.fakes in NGRAMS

    @property
    def sharing(self) -> Sharing:
        """The weights that the generator shares with the discriminator."""
        return "none"

    @property
    def share_norm(self) -> bool:
        """Whether the two networks share the LayerNorm of the embeddings."""
        return False

    @property
    def exports_masked_lm(self) -> bool:
        """Whether the discriminator is exported a second time, as a masked language model in `encoder`."""
        return False

    @property
    def accepts_pretrained_generator(self) -> bool:
        """Whether the run can start from a pre-trained generator (init.generator)."""
        return False

    def describe(self, masking: MaskingConfig) -> ModelDescription:
        """What the model card says of the network that is trained."""
        return ModelDescription(
            title="Text encoder",
            text=f"A text encoder that was pre-trained with the objective `{self.kind}`.",
            tag=self.kind,
        )

    def stage_starts(self, steps: int) -> list[int]:
        """The steps at which stages begin; each stage has its own warm-up and decay of the learning rate."""
        return [0]

    def typical_step(self, steps: int) -> int:
        """A step that costs as much as most of a run: the middle of its last stage."""
        return (self.stage_starts(steps)[-1] + steps) // 2

    def problems(self) -> Iterator[str]:
        """Contradictions between these settings, as `"setting: ..."`."""
        return iter(())

    def problems_with(self, sections: Sections) -> Iterator[str]:
        """Contradictions between these settings and other sections, as `"section.setting: ..."`."""
        return iter(())

    @classmethod
    def variants(cls) -> dict[str, type["ObjectiveConfig"]]:
        """Return the config classes of all kinds, by name."""
        return dict(objectives)

    @classmethod
    def variant(cls, table: Table) -> tuple[type["ObjectiveConfig"], Table]:
        """Return the config class for a TOML table, and the table without settings of other objectives.

        Raises:
            ValueError: settings of other objectives must not be ignored, or have invalid values; one line each.
        """
        kind = table.get("kind", DEFAULT_OBJECTIVE)
        config_class: type[ObjectiveConfig] = objectives.get(kind)
        own = {field.name for field in fields(config_class)}
        settings, refused = {}, []
        for key, value in table.items():
            owners = [] if key in own else [(n, c) for n, c in objectives if key in {f.name for f in fields(c)}]
            if not owners:
                settings[key] = value
                continue
            kinds, other = [name for name, _ in owners], owners[0][1]
            problems = [value_problem(owner, key, value) for _, owner in owners]
            if all(problems):  # the value is not used, but it is a mistake
                refused.append(f"{key}: {problems[0]}")
                continue
            default = next(f.default for f in fields(other) if f.name == key)
            ignored = other.not_ignored.get(key)
            if ignored is not None and default is not MISSING and value not in (default, *ignored):
                refused.append(f"{key}: is for {', '.join(kinds)}, and the objective is {kind}; leave it out")
        if refused:
            raise ValueError("\n".join(refused))
        return config_class, settings


@dataclass(frozen=True)
class SentenceLossConfig(ObjectiveConfig):
    """An objective that can have an additional loss for pairs of segments."""

    sentence_loss: SentenceKind = "none"
    """Additional loss for pairs of segments. next: does the second segment follow the first, or is it from another
    place (next sentence prediction, BERT)? order: are the two in their original order, or swapped (sentence order
    prediction, ALBERT)? Half of the pairs are of each kind."""
    sentence_weight: NonNegativeFloat = 1.0
    """The weight of that loss."""

    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {"sentence_loss": ()}


def scores_of(kind: str | None) -> Literal["log-odds", "energy"]:
    """The meaning of the logits of a discriminator that was trained with this kind of objective (None:
    unknown)."""
    return objectives.get(kind).scores if kind in objectives.names() else "log-odds"
