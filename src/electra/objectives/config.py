"""The settings of what is trained, and of the generator beside the discriminator."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from electra.modeling.encoder import EncoderConfig

ObjectiveKind = Literal["replaced-token", "masked-lm", "electric"]


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

    def encoder(self, discriminator: EncoderConfig) -> EncoderConfig:
        """The generator's full shape beside a discriminator's; everything not named here is the same."""
        return replace(
            discriminator,
            hidden_size=self.hidden_size,
            embedding_size=self.embedding_size or discriminator.embedding_size,
            layers=self.layers or discriminator.layers,
            feed_forward_size=self.feed_forward_size or 4 * self.hidden_size,
            heads=self.heads or max(1, self.hidden_size // 64),
        )

    def problems(self) -> Iterator[str]:
        for name in ("embedding_size", "layers", "feed_forward_size", "heads"):
            if getattr(self, name) < 0:
                yield f"{name}: must not be negative, got {getattr(self, name)}"
        if self.hidden_size < 1:
            yield f"hidden_size: must be at least 1, got {self.hidden_size}"
        elif self.hidden_size % (self.heads or max(1, self.hidden_size // 64)):
            yield f"heads: cannot share a hidden_size of {self.hidden_size} evenly"


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is trained, and how generator and discriminator are trained together."""

    kind: ObjectiveKind = "replaced-token"
    """replaced-token: ELECTRA. masked-lm: BERT's objective, with this masking. electric: Electric, an energy-based
    cloze model whose discriminator gives pseudo-log-likelihoods."""
    discriminator_weight: float = 50.0
    """λ, the weight of the discriminator's loss (paper, equation 4)."""
    generator_weight: float = 1.0
    """The weight of the generator's loss."""
    temperature: float = 1.0
    """The generator's logits are divided by it before a token is drawn."""
    sharing: Literal["none", "embeddings", "all"] = "embeddings"
    """What the two networks have in common: nothing, the three embedding tables, or the whole encoder."""
    share_norm: bool = False
    """Share the LayerNorm of the embeddings along with the tables (original: true)."""
    discriminator_positions: Literal["text", "all"] = "text"
    """Where the discriminator is asked: tokens of text, or also [CLS] and [SEP], which are never replaced
    (original: all)."""
    sample_unmasked: bool = True
    """Put samples also at chosen positions that kept their token (original, and the paper's equation: true)."""
    sampling_dropout: bool = True
    """Draw from the generator's training pass, dropout on (original: true). False costs another pass."""
    disallow_correct: bool = False
    """Never draw the original token."""

    def problems(self) -> Iterator[str]:
        if not self.temperature > 0:
            yield f"temperature: must be above 0, got {self.temperature}"
        for name in ("discriminator_weight", "generator_weight"):
            if not getattr(self, name) >= 0:
                yield f"{name}: must not be negative, got {getattr(self, name)}"
        if self.share_norm and self.sharing == "none":
            yield "share_norm: needs objective.sharing embeddings or all"
