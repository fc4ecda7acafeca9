"""What every encoder has: a config that says its shape and what it can do, and a module with states as output.

An encoder is one file: a frozen dataclass that extends `EncoderConfig`, registered under its `kind`, and an
`EncoderModule` that the dataclass builds. bert.py is the example.

Shapes: B batch, L length, N chosen positions, D hidden size, E embedding size. A tensor's name ends with its shape
(`x_BLD`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.config import DropoutProbability, NonNegativeInt, PositiveInt, Table
from electra.modeling.flops import Convention, Network, Terms, transformer_terms
from electra.modeling.kernels.unpadding import Unpadding
from electra.modeling.sharing import AnyEmbedding, Share
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
    "chosen-positions",  # states at chosen positions cost less than all states (`positions_BN`)
    "pair-mask",  # a mask for each pair of a query and a key (B, L, L)
    "mixed-embeddings",  # token embeddings in place of those of the ids (`tokens_BLE`)
    "unpadding",  # no work is done at padding (`unpadding`)
    "memory",  # states of earlier rows are attended to (`past`)
    "two-streams",  # a second stream of states predicts tokens that it does not see (`targets_BN`)
    "shared-tables",  # token, position and segment tables can be shared with another encoder
    "neighbor-start",  # attention heads can start by attending to nearby tokens (init.attention)
]


@dataclass(frozen=True)
class EncoderConfig(ABC):
    """The shape of an encoder (paper, table 6)."""

    kind: str = "bert"
    """Architecture of the network. bert: learned positions, post-norm. relative: relative positions, as in
    Transformer-XL and XLNet."""
    layers: PositiveInt = 12
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
    """Rows of the position table: the longest input. Relative positions have no table and no longest input."""
    type_vocabulary_size: PositiveInt = 2
    """Rows of the segment table; with 1, every token belongs to the first segment (RoBERTa)."""
    activation: Activation = "gelu"
    """Activation between the two layers of a feed-forward; gelu is the exact one (erf), as in the original."""
    dropout: DropoutProbability = 0.1
    """Dropout probability of embeddings, attention outputs and feed-forward outputs during training."""
    attention_dropout: DropoutProbability = 0.1
    """Dropout probability of attention probabilities during training."""
    layer_norm_epsilon: float = 1e-12
    """Number added to the variance in every LayerNorm."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal that embedding tables are initialized from."""
    linear_initializer_range: float = 0.02
    """Standard deviation of the truncated normal that weights of linear layers are initialized from; 0: one over
    the square root of the layer's inputs."""

    run_settings: ClassVar[tuple[str, ...]] = (
        "dropout", "attention_dropout", "initializer_range", "linear_initializer_range",
    )  # fmt: skip
    """Fields that a run may choose anew for trained weights; all others are the shape of the weights."""
    square_only: ClassVar[bool] = False
    """Whether embeddings must be as wide as states."""
    position_table: ClassVar[bool] = True
    """Whether there is a table of positions, whose rows limit the length of an input."""
    generator_kind: ClassVar[str | None] = None
    """Kind of the generator next to this encoder, where generator.kind is left open; None: the same kind."""
    checkpoint_format: ClassVar[str] = "native"
    """Format of exported folders (`electra.export.formats`): bert or xlnet for networks that compute what these
    classes of transformers compute, native for others."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this encoder can do besides computing states; objectives name the capabilities that they need."""
        return frozenset({"bidirectional"})

    @property
    def memory_length(self) -> int:
        """Number of earlier tokens whose states are attended to; 0: no memory."""
        return 0

    @property
    def direction(self) -> Literal["both", "left"]:
        """Which tokens a token attends to."""
        return "left" if "left-to-right" in self.capabilities else "both"

    @property
    def share_layers(self) -> str:
        """What the blocks share."""
        return "none"

    @property
    def square(self) -> bool:
        """Whether embeddings are as wide as states, as BERT's are; else a projection joins them."""
        return self.embedding_size == self.hidden_size

    @abstractmethod
    def build(self, *, query_stream: bool = False) -> "EncoderModule":
        """A freshly initialized network of this shape.

        Args:
            query_stream: whether it needs a second stream of states (only with the capability two-streams).
        """

    def build_sharing(
        self, embeddings: nn.Module, *, share: Share = "tables", share_norm: bool = False
    ) -> "EncoderModule":
        """The same, with tables of another encoder's embeddings (only with the capability shared-tables).

        Args:
            share: which of the tables, and how.
            share_norm: share their LayerNorm, too.
        """
        raise NotImplementedError(f"encoders of kind {self.kind} share no tables")

    def without_memory(self) -> Self:
        """This shape without a memory of earlier rows."""
        return self

    def as_generator(self) -> Self:
        """This shape for a generator, which always reads in both directions."""
        return self

    def flop_terms(
        self, length: int, *, convention: Convention, wanted_share: float, target_share: float
    ) -> Terms:
        """FLOPs of a forward pass over one sequence, by term, without a head.

        Args:
            convention: see `electra.modeling.flops`.
            wanted_share: share of the positions whose states the last block computes (modern only).
            target_share: positions of a second stream of states, as a share of all.
        """
        network = Network.of(self, wanted_share=wanted_share)
        return transformer_terms(network, length, convention)

    def activation_numbers(self, length: int) -> int:
        """Numbers that one block keeps of a forward pass over one sequence for the backward pass.

        About ten vectors of the hidden size a token (inputs, query, key, value, the attention's output, sums,
        norms) and two of the feed-forward size; attention probabilities are computed again.
        """
        return length * (10 * self.hidden_size + 2 * self.feed_forward_size)

    def shape(self) -> dict[str, Any]:
        """The fields that weights fix, with their values."""
        return {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in self.run_settings
        }

    def with_kind(self, kind: str, **changes: Any) -> "EncoderConfig":
        """A config of another kind with the fields that both have, and some changes.

        Raises:
            ConfigError: no encoder has this name.
        """
        if kind == self.kind:
            return replace(self, **changes)
        config_class: type[EncoderConfig] = encoders.get(kind)
        common = {field.name for field in fields(config_class)} - {"kind"}
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name in common}
        return config_class(**{**values, **changes})

    def with_run_settings_of(self, other: "EncoderConfig") -> Self:
        """This shape with the dropout and so on of another config."""
        own = {field.name for field in fields(other)}
        return replace(self, **{name: getattr(other, name) for name in self.run_settings if name in own})

    def problems(self) -> Iterator[str]:
        if self.hidden_size % self.heads:
            yield f"heads: {self.heads} heads cannot share a hidden_size of {self.hidden_size} evenly"

    @classmethod
    def variants(cls) -> dict[str, type["EncoderConfig"]]:
        """The config classes of all kinds, by name."""
        return dict(encoders)

    @classmethod
    def variant(cls, table: Table) -> tuple[type["EncoderConfig"], Table]:
        """The config class that a TOML table is for, and the table without settings of other kinds.

        Before there was `kind`, `positions` (learnt or relative) chose the class; it is still read.

        Raises:
            ValueError: the table contradicts itself.
        """
        table = with_kind_of_positions(table, {"learnt": "bert", "learned": "bert", "relative": "relative"})
        config_class: type[EncoderConfig] = encoders.get(table.get("kind", "bert"))
        return config_class, without_settings_of_others(table, config_class)


