"""Floating-point operations of networks, term by term, from their shapes alone, in two conventions.

*modern*: what matrix products cost, a multiply-add being 2 operations; look-ups are free, everything else is left
out, and the backward pass is twice the forward pass. It follows what is computed here: the last block of a masked
language model works at the masked positions only. PyTorch's own counter agrees (tests/commands/test_flops.py).

*paper*: what the original's script counts, whose figures are those of the paper's tables. Embeddings are looked up
by a dense product, all that is done to single numbers counts too (softmax 5 operations an element, LayerNorm 5,
GELU 8, dropout 4), masked tokens are predicted at .15625 of the positions, and the backward pass costs as much as
the forward pass. Its one slip is kept: the LayerNorm behind the attention is counted for one number, not for all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

Convention = Literal["modern", "paper"]
TRAINING = {"modern": 3, "paper": 2}
"""A forward and a backward pass, in forward passes."""

PAPER_MASKED_SHARE = 0.15625
"""Of the positions, whatever the masking: 20 of 128."""
MEMORY_KEYS_AND_VALUES = "attention keys and values of the memory"
"""A term of which the backward pass costs as much as the forward pass: it has no gradient to hand on."""
SOFTMAX, LAYER_NORM, GELU, DROPOUT = 5, 5, 8, 4
"""Operations an element, by the paper's convention."""

Terms = dict[str, float]
"""Operations of one forward pass over one sequence, by what they are for."""


