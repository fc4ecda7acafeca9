"""The base class of objectives with replaced tokens: it masks, samples replacements and corrupts the text.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, V vocabulary.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from torch import Tensor, nn

from electra.config import NonNegativeFloat, NonNegativeInt, PositiveFloat, Range
from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.modeling.flops import Network
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import Sampling
from electra.modeling.kernels.documents import AttentionMask
from electra.modeling.sharing import EmbeddingSharing
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import ObjectiveParts, Sections, SentenceLossConfig, Sharing
from electra.objectives.description import ELECTRA_PAPER, ModelDescription
from electra.objectives.frequency_sampler import FrequencySampler
from electra.objectives.generators import Generator
from electra.objectives.masking import (
    Masking,
    attention_mask_of,
    draw_masks,
    max_predictions,
    replace_tokens,
    text_mask,
)
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.ngram_sampler import NgramSampler
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.sentences import SentenceLoss
from electra.objectives.stream_memory import StreamMemory
from electra.objectives.vocabulary import NGRAMS, FakesKind

DRAWING = "generator, to draw samples"
"""The name of the generator's second forward pass, in FLOP counts."""
WITH_GENERATOR: tuple[FakesKind, ...] = ("generator", "frozen")
AFTER_FREQUENCY: tuple[FakesKind, ...] = ("generator", *NGRAMS)
"""Sources that frequency_share can precede."""
BY_FREQUENCY: tuple[FakesKind, ...] = ("unigram", *NGRAMS, "same-tag")
TABLE_SHARING: dict[str, EmbeddingSharing] = {
    "tokens": "tokens", "embeddings": "tables", "detached": "detached", "disentangled": "disentangled",
}  # fmt: skip


@dataclass(frozen=True)
class GeneratorObjectiveConfig(SentenceLossConfig):
    """An objective whose full-size network reads text with replaced tokens."""

    discriminator_weight: NonNegativeFloat = 50.0
    """λ, the weight of the discriminator's loss (paper, equation 4), or of the loss of the full-size network that
    reads replaced tokens."""
    generator_weight: NonNegativeFloat = 1.0
    """The weight of the generator's loss."""
    fakes: FakesKind = "generator"
    """Source of the replaced tokens. generator: a generator that is trained together with the network. frozen: a
    pre-trained generator (init.generator) that is not trained. uniform: any token. unigram: tokens by their
    frequency. same-tag: by their frequency among tokens of the same part of speech (`electra data tags`). bigram:
    as often as the training text has them after the token before. trigram: other tokens, as often as the text has
    them between the two tokens beside them."""
    unigram_power: NonNegativeFloat = 1.0
    """For unigram and same-tag, and with frequency_share: frequencies are raised to this power. bigram and trigram
    use it only where they draw as unigram."""
    frequency_share: Annotated[float, Range(ge=0, lt=1)] = 0.0
    """For fakes generator, bigram and trigram: share of the run, at its start, in which tokens are drawn by their
    frequency (unigram). A generator is not computed and not trained there. It then starts without a warm-up of its
    own."""
    temperature: PositiveFloat = 1.0
    """The generator's logits are divided by it before a token is sampled. For adversarial with gumbel: the
    softness of its samples."""
    final_temperature: NonNegativeFloat = 0.0
    """The temperature at the end of the run; it changes linearly. 0: it does not change."""
    top_k: NonNegativeInt = 0
    """Sample from the generator's K most likely tokens only. 0: from all."""
    sharing: Sharing = "embeddings"
    """What the two networks share: nothing, the token table, the three embedding tables, or the whole encoder.
    detached: the discriminator reads the generator's tables, but does not train them. disentangled: the same, plus
    a difference of its own (DeBERTaV3). It starts at 0, or if both networks are continued, at the difference of
    their tables."""
    share_norm: bool = False
    """Share the LayerNorm of the embeddings together with the tables (original: true)."""
    sample_unmasked: bool = True
    """Put samples also at chosen positions that kept their token (original, and the paper's equation: true)."""
    sampling_dropout: bool = True
    """Sample from the generator's training pass, with dropout (original: true). False costs another pass."""
    disallow_correct: bool = False
    """Never sample the original token from the generator."""

    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **SentenceLossConfig.not_ignored, "fakes": (), "temperature": (), "final_temperature": (), "top_k": (),
        "frequency_share": (),
    }  # fmt: skip

    @property
    def has_generator(self) -> bool:
        return self.fakes in WITH_GENERATOR

    @property
    def trains_generator(self) -> bool:
        """Whether the generator is trained together with the full-size network."""
        return self.fakes == "generator"

    @property
    def accepts_pretrained_generator(self) -> bool:
        return self.has_generator

    def problems(self) -> Iterator[str]:
        if self.share_norm and self.sharing not in ("embeddings", "all"):
            yield "share_norm: needs objective.sharing embeddings or all"
        if self.fakes == "frozen" and self.sharing != "none":
            yield "sharing: a frozen generator cannot share weights; set it to none"
        if self.frequency_share and self.fakes not in AFTER_FREQUENCY:
            yield f"frequency_share: is for fakes {', '.join(AFTER_FREQUENCY)}, not {self.fakes}; set it to 0"
        if self.unigram_power != 1 and not (self.fakes in BY_FREQUENCY or self.frequency_share):
            yield (
                f"unigram_power: is for fakes {', '.join(BY_FREQUENCY)}, not {self.fakes}, unless frequency_share "
                "is set; leave it out"
            )

    def problems_with(self, sections: Sections) -> Iterator[str]:
        if self.frequency_share and sections.train.minutes is not None:
            yield "train.minutes: objective.frequency_share needs a fixed number of steps; give train.steps"
        init = sections.init
        if self.frequency_share and (init.from_ is not None or init.has_generator):
            yield "objective.frequency_share: the run starts from trained networks; set it to 0"
        if self.fakes == "frozen" and not init.has_generator and init.from_ is None:
            yield "objective.fakes: frozen needs a pre-trained generator; set init.generator"