def with_kind_of_positions(table: Table, kinds: dict[str, str]) -> Table:
    """A table in which the older setting `positions` is written as `kind`, over which it has priority.

    Raises:
        ValueError: the value is unknown, or the kind is one that `positions` never chose.
    """
    if "positions" not in table:
        return table
    table = dict(table)
    positions, kind = table.pop("positions"), table.get("kind", "")
    if positions not in kinds:
        raise ValueError(f"positions: must be one of {', '.join(kinds)}, got {positions!r}; better set kind")
    if kind not in ("", *kinds.values(), "bert"):
        raise ValueError(f"positions: {positions} contradicts kind {kind}; leave positions out")
    return {**table, "kind": kinds[positions]}


def without_settings_of_others(table: Table, config_class: type[EncoderConfig]) -> Table:
    """A table without settings of other kinds that have their default: older runs wrote them down."""
    own = {field.name for field in fields(config_class)}
    others: dict[str, Any] = {}
    for name, other in encoders:
        others |= {field.name: (name, field.default) for field in fields(other) if field.name not in own}
    found = {}
    for key, value in table.items():
        if key in others:
            kind, default = others[key]
            if value != default:
                raise ValueError(f"{key}: needs kind {kind}, got {value!r}; leave it out, or set that")
        else:
            found[key] = value
    return found


