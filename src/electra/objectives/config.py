"""The settings of what is trained, and of the generator beside the discriminator."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from electra.data.collate import SentenceKind
from electra.modeling.encoders.bert import EncoderConfig

ObjectiveKind = Literal[
    "replaced-token", "masked-lm", "electric", "replace-mlm", "all-tokens-mlm", "adversarial", "two-stage",
    "causal-lm", "permutation-lm",
]  # fmt: skip
ALONE: tuple[ObjectiveKind, ...] = ("masked-lm", "causal-lm", "permutation-lm")
"""Kinds of one network, with no fakes."""
FakesKind = Literal["generator", "frozen", "uniform", "unigram", "same-tag"]
WITH_GENERATOR: tuple[FakesKind, ...] = ("generator", "frozen")
Anneal = Literal["none", "linear", "cosine"]
ONLY_FOR: dict[str, ObjectiveKind] = {
    "first_share": "two-stage",
    "first_stage": "two-stage",
    "hand_over": "two-stage",
    "adversary": "adversarial",
    "anneal": "adversarial",
}
"""Settings without a meaning for any other objective."""


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator's shape, where it differs from the discriminator's (paper, section 3.2)."""

    hidden_size: int = 64
    """Width of the states; a quarter to a half of the discriminator's works best."""
    embedding_size: int = 0
    """Width of its embedding tables where it shares none; 0: the discriminator's."""
    layers: int = 0
    """Transformer blocks; 0: as many as the discriminator."""
    feed_forward_size: int = 0
    """Inner width of the feed-forward layers; 0: 4 × hidden_size."""
    heads: int = 0
    """Attention heads; 0: one for every 64 of hidden_size, at least one."""
    width: float = 0.0
    """Share of the discriminator's hidden and feed-forward sizes and heads, in place of these three; `heads` is
    then the least number of them. 0: they say."""
    positions: Literal["learnt", "relative"] = "learnt"
    """How it knows where tokens stand (see model.positions), whatever the discriminator does. With relative ones
    its embeddings are as wide as its states and its own, and it remembers as much as the discriminator."""

    def encoder(self, discriminator: EncoderConfig) -> EncoderConfig:
        """The generator's full shape beside a discriminator's; everything not named here is the same."""
        heads, hidden = self.heads or max(1, self.hidden_size // 64), self.hidden_size
        inner = self.feed_forward_size or 4 * self.hidden_size
        if self.width:
            heads = max(self.heads, 1, round(self.width * discriminator.heads))
            hidden = heads * max(1, round(self.width * discriminator.hidden_size / heads))
            inner = max(1, round(self.width * discriminator.feed_forward_size))
        relative = self.positions == "relative"
        return replace(
            discriminator,
            hidden_size=hidden,
            embedding_size=self.embedding_size or (hidden if relative else discriminator.embedding_size),
            layers=self.layers or discriminator.layers,
            feed_forward_size=inner,
            heads=heads,
            positions=self.positions,
            direction="both",
            memory_length=discriminator.memory_length if relative else 0,
        )

    def problems(self) -> Iterator[str]:
        for name in ("embedding_size", "layers", "feed_forward_size", "heads"):
            if getattr(self, name) < 0:
                yield f"{name}: must not be negative, got {getattr(self, name)}"
        if self.width < 0:
            yield f"width: must not be negative, got {self.width}"
        if self.hidden_size < 1:
            yield f"hidden_size: must be at least 1, got {self.hidden_size}"
        elif not self.width and self.hidden_size % (self.heads or max(1, self.hidden_size // 64)):
            yield f"heads: cannot share a hidden_size of {self.hidden_size} evenly"


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is trained, and how generator and discriminator are trained together."""

    kind: ObjectiveKind = "replaced-token"
    """replaced-token: ELECTRA. masked-lm: BERT's objective, with this masking. electric: Electric, an energy-based
    cloze model whose discriminator gives pseudo-log-likelihoods. replace-mlm: fakes stand in place of [MASK], and
    the full-size network predicts the chosen positions. all-tokens-mlm: it predicts every position, with a gate
    that may copy what stands there. adversarial: the generator is trained to deceive the discriminator. two-stage:
    one network is trained alone for a share of the run, then the rest. causal-lm: Transformer-XL's objective, what
    comes next. permutation-lm: XLNet's, tokens in a random order, those that [masking] chooses."""
    discriminator_weight: float = 50.0
    """λ, the weight of the discriminator's loss (paper, equation 4), or of the full-size network's that reads
    fakes."""
    generator_weight: float = 1.0
    """The weight of the generator's loss."""
    fakes: FakesKind = "generator"
    """Where fakes come from: the generator that is trained beside; frozen: one that was trained before
    (init.generator) and stays as it is; uniform: any token; unigram: tokens by their frequency; same-tag: by their
    frequency among tokens of the same part of speech (`electra data tags`)."""
    unigram_power: float = 1.0
    """For unigram and same-tag: frequencies are raised to it."""
    temperature: float = 1.0
    """The generator's logits are divided by it before a token is drawn. For adversarial with gumbel: the softness
    of its samples."""
    final_temperature: float = 0.0
    """What the temperature comes to at the end of the run, in a straight line; 0: it stays."""
    top_k: int = 0
    """Draw from the generator's so many likeliest tokens only; 0: from all."""
    sharing: Literal["none", "tokens", "embeddings", "detached", "disentangled", "all"] = "embeddings"
    """What the two networks have in common: nothing, the token table, the three embedding tables, or the whole
    encoder. detached: the discriminator reads the generator's tables, but does not train them. disentangled: the
    same, plus a difference of its own that starts at 0 (DeBERTaV3)."""
    share_norm: bool = False
    """Share the LayerNorm of the embeddings along with the tables (original: true)."""
    discriminator_positions: Literal["text", "all", "masked", "random"] = "text"
    """Where the discriminator is asked: tokens of text; all, also [CLS] and [SEP], which are never replaced (the
    original); masked: at the chosen positions alone (ELECTRA 15 %); random: at as many positions of text that are
    drawn apart from the masks."""
    sample_unmasked: bool = True
    """Put samples also at chosen positions that kept their token (original, and the paper's equation: true)."""
    sampling_dropout: bool = True
    """Draw from the generator's training pass, dropout on (original: true). False costs another pass."""
    disallow_correct: bool = False
    """Never draw the original token."""
    first_share: float = 0.5
    """For two-stage: the share of the run that the first stage takes."""
    first_stage: Literal["generator", "encoder"] = "generator"
    """For two-stage. generator: it is trained alone, then the discriminator on its frozen fakes (paper, section
    3.2). encoder: the discriminator's network learns as a masked language model first, then both are trained
    together."""
    hand_over: bool = True
    """For two-stage, first_stage generator: begin the discriminator with the generator's weights; the two need one
    shape."""
    adversary: Literal["reinforce", "gumbel", "gumbel-straight"] = "reinforce"
    """For adversarial: how the generator learns from the discriminator. reinforce: by the reward of its samples
    less a learnt baseline (paper, appendix F). gumbel: through soft samples, mixtures of embeddings;
    gumbel-straight: through hard ones, with the gradient of soft ones."""
    anneal: Anneal = "none"
    """For adversarial: how the generator goes from maximum likelihood to the adversarial loss in the course of the
    run. none: the adversarial loss from the start."""

    sentence_loss: SentenceKind = "none"
    """A loss for pairs of segments, added to any objective. next: is the second one what follows, or from anywhere
    (BERT)? order: do the two stand in their order, or were they exchanged (ALBERT)? Half of the pairs each."""
    sentence_weight: float = 1.0
    """The weight of that loss."""

    @property
    def generates(self) -> bool:
        """Is there a generator?"""
        return self.kind not in ALONE and self.fakes in WITH_GENERATOR

    @property
    def fakes_learn(self) -> bool:
        """Whether a generator is trained beside."""
        return self.fakes == "generator"

    def problems(self) -> Iterator[str]:
        if not self.temperature > 0:
            yield f"temperature: must be above 0, got {self.temperature}"
        for name in ("discriminator_weight", "generator_weight", "sentence_weight"):
            if not getattr(self, name) >= 0:
                yield f"{name}: must not be negative, got {getattr(self, name)}"
        if self.share_norm and self.sharing not in ("embeddings", "all"):
            yield "share_norm: needs objective.sharing embeddings or all"
        if self.kind == "adversarial" and self.adversary != "reinforce" and self.sentence_loss != "none":
            yield "sentence_loss: its gradient would reach the generator through soft samples; use reinforce"
        if self.final_temperature < 0:
            yield f"final_temperature: must not be negative, got {self.final_temperature}"
        for name in ("top_k", "unigram_power"):
            if not getattr(self, name) >= 0:
                yield f"{name}: must not be negative, got {getattr(self, name)}"
        if not 0 < self.first_share < 1:
            yield f"first_share: must lie between 0 and 1, got {self.first_share}"
        if self.kind in ("adversarial", "electric", "two-stage") and self.fakes != "generator":
            yield f"fakes: {self.kind} trains the generator that its fakes come from; leave it at generator"
        if self.fakes == "frozen" and self.sharing != "none":
            yield "sharing: a frozen generator shares nothing; set it to none"
        if self.kind == "electric" and self.sharing not in ("none", "embeddings"):
            yield f"sharing: {self.sharing} is not for electric, whose cloze model has two towers"
        if self.kind in ("replace-mlm", "all-tokens-mlm") and self.discriminator_positions != "text":
            yield f"discriminator_positions: {self.kind} has no discriminator; leave it at text"
        if self.kind == "electric" and self.discriminator_positions not in ("text", "all"):
            yield "discriminator_positions: electric asks about text or all"
        if self.kind == "adversarial":
            refused: dict[str, float] = {
                "sampling_dropout": True,
                "sample_unmasked": True,
                "top_k": 0,
                "disallow_correct": False,
            }
            if self.adversary == "reinforce":
                refused |= {"temperature": 1.0, "final_temperature": 0.0}
            for name, value in refused.items():
                if getattr(self, name) != value:
                    yield f"{name}: the generator of adversarial learns from plain samples; set it to {value}"
        for name, kind in ONLY_FOR.items():
            if self.kind != kind and getattr(self, name) != getattr(ObjectiveConfig, name):
                yield f"{name}: is for {kind}, and the objective is {self.kind}; leave it out"
        if self.kind in ALONE:
            if self.discriminator_positions not in ("text", "all"):
                yield f"discriminator_positions: {self.kind} has no discriminator; leave it at text"
            for name in ("fakes", "temperature", "final_temperature", "top_k"):
                if getattr(self, name) != getattr(ObjectiveConfig, name):
                    yield f"{name}: {self.kind} draws no fakes; leave it out"
        if self.kind in ("causal-lm", "permutation-lm") and self.sentence_loss != "none":
            yield f"sentence_loss: is not for {self.kind}; set it to none"
        if self.unigram_power != 1 and self.fakes not in ("unigram", "same-tag"):
            yield f"unigram_power: is for fakes unigram and same-tag, not {self.fakes}; leave it out"
        if self.kind == "electric" and self.final_temperature:
            yield "final_temperature: is not for electric"
        if (
            self.kind == "two-stage"
            and self.first_stage == "encoder"
            and self.sharing in ("detached", "disentangled")
        ):
            yield f"sharing: {self.sharing} leaves the tables to a generator that is not trained at first"
        if self.kind == "adversarial" and self.sharing == "all":
            yield "sharing: all would have one network deceive itself; share embeddings"
