"""Base classes of encoders: the config, with the shape and the capabilities, and the module that computes states.

An encoder is one file: a frozen dataclass that extends `EncoderConfig`, registered under its `kind`, and an
`EncoderModule` that the dataclass builds. bert.py is the example.

Shapes: B batch, L length, N selected positions, D hidden size, E embedding size. A tensor's name ends with its
shape (`x_BLD`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.config import DropoutProbability, NonNegativeFloat, NonNegativeInt, PositiveInt, Range, Table
from electra.modeling.encoders.tables import with_kind_of_positions, without_settings_of_others
from electra.modeling.flops import Convention, Network, Terms, transformer_terms
from electra.modeling.kernels.attention import kept_weights
from electra.modeling.sharing import AnyEmbedding, EmbeddingSharing
from electra.registry import encoders

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
Capability = Literal[
    "bidirectional",  # a token attends to the tokens on both sides
    "left-to-right",  # a token attends to itself and to earlier tokens only
    "selected-positions",  # can compute states at some positions only (`positions_BN`)
    "pair-mask",  # takes an attention mask (B, L, L), one entry for each pair of query and key
    "input-embeddings",  # takes token embeddings in place of ids (`inputs_embeds_BLE`)
    "document-mask",  # can leave out padding, and read rows with several documents (`DocumentMask`)
    "memory",  # attends to states of earlier batches (`memory`)
    "two-streams",  # has a query stream that predicts tokens without seeing them (`targets_BN`)
    "shared-tables",  # can use the embedding tables of another encoder (`build_sharing`)
    "shared-norm",  # can share the LayerNorm of the embeddings, too (objective.share_norm)
    "neighbor-start",  # attention heads can be initialized to attend to neighbors (init.attention)
]


def kinds_with(capabilities: Collection[Capability]) -> list[str]:
    """Return the kinds of encoders that have these capabilities with default settings."""
    return [name for name, kind in encoders if kind().capabilities >= frozenset(capabilities)]


MAX_LAYERS = 1000
"""Maximum number of blocks. Those of a model's folder are built before its weights are compared with them."""


@dataclass(frozen=True)
class HeadStyle:
    """How the heads on top of an encoder are built, as transformers' classes for the encoder have them.

    Attributes:
        bias: whether the hidden layers of heads have biases.
        norm_bias: whether their LayerNorms have biases.
        prediction_head: whether all heads begin with a dense layer, activation and LayerNorm, as in ModernBERT.
            Otherwise the head for replaced tokens has no LayerNorm, and heads of tasks have no such layer.
        detection_hidden: whether the head for replaced tokens has a hidden layer before its linear layer.
        projects_after_norm: whether a masked-LM head keeps the hidden size up to its LayerNorm and projects to the
            embedding size after it, without a bias; otherwise its hidden layer does.
    """

    bias: bool = True
    norm_bias: bool = True
    prediction_head: bool = False
    detection_hidden: bool = True
    projects_after_norm: bool = False