class EncoderModule(nn.Module):
    """Token ids in, one state a token out.

    Attributes:
        config: the config that built it.
        embeddings: has `token`, the table whose rows are also those of the logits over the vocabulary.
        blocks: the layers.
    """

    config: EncoderConfig
    embeddings: Any
    blocks: nn.ModuleList

    @property
    def token_table(self) -> AnyEmbedding:
        """The table of token embeddings; its `weight` is (V, E)."""
        table: AnyEmbedding = self.embeddings.token
        return table

    def compile_forward(self, **options: Any) -> None:
        """Let torch compile the forward pass when it is first called."""
        self.compile(**options)

    def attend_to_neighbors(self) -> None:
        """Let attention heads start by attending to nearby tokens (only with the capability neighbor-start)."""
        raise NotImplementedError(f"encoders of kind {self.config.kind} have no neighbor-start")


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.feed_forward_size)
        self.outer = nn.Linear(config.feed_forward_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x_BLD)))


def compute_states(
    encoder: EncoderModule,
    ids_BL: Tensor,
    segment_ids_BL: Tensor | None = None,
    attention_mask_BL: Tensor | None = None,
    *,
    positions_BN: Tensor | None = None,
    unpadding: Unpadding | None = None,
    **others: Any,
) -> Tensor:
    """States (B, L, D), or (B, N, D) at chosen positions, also of encoders that always compute all of them."""
    capabilities = encoder.config.capabilities
    if unpadding is not None and "unpadding" in capabilities:
        others["unpadding"] = unpadding
    if positions_BN is None or "chosen-positions" in capabilities:
        if positions_BN is not None:
            others["positions_BN"] = positions_BN
        states: Tensor = encoder(ids_BL, segment_ids_BL, attention_mask_BL, **others)
        return states
    return gather_positions(encoder(ids_BL, segment_ids_BL, attention_mask_BL, **others), positions_BN)


def gather_positions(values_BLx: Tensor, positions_BN: Tensor) -> Tensor:
    """Values at chosen positions of each row: (B, L) to (B, N), or (B, L, D) to (B, N, D)."""
    rows_B1 = torch.arange(values_BLx.shape[0], device=values_BLx.device)[:, None]
    return values_BLx[rows_B1, positions_BN]


def attention_mask(lengths_B: Tensor, length: int) -> Tensor | None:
    """True at the first `lengths_B` positions of each row (B, L); None when every row is full.

    On an accelerator the mask is always made: asking whether it is needed would stall the queue.
    """
    if lengths_B.device.type == "cpu" and bool((lengths_B == length).all()):
        return None
    return torch.arange(length, device=lengths_B.device) < lengths_B[:, None]


def make_config(kind: str = "bert", **settings: Any) -> EncoderConfig:
    """The config of an encoder by the name of its kind.

    Raises:
        ConfigError: no encoder has this name.
    """
    config_class: type[EncoderConfig] = encoders.get(kind)
    return config_class(**settings)
