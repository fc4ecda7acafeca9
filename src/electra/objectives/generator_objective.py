"""What all objectives have in common whose network reads fakes: masks, fakes, and the text with fakes in it.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, V vocabulary.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor, nn

from electra.config import NonNegativeFloat, NonNegativeInt, PositiveFloat
from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.modeling.flops import Network
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import Sampling
from electra.modeling.sharing import EmbeddingSharing
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, Objective, StepOutput
from electra.objectives.config import ObjectiveParts, Sections, SentenceLossConfig, Sharing
from electra.objectives.generators import CountedFakes, Generator
from electra.objectives.masking import (
    Masking,
    attention_mask_of,
    candidates,
    draw_masks,
    replace_tokens,
    slots,
)
from electra.objectives.metrics import MaskedLanguageModelMetrics
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.sentences import SentenceLoss
from electra.objectives.stream_memory import StreamMemory
from electra.objectives.vocabulary import FakesKind

WITH_GENERATOR: tuple[FakesKind, ...] = ("generator", "frozen")
SHARES: dict[str, EmbeddingSharing] = {
    "tokens": "tokens", "embeddings": "tables", "detached": "detached", "disentangled": "disentangled",
}  # fmt: skip


@dataclass(frozen=True)
class GeneratorObjectiveConfig(SentenceLossConfig):
    """An objective whose full-size network reads text with replaced tokens."""

    discriminator_weight: NonNegativeFloat = 50.0
    """λ, the weight of the loss of the discriminator (paper, equation 4), or of the full-size network that reads
    replaced tokens."""
    generator_weight: NonNegativeFloat = 1.0
    """The weight of the generator's loss."""
    fakes: FakesKind = "generator"
    """Source of the replaced tokens: the generator that is trained together with the network; frozen: one that was
    trained before (init.generator) and stays as it is; uniform: any token; unigram: tokens by their frequency;
    same-tag: by their frequency among tokens of the same part of speech (`electra data tags`)."""
    unigram_power: NonNegativeFloat = 1.0
    """For unigram and same-tag: frequencies are raised to this power."""
    temperature: PositiveFloat = 1.0
    """The generator's logits are divided by it before a token is drawn. For adversarial with gumbel: the softness
    of its samples."""
    final_temperature: NonNegativeFloat = 0.0
    """The temperature at the end of the run, reached in a straight line; 0: it does not change."""
    top_k: NonNegativeInt = 0
    """Draw from the generator's K most likely tokens only; 0: from all."""
    sharing: Sharing = "embeddings"
    """What the two networks share: nothing, the token table, the three embedding tables, or the whole encoder.
    detached: the discriminator reads the generator's tables, but does not train them. disentangled: the same, plus
    a difference of its own that starts at 0 (DeBERTaV3)."""
    share_norm: bool = False
    """Share the LayerNorm of the embeddings along with the tables (original: true)."""
    sample_unmasked: bool = True
    """Put samples also at chosen positions that kept their token (original, and the paper's equation: true)."""
    sampling_dropout: bool = True
    """Draw from the generator's training pass, dropout on (original: true). False costs another pass."""
    disallow_correct: bool = False
    """Never draw the original token."""

    not_ignored: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **SentenceLossConfig.not_ignored, "fakes": (), "temperature": (), "final_temperature": (), "top_k": (),
    }  # fmt: skip

    @property
    def generates(self) -> bool:
        return self.fakes in WITH_GENERATOR

    @property
    def generator_learns(self) -> bool:
        """Whether the generator is trained together with the network."""
        return self.fakes == "generator"

    @property
    def accepts_generator(self) -> bool:
        return self.generates

    def problems(self) -> Iterator[str]:
        if self.share_norm and self.sharing not in ("embeddings", "all"):
            yield "share_norm: needs objective.sharing embeddings or all"
        if self.fakes == "frozen" and self.sharing != "none":
            yield "sharing: a frozen generator shares nothing; set it to none"
        if self.unigram_power != 1 and self.fakes not in ("unigram", "same-tag"):
            yield f"unigram_power: is for fakes unigram and same-tag, not {self.fakes}; leave it out"

    def problems_with(self, sections: Sections) -> Iterator[str]:
        init = sections.init
        if self.fakes == "frozen" and init.generator is None:
            yield "objective.fakes: frozen needs init.generator, the generator that was trained before"
        if self.sharing in ("detached", "disentangled") and init.discriminator is not None:
            yield f"objective.sharing: {self.sharing} begins with the generator's tables; set it to none"