def describe_restoring(config: GeneratorObjectiveConfig) -> ModelDescription:
    """The description of a network that predicts the tokens that were replaced."""
    return ModelDescription(
        title="Text encoder that restores replaced tokens",
        text=(
            f"A text encoder of the ablations of ELECTRA ({ELECTRA_PAPER}): some of the words\n"
            "of a text are replaced, and this network predicts the original words. It never saw [MASK]."
        ),
        head="generator",
        generator="generator" if config.has_generator else None,
    )


def generator_source_problem(config: GeneratorObjectiveConfig) -> Iterator[str]:
    """The problem of an objective that needs a trained generator as the source of replaced tokens, if it has
    one."""
    if config.fakes != "generator":
        yield f"fakes: {config.kind} trains its own generator; set it to generator"


@dataclass(frozen=True)
class CorruptedBatch:
    """A batch with replaced tokens.

    Attributes:
        ids_BL: the text with sampled tokens at the chosen positions.
        mask: where the tokens or the documents are; None: there is no padding.
        generator_loss: the sum of the generator's losses at the used slots; None: no generator is trained.
    """

    ids_BL: Tensor
    masking: Masking
    mask: AttentionMask
    generator_loss: Tensor | None


class GeneratorObjective(Objective):
    """A full-size network and a source of replaced tokens.

    `encoder` and `generator` are the networks; `generator` is None if replacements are sampled by frequency.
    Subclasses add heads in `add_heads` and compute the loss in `forward`.
    """

    def __init__(self, parts: ObjectiveParts, config: GeneratorObjectiveConfig) -> None:
        super().__init__()
        model, vocabulary = parts.model, parts.vocabulary
        self.config, self.masking, self.vocabulary = config, parts.masking, vocabulary
        self.sampling = Sampling(
            config.temperature, config.disallow_correct, config.top_k, vocabulary.sampled_entries
        )
        self.sentences: SentenceLoss | None = None
        if config.sentence_loss != "none":
            self.sentences = SentenceLoss(model, weight=config.sentence_weight)
        self.generator: Generator | None = None
        if config.has_generator:
            self._add_networks(model, parts.generator.encoder(model))
        else:
            self.encoder = model.build()
        self.sampler = None if config.has_generator else self._build_sampler(config.fakes)
        self.first_sampler = self._build_sampler("unigram") if config.frequency_share else None
        self.in_first_part = config.frequency_share > 0
        if self.in_first_part and config.has_generator:
            self.has_unused_parameters = True
        self.memory = StreamMemory(model)
        self.add_heads(model)

    @abstractmethod
    def add_heads(self, model: EncoderConfig) -> None:
        """Add heads; the encoder and the generator exist already."""

    def _add_networks(self, model: EncoderConfig, shape: EncoderConfig) -> None:
        """Add the full-size network and a generator of this shape, with shared weights."""
        sharing = self.config.sharing
        if sharing in ("detached", "disentangled"):  # the generator owns the tables
            generator = shape.build()
            self.encoder = model.build_sharing(generator.embeddings, sharing=TABLE_SHARING[sharing])
        else:
            self.encoder = model.build()
            generator = self._build_generator_encoder(shape)
        self.generator = Generator(
            generator, MaskedLanguageModelHead(shape), sampling=self.sampling, frozen=self.config.fakes == "frozen"
        )

    def _build_sampler(self, fakes: FakesKind) -> FrequencySampler | NgramSampler | None:
        """Build a source of replaced tokens that is no network; None: its tables are missing."""
        if not self.vocabulary.can_sample(fakes):
            return None
        sampler = NgramSampler if fakes in NGRAMS else FrequencySampler
        return sampler(fakes, self.vocabulary, power=self.config.unigram_power)

    def _build_generator_encoder(self, shape: EncoderConfig) -> EncoderModule:
        """Build the generator's encoder, which may share tables with the full-size encoder, or be the same
        module."""
        sharing = self.config.sharing
        if sharing == "none":
            return shape.build()
        if sharing == "all":
            assert shape == self.encoder.config, "with sharing all, both networks have the same shape"
            return self.encoder
        if shape.kind == self.encoder.config.kind and "shared-tables" in shape.capabilities:
            tables = TABLE_SHARING.get(sharing, "tables")
            return shape.build_sharing(self.encoder.embeddings, sharing=tables, share_norm=self.config.share_norm)
        assert sharing == "tokens", "encoders of different kinds can share the token table only"
        generator = shape.build()
        generator.embeddings.token = self.encoder.embeddings.token
        return generator

    def begin_step(self, step: int, steps: int | None) -> None:
        """Set where the samples of this step come from, and their temperature."""
        if self.config.frequency_share:
            assert steps is not None, "with frequency_share the number of steps is fixed"
            self.in_first_part = step < self.config.frequency_share * steps
        if self.generator is not None and self.config.final_temperature:
            first, last = self.config.temperature, self.config.final_temperature
            now = first + (last - first) * (min(1.0, step / steps) if steps else 0.0)
            self.generator.sampling = replace(self.sampling, temperature=now)

    def draw_masks(self, batch: Batch) -> Masking:
        """Choose positions and put [MASK] there."""
        return draw_masks(batch, self.masking, self.vocabulary)

    def corrupt(
        self, batch: Batch, *, masking: Masking | None = None, samples_n: Tensor | None = None
    ) -> CorruptedBatch:
        """Mask the batch, compute the generator's loss, and put sampled tokens at the chosen positions.

        Args:
            masking, samples_n: fixed masks and samples; None: they are drawn here.
        """
        masking = masking or self.draw_masks(batch)
        mask = self.attention_mask(batch)
        loss = None
        if self.generator is not None and self.config.trains_generator and not self.in_first_part:
            loss, drawn_n = self.generator(batch, masking, mask, self.sampling_uniforms(batch, masking))
            if samples_n is None and self.config.sampling_dropout:
                samples_n = drawn_n
        if samples_n is None:
            samples_n = self.sample(batch, masking, mask)
        return CorruptedBatch(self.replace_tokens(batch, masking, samples_n), masking, mask, loss)

    def corrupt_for_evaluation(
        self, batch: Batch, metrics: MaskedLanguageModelMetrics, memory: StreamMemory | None = None
    ) -> CorruptedBatch:
        """Corrupt a held-out batch, and add the generator's predictions to its metrics.

        Args:
            memory: the generator's memory during the evaluation, if it has one.
        """
        masking, mask = self.draw_masks(batch), self.attention_mask(batch)
        if self.generator is None or self.in_first_part:
            samples_n = self.sample(batch, masking, mask)
        else:
            uniforms_n = self.sampling_uniforms(batch, masking)
            samples_n = self.generator.add_metrics(batch, masking, mask, uniforms_n, metrics, memory)
        return CorruptedBatch(self.replace_tokens(batch, masking, samples_n), masking, mask, None)

    def sample(self, batch: Batch, masking: Masking, mask: AttentionMask) -> Tensor:
        """Sample a token for every slot (n), without dropout and without a gradient."""
        uniforms_n = self.sampling_uniforms(batch, masking)
        if self.generator is not None and not self.in_first_part:
            return self.generator.sample(batch, masking, mask, uniforms_n)
        sampler = self.first_sampler if self.in_first_part else self.sampler
        assert sampler is not None, f"objective.fakes {self.config.fakes} needs tables of the data"
        samples_n: Tensor = sampler(batch.input_ids_BL, masking, uniforms_n)
        return samples_n

    def attention_mask(self, batch: Batch) -> AttentionMask:
        """Where the tokens or the documents of the batch are; None: there is no padding."""
        return attention_mask_of(batch)

    def sampling_uniforms(self, batch: Batch, masking: Masking) -> Tensor:
        """Uniform random numbers that the samples are drawn with (n)."""
        return uniforms(batch.row_seeds, Purpose.SAMPLES, masking.positions_BN.shape[1]).flatten()

    def replace_tokens(self, batch: Batch, masking: Masking, samples_n: Tensor) -> Tensor:
        """The text with sampled tokens at the used slots (B, L)."""
        if not self.config.sample_unmasked:
            masking = replace(masking, used_BN=masking.masked_BN)
        return replace_tokens(batch.input_ids_BL, samples_n, masking, self.masking)

    def text_mask(self, batch: Batch) -> Tensor:
        """True at tokens of text (B, L)."""
        return text_mask(batch.input_ids_BL, self.vocabulary.special)

    def output_biases(self) -> list[nn.Parameter]:
        return [] if self.generator is None else [self.generator.head.bias]

    def generator_networks(self, length: int) -> Iterator[tuple[str, Network]]:
        """The networks that are computed besides the full-size network."""
        if self.generator is None or self.in_first_part:
            return
        share = max_predictions(length, self.masking.share) / length
        network = self.generator.network(share)
        yield "generator", network
        if self.config.trains_generator and not self.config.sampling_dropout:
            yield DRAWING, replace(network, trained=False)

    def add_generator_loss(self, output: StepOutput, corrupted: CorruptedBatch, counts: Counts) -> StepOutput:
        """Weight the loss of the full-size network, and add the weighted loss of the generator if it is
        trained."""
        loss = self.config.discriminator_weight * output.loss
        if corrupted.generator_loss is None:
            return replace(output, loss=loss)
        generator_loss = corrupted.generator_loss / counts["generator"]
        loss = loss + self.config.generator_weight * generator_loss
        return replace(output, loss=loss, parts={"generator_loss": generator_loss.detach(), **output.parts})

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        """The generator, if there is one; subclasses add the full-size network before it."""
        if self.generator is None:
            return {}
        return {"generator": ExportableNetwork(self.generator.encoder, self.generator.head)}

    def add_sentence_loss(self, output: StepOutput, x_BD: Tensor, batch: Batch, counts: Counts) -> StepOutput:
        """Add the loss for pairs of segments, if there is one; `x_BD` are the states at [CLS]."""
        if self.sentences is None:
            return output
        with_sentences: StepOutput = self.sentences(output, x_BD, batch, counts)
        return with_sentences

    def sentence_counts(self, batch: Batch) -> Counts:
        """Number of rows with two segments, if there is a loss for them."""
        return {} if self.sentences is None else self.sentences.counts(batch)

    def count_predictions(self, batch: Batch, masking: Masking | None = None) -> Tensor:
        """Number of chosen positions in the batch, at least 1."""
        return (masking or self.draw_masks(batch)).used_BN.sum().clamp(min=1)
