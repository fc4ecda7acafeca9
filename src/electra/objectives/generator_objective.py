"""What all objectives have in common whose network reads fakes: masks, fakes, and the text with fakes in it.

Shapes: B batch, L length, N slots a row, n = B × N, D hidden size, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoders.bert import Embeddings, Encoder, EncoderConfig
from electra.modeling.encoders.build import AnyEncoder, build_encoder
from electra.modeling.flops import Network
from electra.modeling.heads import MaskedLanguageModelHead
from electra.modeling.kernels.cross_entropy import Sampling
from electra.modeling.sharing import Share
from electra.objectives.base import Counts, ExportableNetwork, NetworkName, StepOutput
from electra.objectives.config import WITH_GENERATOR, GeneratorConfig, ObjectiveConfig
from electra.objectives.generators import CountedFakes, Generator
from electra.objectives.masking import (
    Masking,
    MaskingConfig,
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
from electra.objectives.vocabulary import Vocabulary

SHARES: dict[str, Share] = {
    "tokens": "tokens", "embeddings": "tables", "detached": "detached", "disentangled": "disentangled",
}  # fmt: skip


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


class GeneratorObjective(nn.Module, ABC):
    """A full-size network, and a source of fakes beside it.

    `encoder` and `generator` are the networks; without a generator (fakes of counts) the second is None.
    Subclasses say in `add_heads` what stands on top, and in `forward` what is learnt.
    """

    def __init__(
        self,
        model: EncoderConfig,
        generator: GeneratorConfig,
        *,
        config: ObjectiveConfig,
        masking: MaskingConfig,
        vocabulary: Vocabulary,
    ) -> None:
        super().__init__()
        self.config, self.masking, self.vocabulary = config, masking, vocabulary
        self.sampling = Sampling(config.temperature, config.disallow_correct, config.top_k)
        self.sentences: SentenceLoss | None = None
        if config.sentence_loss != "none":
            self.sentences = SentenceLoss(model, weight=config.sentence_weight)
        self.counted: CountedFakes | None = None
        self.generator: Generator | None = None
        if config.fakes in WITH_GENERATOR:
            self._add_networks(model, generator.encoder(model))
        else:
            self.encoder = build_encoder(model)
            if vocabulary.gives(config.fakes):
                self.counted = CountedFakes(config.fakes, vocabulary, power=config.unigram_power)
        self.memory = StreamMemory(model)
        self.add_heads(model)

    @abstractmethod
    def add_heads(self, model: EncoderConfig) -> None:
        """What stands on top of the networks, which are there already."""

    def _add_networks(self, model: EncoderConfig, shape: EncoderConfig) -> None:
        """The full-size network and a generator of this shape, with what they share."""
        config = self.config
        if config.sharing in ("detached", "disentangled"):  # the tables are the generator's
            lender = Encoder(shape)
            self.encoder = Encoder(model, tables=lender.embeddings, share=SHARES[config.sharing])
            beside: AnyEncoder = lender
        else:
            self.encoder = build_encoder(model)
            beside = self._beside(shape)
        self.generator = Generator(
            beside, MaskedLanguageModelHead(shape), sampling=self.sampling, frozen=config.fakes == "frozen"
        )

    def _beside(self, shape: EncoderConfig) -> AnyEncoder:
        """The generator's encoder, where it may use tables of the full-size one, or all of it."""
        sharing = self.config.sharing
        if sharing == "none":
            return build_encoder(shape)
        if sharing == "all":
            assert shape == self.encoder.config, "a network that plays both roles has one shape"
            assert isinstance(self.encoder, Encoder)
            return self.encoder
        share = SHARES.get(sharing, "tables")
        tables: Embeddings | None = None
        if isinstance(self.encoder, Encoder):
            tables = self.encoder.embeddings
        beside = Encoder(shape, tables=tables, share=share, share_norm=self.config.share_norm)
        if tables is None and sharing == "tokens":  # a network with relative positions has this table alone
            beside.embeddings.token = self.encoder.embeddings.token
        return beside

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
        if self.generator is not None and self.config.fakes_learn:
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
        if self.config.fakes_learn and not self.config.sampling_dropout:
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