def trains_its_own_generator(config: GeneratorObjectiveConfig) -> Iterator[str]:
    """The problem of an objective that trains the generator that its replaced tokens come from."""
    if config.fakes != "generator":
        yield f"fakes: {config.kind} trains the generator that its fakes come from; leave it at generator"


@dataclass(frozen=True)
class CorruptedBatch:
    """A batch with fakes in it.

    Attributes:
        ids_BL: the text with fakes at the chosen positions.
        mask_BL: True at tokens, None where there is no padding.
        generator_loss: the sum of the generator's losses at the used slots; None: no generator learns.
    """

    ids_BL: Tensor
    masking: Masking
    mask_BL: Tensor | None
    generator_loss: Tensor | None


class GeneratorObjective(Objective):
    """A full-size network, and a source of fakes beside it.

    `encoder` and `generator` are the networks; without a generator (fakes of counts) the second is None.
    Subclasses say in `add_heads` what stands on top, and in `forward` what is learnt.
    """

    def __init__(self, parts: ObjectiveParts, config: GeneratorObjectiveConfig) -> None:
        super().__init__()
        model, vocabulary = parts.model, parts.vocabulary
        self.config, self.masking, self.vocabulary = config, parts.masking, vocabulary
        self.sampling = Sampling(config.temperature, config.disallow_correct, config.top_k)
        self.sentences: SentenceLoss | None = None
        if config.sentence_loss != "none":
            self.sentences = SentenceLoss(model, weight=config.sentence_weight)
        self.counted: CountedFakes | None = None
        self.generator: Generator | None = None
        if config.generates:
            self._add_networks(model, parts.generator.encoder(model))
        else:
            self.encoder = model.build()
            if vocabulary.gives(config.fakes):
                self.counted = CountedFakes(config.fakes, vocabulary, power=config.unigram_power)
        self.memory = StreamMemory(model)
        self.add_heads(model)

    @abstractmethod
    def add_heads(self, model: EncoderConfig) -> None:
        """What stands on top of the networks, which are there already."""

    def _add_networks(self, model: EncoderConfig, shape: EncoderConfig) -> None:
        """The full-size network and a generator of this shape, with what they share."""
        sharing = self.config.sharing
        if sharing in ("detached", "disentangled"):  # the tables are the generator's
            generator = shape.build()
            self.encoder = model.build_sharing(generator.embeddings, sharing=SHARES[sharing])
        else:
            self.encoder = model.build()
            generator = self._build_generator_encoder(shape)
        self.generator = Generator(
            generator, MaskedLanguageModelHead(shape), sampling=self.sampling, frozen=self.config.fakes == "frozen"
        )

    def _build_generator_encoder(self, shape: EncoderConfig) -> EncoderModule:
        """The generator's encoder, which may use tables of the full-size one, or all of it."""
        sharing = self.config.sharing
        if sharing == "none":
            return shape.build()
        if sharing == "all":
            assert shape == self.encoder.config, "a network that plays both roles has one shape"
            return self.encoder
        if "shared-tables" in self.encoder.config.capabilities & shape.capabilities:
            share = SHARES.get(sharing, "tables")
            return shape.build_sharing(self.encoder.embeddings, sharing=share, share_norm=self.config.share_norm)
        assert sharing == "tokens", "networks of different kinds have the token table alone in common"
        generator = shape.build()
        generator.embeddings.token = self.encoder.embeddings.token
        return generator

    def begin_step(self, step: int, steps: int | None) -> None:
        """Let the temperature go on towards its end."""
        if self.generator is not None and self.config.final_temperature and steps:
            first, last = self.config.temperature, self.config.final_temperature
            now = first + (last - first) * min(1.0, step / steps)
            self.generator.sampling = replace(self.sampling, temperature=now)

    def draw(self, batch: Batch) -> Masking:
        """Choose positions and put [MASK] there."""
        return draw_masks(batch, self.masking, self.vocabulary)

    def corrupt(
        self, batch: Batch, *, masking: Masking | None = None, samples_n: Tensor | None = None
    ) -> CorruptedBatch:
        """Mask, let the generator learn, and put its fakes in.

        Args:
            masking, samples_n: what was drawn elsewhere, in place of what would be drawn here.
        """
        masking = masking or self.draw(batch)
        mask_BL = self.attention_mask(batch)
        loss = None
        if self.generator is not None and self.config.generator_learns:
            loss, drawn_n = self.generator(batch, masking, mask_BL, self.uniforms(batch, masking))
            if samples_n is None and self.config.sampling_dropout:
                samples_n = drawn_n
        if samples_n is None:
            samples_n = self.fakes(batch, masking, mask_BL)
        return CorruptedBatch(self.replace_tokens(batch, masking, samples_n), masking, mask_BL, loss)

    def evaluated(
        self, batch: Batch, figures: MaskedLanguageModelMetrics, memory: StreamMemory | None = None
    ) -> CorruptedBatch:
        """A batch with fakes, as evaluations see it; the generator's part is taken into its figures.

        Args:
            memory: what a generator remembers meanwhile.
        """
        masking, mask_BL = self.draw(batch), self.attention_mask(batch)
        if self.generator is None:
            samples_n = self.fakes(batch, masking, mask_BL)
        else:
            uniforms_n = self.uniforms(batch, masking)
            samples_n = self.generator.evaluated(batch, masking, mask_BL, uniforms_n, figures, memory)
        return CorruptedBatch(self.replace_tokens(batch, masking, samples_n), masking, mask_BL, None)

    def fakes(self, batch: Batch, masking: Masking, mask_BL: Tensor | None) -> Tensor:
        """A fake at every slot (n), without dropout and without a gradient."""
        uniforms_n = self.uniforms(batch, masking)
        if self.generator is not None:
            return self.generator.fakes(batch, masking, mask_BL, uniforms_n)
        assert self.counted is not None, f"fakes of kind {self.config.fakes} need tables of the data"
        fakes_n: Tensor = self.counted(masking.at(batch.input_ids_BL), uniforms_n)
        return fakes_n

    def attention_mask(self, batch: Batch) -> Tensor | None:
        """True at tokens (B, L); None where there is no padding."""
        return attention_mask_of(batch)

    def uniforms(self, batch: Batch, masking: Masking) -> Tensor:
        """The numbers that pick the fakes (n)."""
        return uniforms(batch.row_seeds, Purpose.SAMPLES, masking.positions_BN.shape[1]).flatten()

    def replace_tokens(self, batch: Batch, masking: Masking, samples_n: Tensor) -> Tensor:
        """The text with fakes at the slots where they belong (B, L)."""
        if not self.config.sample_unmasked:
            masking = replace(masking, used_BN=masking.masked_BN)
        return replace_tokens(batch.input_ids_BL, samples_n, masking, self.masking)

    def text(self, batch: Batch) -> Tensor:
        """True at tokens of text (B, L)."""
        return candidates(batch.input_ids_BL, self.vocabulary.special)

    def output_biases(self) -> list[nn.Parameter]:
        return [] if self.generator is None else [self.generator.head.bias]

    def generator_networks(self, length: int) -> Iterator[tuple[str, Network]]:
        """What is computed beside the full-size network."""
        if self.generator is None:
            return
        share = slots(length, self.masking.share) / length
        network = self.generator.network(share)
        yield "generator", network
        if self.config.generator_learns and not self.config.sampling_dropout:
            yield "generator, to draw samples", replace(network, trained=False)

    def with_generator(self, output: StepOutput, corrupted: CorruptedBatch, counts: Counts) -> StepOutput:
        """The full-size network's loss with its weight, and that of the generator, where one learns."""
        loss = self.config.discriminator_weight * output.loss
        if corrupted.generator_loss is None:
            return replace(output, loss=loss)
        generator_loss = corrupted.generator_loss / counts["generator"]
        loss = loss + self.config.generator_weight * generator_loss
        return replace(output, loss=loss, parts={"generator_loss": generator_loss.detach(), **output.parts})

    def exportable_networks(self) -> dict[NetworkName, ExportableNetwork]:
        """The generator; subclasses put the full-size network before it."""
        return (
            {}
            if self.generator is None
            else {"generator": ExportableNetwork(self.generator.encoder, self.generator.head)}
        )

    def with_sentence_loss(self, output: StepOutput, x_BD: Tensor, batch: Batch, counts: Counts) -> StepOutput:
        """With the loss for pairs of segments, where that is wanted; the states are those at [CLS]."""
        if self.sentences is None:
            return output
        found: StepOutput = self.sentences(output, x_BD, batch, counts)
        return found

    def pair_counts(self, batch: Batch) -> Counts:
        """Rows with two segments, where they are asked about."""
        return {} if self.sentences is None else self.sentences.counts(batch)

    def chosen(self, batch: Batch, masking: Masking | None = None) -> Tensor:
        """How many positions are chosen in all."""
        return (masking or self.draw(batch)).used_BN.sum().clamp(min=1)
