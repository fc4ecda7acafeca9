"""Floating-point operations of networks, by term, from their shapes alone, in two conventions.

*modern*: matrix products only; a multiply-add is 2 operations. Look-ups and all other operations are free, and the
backward pass costs twice the forward pass. It counts what this package computes: the last block of a masked
language model works at the masked positions only (in packed rows, its queries and attention at all positions). The
counter of PyTorch agrees (tests/commands/test_flops.py). Padding that makes the shapes of packed rows
alike, and that of documents which are computed together, is not counted.

*paper*: the script of google-research/electra, which made the numbers in the tables of the paper. Embeddings are
looked up by a dense product, elementwise operations count (softmax 5 per element, LayerNorm 5, GELU 8, dropout 4),
masked tokens are predicted at .15625 of the positions, and the backward pass costs as much as the forward pass. An
error of the script is kept: the LayerNorm after attention is counted for one number, not for all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

Convention = Literal["modern", "paper"]
TRAINING_PASSES = {"modern": 3, "paper": 2}
"""Cost of a forward and a backward pass, in forward passes."""

PAPER_MASKED_SHARE = 0.15625
"""Share of the positions that are masked, whatever the settings: 20 of 128."""
MEMORY_KEYS_AND_VALUES = "attention keys and values of the memory"
"""The term whose backward pass costs as much as its forward pass, because the memory needs no gradient."""
SOFTMAX, LAYER_NORM, GELU, DROPOUT = 5, 5, 8, 4
"""Operations per element, in the paper convention."""

Documents = tuple[tuple[int, int], ...]
"""Pairs of a length in tokens and the number of documents that have it."""
Terms = dict[str, float]
"""Operations of one forward pass over one sequence, by name of the term."""


@dataclass(frozen=True)
class Network:
    """The shape of a network, as far as it determines the number of operations."""

    layers: int = 0
    """Transformer blocks; 0: only a head."""
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
    """masked-lm: predicts masked tokens. language-model: predicts every token. words: predicts masked tokens
    without a hidden layer. replaced-token: detects replaced tokens. none: there is no head."""
    masked_share: float = PAPER_MASKED_SHARE
    """Share of the positions at which tokens are predicted (modern only)."""
    cross_attention: bool = False
    """Whether each block also attends to as many states of another network, as in a decoder."""
    output_share: float = 1.0
    """Share of the positions whose states the last block computes (modern only)."""
    packed: bool = False
    """Whether rows hold several documents: the last block then computes queries and attention at all positions."""
    trained: bool = True
    """Whether there is a backward pass."""
    projects_after_norm: bool = False
    """Whether the hidden layer of a masked-lm head is as wide as states; then it projects."""
    detection_hidden: bool = True
    """Whether a replaced-token head has a hidden layer."""
    encoder: "EncoderShape | None" = None
    """The config of the encoder, which counts the operations; None: a standard Transformer of the shape above."""
    target_share: float = 0.0
    """Positions of the query stream, as a share of all positions."""

    @classmethod
    def from_config(cls, config: "EncoderShape", **others: Any) -> "Network":
        """Return the network of an encoder; `others` are fields that its config does not have."""
        return cls(
            config.layers,
            config.hidden_size,
            config.embedding_size,
            config.feed_forward_size,
            config.heads,
            vocabulary_size=config.vocabulary_size,
            projects_after_norm=config.head_style.projects_after_norm,
            detection_hidden=config.head_style.detection_hidden,
            **{"encoder": config, **others},
        )

    @property
    def query_share(self) -> float:
        """Share of the positions whose queries and attention the last block computes (modern only)."""
        return 1.0 if self.packed else self.output_share

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
    """The fields of the config of an encoder that are used (`electra.modeling.encoders.base.EncoderConfig`)."""

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
    @property
    def head_style(self) -> Any: ...

    def flop_terms(self, network: Network, length: int, convention: Convention) -> Terms: ...


Networks = Mapping[str, Network]
"""The networks that are trained together, by name."""


def forward_terms(network: Network, length: int, convention: Convention) -> Terms:
    """Return the operations of a forward pass over one sequence of `length` tokens, by term."""
    terms = encoder_terms(network, length, convention)
    terms |= {name: length * value for name, value in _head(network, convention)}
    return terms


def encoder_terms(network: Network, length: int, convention: Convention) -> Terms:
    """Return the same without the head."""
    if not network.layers:
        return {}
    if network.encoder is not None:
        return network.encoder.flop_terms(network, length, convention)
    return transformer_terms(network, length, convention)


def transformer_terms(network: Network, length: int, convention: Convention) -> Terms:
    """Return the operations of a standard Transformer without a head, by term."""
    one_token = _modern_encoder if convention == "modern" else _paper_encoder
    return {name: length * value for name, value in one_token(network, length)}


def training_flops(networks: Networks, length: int, convention: Convention = "modern") -> float:
    """Return the operations of a forward and a backward pass of all networks over one sequence."""
    total = 0.0
    for network in networks.values():
        passes = TRAINING_PASSES[convention] if network.trained else 1
        for name, value in forward_terms(network, length, convention).items():
            total += (min(passes, 2) if name == MEMORY_KEYS_AND_VALUES else passes) * value
    return total


@lru_cache(maxsize=32)
def flops_per_token(
    networks: tuple[tuple[str, Network], ...], documents: Documents, convention: Convention = "modern"
) -> float:
    """Return the mean training operations per token of documents.

    Args:
        networks: the networks that are trained together, by name.
        documents: one: each row is one document. Several: those of packed rows.
    """
    packed = sum(count for _, count in documents) > 1
    computed = {name: replace(network, packed=packed) for name, network in networks}
    flops = sum(count * training_flops(computed, length, convention) for length, count in documents)
    return flops / sum(count * length for length, count in documents)


def inference_flops(network: Network, length: int, convention: Convention) -> float:
    """Return the operations of an encoder without a head, for all states of one sequence."""
    return sum(encoder_terms(replace(network, output_share=1.0), length, convention).values())


def _modern_encoder(network: Network, length: int) -> Iterator[tuple[str, float]]:
    hidden, attention, embedding = network.hidden_size, network.attention, network.embedding
    attentions = 2 if network.cross_attention else 1
    full_blocks = network.layers
    blocks = full_blocks - 1 + network.output_share  # the last one is partial
    queries = full_blocks - 1 + network.query_share
    if embedding != hidden:
        yield "embedding projection", 2 * embedding * hidden
    yield "attention keys and values", full_blocks * attentions * 2 * 2 * hidden * attention
    yield "attention queries", queries * attentions * 2 * hidden * attention
    yield "attention scores", queries * attentions * 2 * attention * length
    yield "attention weighted values", queries * attentions * 2 * attention * length
    yield "attention output", blocks * attentions * 2 * attention * hidden
    yield "feed-forward inner", blocks * 2 * hidden * network.feed_forward
    yield "feed-forward outer", blocks * 2 * hidden * network.feed_forward


def _paper_encoder(network: Network, length: int) -> Iterator[tuple[str, float]]:
    hidden, embedding = network.hidden_size, network.embedding
    attention, inner = network.attention, network.feed_forward
    scores = length * network.attention_heads
    attentions = network.layers * (2 if network.cross_attention else 1)
    yield "embedding look-up", 2 * embedding * network.vocabulary_size
    yield "embedding positions and segments", 2 * embedding * (length + 2) + 2 * embedding
    yield "embedding norm and dropout", (LAYER_NORM + DROPOUT) * embedding
    if embedding != hidden:
        yield "embedding projection", 2 * embedding * hidden + hidden
    yield "attention queries, keys and values", attentions * (3 * 2 * hidden * attention + 3 * attention)
    yield "attention scores", attentions * (2 * attention * length + scores)
    yield "attention softmax and dropout", attentions * (SOFTMAX + DROPOUT) * scores
    yield "attention weighted values", attentions * 2 * hidden * length
    yield "attention output", attentions * (2 * hidden * hidden + hidden)
    # The error of the script: LayerNorm of one number.
    yield "attention dropout, residual and norm", attentions * ((DROPOUT + 1) * hidden + LAYER_NORM)
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
            size = hidden if network.projects_after_norm else embedding
            yield "head hidden layer", share * (2 * hidden * size + elements)
            if size != embedding:
                yield "head projection", share * 2 * hidden * embedding
        yield (
            "head vocabulary",
            share * (2 * embedding * vocabulary + ((SOFTMAX + 2) * vocabulary if paper else 0)),
        )
    elif network.head == "replaced-token":
        if network.detection_hidden:
            yield "head hidden layer", 2 * hidden * hidden + ((GELU + 1) * hidden if paper else 0)
        yield "head logit", 2 * hidden
