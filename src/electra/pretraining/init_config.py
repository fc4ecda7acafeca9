"""The config of the initial weights of a pre-training run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from electra.config import NonNegativeInt, Range


@dataclass(frozen=True)
class InitConfig:
    """The initial weights: those of trained networks, or random ones, of which some can be replaced."""

    from_: str | None = None
    """A run of electra that this run continues with new data, a new schedule, and often longer rows (a second
    stage). All its weights are taken, those of heads and generator too. Shape and objective must be those of the
    run; model.max_positions, model.rope_theta and model.local_rope_theta of rotary positions may differ, and so
    may settings of the objective that need no other weights, such as the source of the replaced tokens. The
    other settings of [init] are ignored, so that RUN/config.toml can be the config of the second stage."""
    discriminator: str | None = None
    """Pre-trained network to start from: an export, a run, a Hugging Face folder or id
    (docs/guides/checkpoints.md lists the types), or the included model wiki-tiny. For masked-lm, its encoder.
    [model] gets its shape. A run of electra-plus (objective.keep_masked_share, no generator) keeps the network's
    head that fills masks: its masked-LM head, or that of the folder encoder beside it. For masked-lm with that
    head, give that folder: wiki-tiny/encoder."""
    generator: str | None = None
    """The same for the generator, with its masked-LM head. Default: a new generator, as in [generator]. To
    continue a generator, give init.discriminator, too, unless objective.fakes is frozen."""
    generator_layers: NonNegativeInt = 0
    """Start the generator from a copy of init.discriminator that is cut to this number of blocks, the first ones,
    with its masked-LM head if it has one. 0: no copy."""
    vocabulary: Literal["same", "transfer", "fresh"] = "same"
    """What to do if the data has another vocabulary than the pre-trained networks. same: refuse it. transfer:
    tokens that both vocabularies have keep their embeddings, and each other token starts from the mean of the
    pieces into which the old tokenizer splits its text. fresh: all embeddings but those of special tokens are
    new."""
    token_table: Literal["random", "cooccurrence"] = "random"
    """Initial token embeddings of new networks: random, or from counts of which token follows which
    (data/cooccurrence.py)."""
    attention: Literal["random", "neighbours"] = "random"
    """Initial attention in the first block of new networks: random, or heads that attend to neighboring tokens.
    Kinds bert, modernbert and deberta have it. If only the generator has it, it applies to that only."""
    output_bias: Literal["zero", "unigram"] = "zero"
    """Initial bias of the logits of new heads that predict tokens: zero, or the logarithm of each token's
    frequency, so that the first prediction is the unigram distribution."""
    average: Annotated[float, Range(ge=0, lt=1)] = 0.0
    """Weight of init.discriminator in RUN/export/averaged, which has the mean of its weights and those of the
    trained network, and from which fine-tuning of the run starts. 0: there is no such folder."""
    trained_length: NonNegativeInt = 0
    """Longest input in the training of init.from or init.discriminator, in tokens. A run fills it in."""
    generator_trained_length: NonNegativeInt = 0
    """The same for the generator; 0 if it is new. A run fills it in."""

    def problems(self) -> Iterator[str]:
        for name, value in (
            ("from", self.from_),
            ("discriminator", self.discriminator),
            ("generator", self.generator),
        ):
            if value == "":
                yield f"{name}: is empty; give a folder or an id, or leave it out"
        if self.vocabulary != "same" and self.discriminator is None and self.generator is None:
            yield f"vocabulary: {self.vocabulary} needs a pre-trained network; set init.discriminator"
        if self.average and self.vocabulary != "same":
            yield f"average: networks of two vocabularies have none; set it to 0 with vocabulary {self.vocabulary}"
        if self.generator_layers and self.discriminator is None:
            yield "generator_layers: copies the network of init.discriminator; set it, or leave this out"
        if self.generator_layers and self.generator is not None:
            yield "generator_layers: init.generator is the generator already; leave one of them out"

    def settled(self) -> "InitConfig":
        """Return this section without the settings that `from` overrides."""
        return self if self.from_ is None else InitConfig(from_=self.from_)

    @property
    def has_generator(self) -> bool:
        """Whether the generator starts from pre-trained weights of [init] alone."""
        return self.generator is not None or self.generator_layers > 0