@dataclass(frozen=True)
class EncoderConfig(ABC):
    """The shape of an encoder (paper, table 6)."""

    kind: str = "bert"
    """Architecture of the network. bert: learned positions, post-norm. relative: relative positions, as in
    Transformer-XL and XLNet. modernbert: rotary positions, pre-norm, gated feed-forward layers, attention within a
    window in most blocks. deberta: BERT's blocks with attention by content and by distance."""
    layers: Annotated[int, Range(ge=1, le=MAX_LAYERS)] = 12
    """Number of Transformer blocks."""
    hidden_size: PositiveInt = 256
    """Width of the states between the blocks."""
    embedding_size: PositiveInt = 128
    """Width of the embedding tables. If it differs from the hidden size, a linear projection joins them."""
    feed_forward_size: PositiveInt = 1024
    """Inner width of the feed-forward layers."""
    heads: PositiveInt = 4
    """Number of attention heads; each is hidden_size / heads wide."""
    vocabulary_size: NonNegativeInt = 0
    """Rows of the token table; 0: the number of entries of the data's tokenizer."""
    max_positions: PositiveInt = 512
    """Longest input in tokens; with learned positions also the rows of their table. deberta: the distance from
    which on all distances share a row of the table of distances; inputs can be longer. relative: not used."""
    type_vocabulary_size: PositiveInt = 2
    """Rows of the segment table; with 1, every token belongs to the first segment (RoBERTa)."""
    activation: Activation = "gelu"
    """Activation between the two layers of a feed-forward; gelu is the exact one (erf), as in the original."""
    dropout: DropoutProbability = 0.1
    """Dropout probability of embeddings, attention outputs and feed-forward outputs during training."""
    attention_dropout: DropoutProbability = 0.1
    """Dropout probability of attention probabilities during training."""
    layer_norm_epsilon: NonNegativeFloat = 1e-12
    """Number added to the variance in every LayerNorm."""
    initializer_range: NonNegativeFloat = 0.02
    """Standard deviation of the truncated normal that embedding tables are initialized from."""
    linear_initializer_range: NonNegativeFloat = 0.02
    """Standard deviation of the truncated normal that weights of linear layers are initialized from; 0: one over
    the square root of the layer's inputs."""

    run_settings: ClassVar[tuple[str, ...]] = (
        "dropout", "attention_dropout", "initializer_range", "linear_initializer_range",
    )  # fmt: skip
    """Fields that can be changed for trained weights. All others are the shape of the weights."""
    square_only: ClassVar[bool] = False
    """Whether embedding_size must equal hidden_size."""
    limits_length: ClassVar[bool] = True
    """Whether inputs are at most `max_positions` tokens long."""
    generator_kind: ClassVar[str | None] = None
    """Kind of the generator for this encoder if generator.kind is not set; None: the same kind."""

    @property
    def checkpoint_format(self) -> str:
        """Format of exported folders (`electra.export.formats`), such as bert for networks that compute what this
        class of transformers computes; native for others."""
        return "native"

    @property
    def length_settings(self) -> tuple[str, ...]:
        """Fields of the shape that a run at another length may change, because no weight depends on them."""
        return () if self.limits_length else ("max_positions",)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this encoder can do besides computing states. Objectives name the capabilities that they need."""
        return frozenset({"bidirectional"})

    @property
    def memory_length(self) -> int:
        """Maximum number of earlier tokens in memory; 0: no memory."""
        return 0

    @property
    def direction(self) -> Literal["both", "left"]:
        """Which tokens a token attends to."""
        return "left" if "left-to-right" in self.capabilities else "both"

    @property
    def has_position_table(self) -> bool:
        """Whether positions are learned: the rows of their table behind the longest trained input are random."""
        return self.limits_length

    def longest_input(self, trained_length: int) -> int:
        """Return the longest input in tokens of a network that was trained on inputs of some length.

        It is that length if positions are learned, because later rows of their table are random, and if longer
        texts have another way, such as a memory. Rotary positions exist up to `max_positions`.
        """
        if self.has_position_table:
            return min(trained_length, self.max_positions)
        return self.max_positions if self.limits_length else trained_length

    @property
    def share_layers(self) -> str:
        """Which weights the blocks share."""
        return "none"

    @property
    def square(self) -> bool:
        """Whether embedding_size equals hidden_size, as in BERT. Otherwise a linear projection joins them."""
        return self.embedding_size == self.hidden_size

    @property
    def head_style(self) -> HeadStyle:
        """How the heads on top of this encoder are built."""
        return HeadStyle()

    @property
    def head_activation(self) -> Activation:
        """Activation in the head of a full-size masked language model, as in transformers' class."""
        return "gelu"

    @abstractmethod
    def build(self, *, query_stream: bool = False) -> "EncoderModule":
        """Return a newly initialized network of this shape.

        Args:
            query_stream: whether it has a query stream (only with the capability two-streams).
        """

    def build_sharing(
        self, embeddings: nn.Module, *, sharing: EmbeddingSharing = "tables", share_norm: bool = False
    ) -> "EncoderModule":
        """Return the same with embedding tables of another encoder (only with the capability shared-tables).

        Args:
            embeddings: the embeddings of the other encoder.
            sharing: which tables are shared, and how.
            share_norm: whether the LayerNorm of the embeddings is shared too.
        """
        raise AssertionError(f"encoders of kind {self.kind} lack the capability shared-tables")

    def attends_in_one_call(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether attention of packed rows is computed for all documents at once in training, without padding.

        Otherwise documents of similar length are padded and computed together.

        Args:
            dtype: of the matrix products.
        """
        return False

    def without_memory(self) -> Self:
        """Return this shape without a memory."""
        return self

    def as_generator(self) -> Self:
        """Return this shape for a generator, which is always bidirectional."""
        return self

    def flop_terms(self, network: Network, length: int, convention: Convention) -> Terms:
        """Return the FLOPs of a forward pass over one sequence, by term, without a head.

        Args:
            network: of this config. Its shares say how much of the last block is computed.
            length: tokens of the sequence.
            convention: see `electra.modeling.flops`.
        """
        return transformer_terms(network, length, convention)

    def activation_numbers(self, length: int, *, device: torch.device, dtype: torch.dtype) -> int:
        """Return how many numbers the blocks store for the backward pass over one sequence.

        These are about ten vectors of the hidden size per token (inputs, query, key, value, attention output,
        sums, norms), two of the feed-forward size, and the attention weights that the kernel keeps.

        Args:
            dtype: of the matrix products.
        """
        weights = self.heads * length * kept_weights(device, dtype, self.attention_dropout)
        return self.layers * length * (10 * self.hidden_size + 2 * self.feed_forward_size + weights)

    def shape(self) -> dict[str, Any]:
        """Return the fields that determine the shapes of the weights, with their values."""
        return {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in self.run_settings
        }

    def with_kind(self, kind: str, **changes: Any) -> "EncoderConfig":
        """Return a config of another kind with the values of the fields that both have, and with some changes.

        Raises:
            ConfigError: no encoder has this kind.
        """
        if kind == self.kind:
            return replace(self, **changes)
        config_class: type[EncoderConfig] = encoders.get(kind)
        common = {field.name for field in fields(config_class)} - {"kind"}
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name in common}
        values["type_vocabulary_size"] = max(1, self.type_vocabulary_size)  # not every kind can have no table
        return config_class(**{**values, **changes})

    def with_run_settings_of(self, other: "EncoderConfig") -> Self:
        """Return this shape with the `run_settings` of another config."""
        own = {field.name for field in fields(other)}
        return replace(self, **{name: getattr(other, name) for name in self.run_settings if name in own})

    def problems(self) -> Iterator[str]:
        if self.hidden_size % self.heads:
            yield f"heads: hidden_size {self.hidden_size} is not divisible by {self.heads} heads"

    @classmethod
    def variants(cls) -> dict[str, type["EncoderConfig"]]:
        """Return the config classes of all kinds, by name."""
        return dict(encoders)

    @classmethod
    def variant(cls, table: Table) -> tuple[type["EncoderConfig"], Table]:
        """Return the config class for a TOML table, and the table without settings of other kinds.

        Files of earlier versions have `positions` in place of `kind`; it is still read.

        Raises:
            ValueError: two settings contradict each other.
        """
        table = with_kind_of_positions(table, learned="bert")
        config_class: type[EncoderConfig] = encoders.get(table.get("kind", "bert"))
        return config_class, without_settings_of_others(table, config_class)


class EncoderModule(nn.Module):
    """Computes one state for each token id.

    Attributes:
        config: the config that built it.
        embeddings: the embeddings; `embeddings.token` is the table that masked language models also use as output
            weights.
        blocks: the layers.
    """

    config: EncoderConfig
    embeddings: Any
    blocks: nn.ModuleList

    @property
    def stacked_matrices(self) -> Mapping[str, int]:
        """The number of matrices that are one above another in the weight of a linear layer, by the layer's name.

        Muon orthogonalizes each of them on its own.
        """
        return {"query_key_value": 3, "key_value": 2}

    @property
    def token_table(self) -> AnyEmbedding:
        """The table of token embeddings, with `weight` (V, E)."""
        table: AnyEmbedding = self.embeddings.token
        return table

    def compile_forward(self, **options: Any) -> None:
        """Compile the forward pass with torch.compile, when it is first called."""
        self.compile(**options)

    def attend_to_neighbors(self) -> None:
        """Initialize attention heads to attend to neighbors (only with the capability neighbor-start)."""
        raise AssertionError(f"encoders of kind {self.config.kind} lack the capability neighbor-start")

    def check_length(self, ids_BL: Tensor) -> None:
        """Refuse inputs that are longer than the network has positions.

        Raises:
            ValueError: they are longer.
        """
        if ids_BL.shape[1] > self.config.max_positions:
            raise ValueError(
                f"the inputs have {ids_BL.shape[1]} tokens, but the network has {self.config.max_positions} "
                "positions; truncate them"
            )


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.feed_forward_size)
        self.outer = nn.Linear(config.feed_forward_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x_BLD)))


def gather_positions(values_BLx: Tensor, positions_BN: Tensor) -> Tensor:
    """Return the values at some positions of each row: (B, L) to (B, N), or (B, L, D) to (B, N, D)."""
    rows_B1 = torch.arange(values_BLx.shape[0], device=values_BLx.device)[:, None]
    return values_BLx[rows_B1, positions_BN]


def attention_mask(lengths_B: Tensor, length: int) -> Tensor | None:
    """Return True at the first `lengths_B` positions of each row (B, L); None if every row is full.

    On an accelerator the mask is always returned, because a check whether it is needed would stall the queue.
    """
    if lengths_B.device.type == "cpu" and bool((lengths_B == length).all()):
        return None
    return torch.arange(length, device=lengths_B.device) < lengths_B[:, None]