@dataclass(frozen=True)
class Network:
    """The shape of a network, as far as it decides what is computed."""

    layers: int = 0
    """Transformer blocks; 0: a head alone."""
    hidden_size: int = 0
    """Width of the states."""
    embedding_size: int = 0
    """Width of the embedding tables; 0: hidden_size."""
    feed_forward_size: int = 0
    """Inner width of the feed-forward layers; 0: 4 × hidden_size."""
    heads: int = 0
    """Attention heads; 0: one for every 64 of hidden_size, at least one."""
    head_size: int = 0
    """Width of a head; 0: hidden_size / heads."""
    vocabulary_size: int = 30_522
    """Rows of the token table."""
    head: Literal["masked-lm", "language-model", "words", "replaced-token", "none"] = "masked-lm"
    """What is predicted: masked tokens, every token, masked tokens without a hidden layer before, of every token
    whether it was replaced, or nothing."""
    masked_share: float = PAPER_MASKED_SHARE
    """Share of the positions at which masked tokens are predicted (modern only)."""
    cross_attention: bool = False
    """Each block attends to another network's states too, as a decoder's do; they are taken to be as many."""
    output_share: float = 1.0
    """Share of the positions whose states are wanted: the last block does no more (modern only)."""
    trained: bool = True
    """A backward pass follows."""
    encoder: "EncoderShape | None" = None
    """The encoder's config, which counts its own operations; None: a standard Transformer of the shape above."""
    target_share: float = 0.0
    """Positions of the query stream, as a share of all."""

    @classmethod
    def of(cls, config: "EncoderShape", **others: Any) -> "Network":
        """The network of an encoder; `others` are fields that its config does not have."""
        return cls(
            config.layers,
            config.hidden_size,
            config.embedding_size,
            config.feed_forward_size,
            config.heads,
            vocabulary_size=config.vocabulary_size,
            **{"encoder": config, **others},
        )

    @property
    def embedding(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def feed_forward(self) -> int:
        return self.feed_forward_size or 4 * self.hidden_size

    @property
    def attention_heads(self) -> int:
        return self.heads or max(1, self.hidden_size // 64)

    @property
    def attention(self) -> int:
        """Width of all heads together."""
        return self.attention_heads * self.head_size if self.head_size else self.hidden_size


class EncoderShape(Protocol):
    """What is read of an encoder's config (`electra.modeling.encoders.base.EncoderConfig`)."""

    @property
    def layers(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def embedding_size(self) -> int: ...
    @property
    def feed_forward_size(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def vocabulary_size(self) -> int: ...

    def flop_terms(
        self, length: int, *, convention: Convention, output_share: float, target_share: float
    ) -> Terms: ...


Networks = Mapping[str, Network]
"""What is trained together, by name."""


def forward_terms(network: Network, length: int, convention: Convention) -> Terms:
    """Operations of a forward pass over one sequence of `length` tokens, by term."""
    terms = encoder_terms(network, length, convention)
    terms |= {name: length * value for name, value in _head(network, convention)}
    return terms


def encoder_terms(network: Network, length: int, convention: Convention) -> Terms:
    """The same without the head."""
    if not network.layers:
        return {}
    if network.encoder is not None:
        return network.encoder.flop_terms(
            length,
            convention=convention,
            output_share=network.output_share,
            target_share=network.target_share,
        )
    return transformer_terms(network, length, convention)


def transformer_terms(network: Network, length: int, convention: Convention) -> Terms:
    """Operations of a standard Transformer without a head, by term."""
    one_token = _modern_encoder if convention == "modern" else _paper_encoder
    return {name: length * value for name, value in one_token(network, length)}


def training_flops(networks: Networks, length: int, convention: Convention = "modern") -> float:
    """Operations of a forward and a backward pass of all networks over one sequence of `length` tokens."""
    total = 0.0
    for network in networks.values():
        times = TRAINING[convention] if network.trained else 1
        for name, value in forward_terms(network, length, convention).items():
            total += (
                min(times, 2) if name == MEMORY_KEYS_AND_VALUES else times
            ) * value  # no gradient of what is remembered
    return total


def inference_flops(network: Network, length: int, convention: Convention) -> float:
    """Operations of an encoder alone, for all the states of one sequence: what a user of it computes."""
    return sum(encoder_terms(replace(network, output_share=1.0), length, convention).values())


def _modern_encoder(network: Network, length: int) -> Iterator[tuple[str, float]]:
    hidden, attention, embedding = network.hidden_size, network.attention, network.embedding
    times = 2 if network.cross_attention else 1
    everywhere, wanted = network.layers, network.layers - 1 + network.output_share
    if embedding != hidden:
        yield "embedding projection", 2 * embedding * hidden
    yield "attention keys and values", everywhere * times * 2 * 2 * hidden * attention
    yield "attention queries", wanted * times * 2 * hidden * attention
    yield "attention scores", wanted * times * 2 * attention * length
    yield "attention weighted values", wanted * times * 2 * attention * length
    yield "attention output", wanted * times * 2 * attention * hidden
    yield "feed-forward inner", wanted * 2 * hidden * network.feed_forward
    yield "feed-forward outer", wanted * 2 * hidden * network.feed_forward


def _paper_encoder(network: Network, length: int) -> Iterator[tuple[str, float]]:
    hidden, embedding = network.hidden_size, network.embedding
    attention, inner = network.attention, network.feed_forward
    scores = length * network.attention_heads
    times = network.layers * (2 if network.cross_attention else 1)
    yield "embedding look-up", 2 * embedding * network.vocabulary_size
    yield "embedding positions and segments", 2 * embedding * (length + 2) + 2 * embedding
    yield "embedding norm and dropout", (LAYER_NORM + DROPOUT) * embedding
    if embedding != hidden:
        yield "embedding projection", 2 * embedding * hidden + hidden
    yield "attention queries, keys and values", times * (3 * 2 * hidden * attention + 3 * attention)
    yield "attention scores", times * (2 * attention * length + scores)
    yield "attention softmax and dropout", times * (SOFTMAX + DROPOUT) * scores
    yield "attention weighted values", times * 2 * hidden * length
    yield "attention output", times * (2 * hidden * hidden + hidden)
    # One LayerNorm of a single number: the script's slip.
    yield "attention dropout, residual and norm", times * ((DROPOUT + 1) * hidden + LAYER_NORM)
    yield "feed-forward inner", network.layers * (2 * hidden * inner + (GELU + 1) * inner)
    yield "feed-forward outer", network.layers * (2 * hidden * inner + hidden)
    yield "feed-forward dropout, residual and norm", network.layers * (DROPOUT + 1 + LAYER_NORM) * hidden


def _head(network: Network, convention: Convention) -> Iterator[tuple[str, float]]:
    hidden, embedding, vocabulary = network.hidden_size, network.embedding, network.vocabulary_size
    paper = convention == "paper"
    if network.head in ("masked-lm", "language-model", "words"):
        masked = PAPER_MASKED_SHARE if paper and network.head == "masked-lm" else network.masked_share
        share = 1.0 if network.head == "language-model" else masked
        elements = (GELU + LAYER_NORM + 1) * embedding if paper else 0
        if network.head != "words":
            yield "head hidden layer", share * (2 * hidden * embedding + elements)
        yield (
            "head vocabulary",
            share * (2 * embedding * vocabulary + ((SOFTMAX + 2) * vocabulary if paper else 0)),
        )
    elif network.head == "replaced-token":
        yield "head hidden layer", 2 * hidden * hidden + ((GELU + 1) * hidden if paper else 0)
        yield "head logit", 2 * hidden
