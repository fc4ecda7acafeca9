"""What every objective's config has, and the shape of the generator next to the network that is trained.

An objective is one file: a frozen dataclass that extends `ObjectiveConfig`, registered under its `kind`, and the
module that it builds (objectives/base.py says what the trainer asks of it). masked_lm.py is the example.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol

from electra.config import NonNegativeFloat, NonNegativeInt, PositiveInt, Table
from electra.data.collate import SentenceKind
from electra.data.packing import PackingConfig
from electra.modeling.encoders.base import Capability, EncoderConfig, with_kind_of_positions
from electra.objectives.base import Objective
from electra.objectives.masking import MaskingConfig
from electra.objectives.vocabulary import FakesKind, Vocabulary
from electra.registry import encoders, objectives

Sharing = Literal["none", "tokens", "embeddings", "detached", "disentangled", "all"]


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator's shape, where it differs from the discriminator's (paper, section 3.2)."""

    kind: str = ""
    """Architecture of the generator (see model.kind); empty: that of [model], or bert next to a relative one."""
    hidden_size: PositiveInt = 64
    """Width of the states; a quarter to a half of the discriminator's works best."""
    embedding_size: NonNegativeInt = 0
    """Width of its embedding tables where it shares none; 0: the discriminator's."""
    layers: NonNegativeInt = 0
    """Number of Transformer blocks; 0: as many as the discriminator."""
    feed_forward_size: NonNegativeInt = 0
    """Inner width of the feed-forward layers; 0: 4 × hidden_size."""
    heads: NonNegativeInt = 0
    """Number of attention heads; 0: one for every 64 of hidden_size, at least one."""
    width: NonNegativeFloat = 0.0
    """Share of the discriminator's hidden and feed-forward sizes and heads, in place of these three; `heads` is
    then the least number of them. 0: the three settings are used."""

    def kind_beside(self, discriminator: EncoderConfig) -> str:
        """The kind of encoder next to a discriminator."""
        return self.kind or discriminator.generator_kind or discriminator.kind

    def encoder(self, discriminator: EncoderConfig) -> EncoderConfig:
        """The generator's full shape next to a discriminator's; everything not named here is the same."""
        heads, hidden = self.heads or max(1, self.hidden_size // 64), self.hidden_size
        inner = self.feed_forward_size or 4 * self.hidden_size
        if self.width:
            heads = max(self.heads, 1, round(self.width * discriminator.heads))
            hidden = heads * max(1, round(self.width * discriminator.hidden_size / heads))
            inner = max(1, round(self.width * discriminator.feed_forward_size))
        base = discriminator.with_kind(self.kind_beside(discriminator))
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
        """The class, and the table with `kind` in place of the older setting `positions`."""
        kinds = {"learnt": "", "learned": "", "relative": "relative"}
        return cls, with_kind_of_positions(table, kinds)


class Sections(Protocol):
    """The sections of a run's config that an objective may look at to find contradictions."""

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
    """What an objective is built from.

    Attributes:
        model: the shape of the network that is trained.
        generator: the shape of a generator, for objectives that have one.
    """

    model: EncoderConfig
    generator: GeneratorConfig
    masking: MaskingConfig
    vocabulary: Vocabulary


@dataclass(frozen=True)
class ObjectiveConfig(ABC):
    """What is trained, and with which settings."""

    kind: str = "replaced-token"
    """Training objective. replaced-token: ELECTRA. masked-lm: BERT's objective, with the masks of [masking].
    electric: Electric, an energy-based cloze model whose discriminator gives pseudo-log-likelihoods. replace-mlm:
    replacements stand in place of [MASK], and the full-size network predicts the masked positions.
    all-tokens-mlm: it predicts every position, with a gate that may copy the input token. adversarial: the
    generator is trained to deceive the discriminator. two-stage: one network is trained alone for a share of the
    run, then the rest. causal-lm: Transformer-XL's objective, the next token. permutation-lm: XLNet's, tokens that
    [masking] chooses, in a random order."""

    encoder_needs: ClassVar[frozenset[Capability]] = frozenset({"bidirectional"})
    """Capabilities that the encoder of [model] must have."""
    carries_memory: ClassVar[bool] = False
    """Whether networks with a memory can be trained."""
    unused_settings: ClassVar[tuple[str, ...]] = ()
    """Beginnings of names of settings in other sections that the objective does not read."""
    unused_reason: ClassVar[str] = ""
    """Why: what the objective does not have."""
    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Settings of this objective that are refused for others, unless they have their default or one of these
    values; other settings of an objective mean nothing to others, since presets of a size may have them."""
    scores: ClassVar[Literal["log-odds", "energy"]] = "log-odds"
    """What the logits of a discriminator are: log-odds of a replaced token, or energies."""

    @abstractmethod
    def build(self, parts: ObjectiveParts) -> Objective:
        """The objective, freshly initialized."""

    @property
    def encoder_capabilities(self) -> frozenset[Capability]:
        """Capabilities that these settings need."""
        return self.encoder_needs

    @property
    def sentence_loss(self) -> SentenceKind:
        """The loss for pairs of segments that is added."""
        return "none"

    @property
    def generates(self) -> bool:
        """Whether there is a generator of its own shape."""
        return False

    @property
    def fakes(self) -> FakesKind | None:
        """Where replacements come from; None: there are none."""
        return None

    @property
    def needs_tags(self) -> bool:
        """Whether the data must have a part of speech for each token (`electra data tags`)."""
        return self.fakes == "same-tag"

    @property
    def sharing(self) -> Sharing:
        """What the generator shares with the discriminator."""
        return "none"

    @property
    def share_norm(self) -> bool:
        """Whether the two share the LayerNorm of the embeddings."""
        return False

    @property
    def accepts_generator(self) -> bool:
        """Whether a pre-trained generator can be given (init.generator)."""
        return False

    def stage_starts(self, steps: int) -> list[int]:
        """The steps at which a stage begins; each has its own warm-up and decay of the learning rate."""
        return [0]

    def problems(self) -> Iterator[str]:
        """What is wrong with these settings."""
        return iter(())

    def problems_with(self, sections: Sections) -> Iterator[str]:
        """What is wrong with these settings and other sections together, as `"section.name: ..."`."""
        return iter(())

    @classmethod
    def variants(cls) -> dict[str, type["ObjectiveConfig"]]:
        """The config classes of all kinds, by name."""
        return dict(objectives)

    @classmethod
    def variant(cls, table: Table) -> tuple[type["ObjectiveConfig"], Table]:
        """The config class that a TOML table is for, and the table without settings of other objectives.

        Raises:
            ValueError: the table has a setting of another objective that must not be ignored.
        """
        kind = table.get("kind", "replaced-token")
        config_class: type[ObjectiveConfig] = objectives.get(kind)
        own = {field.name for field in fields(config_class)}
        found, refused = {}, []
        for key, value in table.items():
            owners = [] if key in own else [(n, c) for n, c in objectives if key in {f.name for f in fields(c)}]
            if not owners:
                found[key] = value
                continue
            kinds, other = [name for name, _ in owners], owners[0][1]
            default = next(f.default for f in fields(other) if f.name == key)
            ignored = other.not_ignored.get(key)
            if ignored is not None and default is not MISSING and value not in (default, *ignored):
                refused.append(f"{key}: is for {', '.join(kinds)}, and the objective is {kind}; leave it out")
        if refused:
            raise ValueError("\n".join(refused))
        return config_class, found


@dataclass(frozen=True)
class SentenceLossConfig(ObjectiveConfig):
    """An objective to which a loss for pairs of segments may be added."""

    sentence_loss: SentenceKind = "none"
    """A loss for pairs of segments, added to the objective. next: is the second one what follows, or from
    elsewhere (BERT)? order: are the two in their order, or were they exchanged (ALBERT)? Half of the pairs
    each."""
    sentence_weight: NonNegativeFloat = 1.0
    """The weight of that loss."""

    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {"sentence_loss": ()}


def scores_of(kind: str | None) -> Literal["log-odds", "energy"]:
    """What the logits of a discriminator are that an objective of this kind trained; None: it is not known."""
    return objectives.get(kind).scores if kind in objectives.names() else "log-odds"


def make_objective_config(kind: str = "replaced-token", **settings: Any) -> ObjectiveConfig:
    """The config of an objective by the name of its kind; settings of other objectives are left out, as in a file.

    Raises:
        ConfigError: no objective has this name.
        ValueError: a setting of another objective must not be ignored.
    """
    config_class, own = ObjectiveConfig.variant({"kind": kind, **settings})
    return config_class(**own)
