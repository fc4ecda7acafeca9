"""Encoders as ONNX graphs: of learnt positions (`Encoder`) and of relative ones (`RelativeEncoder`).

Memory does not go out: a graph reads a row by itself.

Shapes: B batch, L length, D hidden size, E embedding size, H heads, K head size, R distances.
"""

import torch

from electra.errors import CheckpointError
from electra.export.onnx.graph import IDS, MASK, SEGMENTS, Graph
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.encoders.bert import BertEncoder, Block
from electra.modeling.encoders.relative import RelativeBlock, RelativeEncoder
from electra.modeling.kernels.attention import Attention
from electra.modeling.kernels.relative_attention import RelativeAttention

FAR = -1e9
"""What is added to the score of a key that may not be looked at. Not -inf: a row of padding alone stays finite."""


def encode(graph: Graph, encoder: EncoderModule, *, first_only: bool = False) -> str:
    """The states (B, L, D) of the tokens.

    Args:
        first_only: only those (B, 1, D) that stand for the rows: of [CLS], or in a network that looks to the left
            of the last token. With learnt positions the last block does no work at the others.
    """
    axes = ("batch", "length")
    graph.input(IDS, *axes)
    graph.input(MASK, *axes)
    if encoder.config.type_vocabulary_size > 1:
        graph.input(SEGMENTS, *axes)
    if isinstance(encoder, RelativeEncoder):
        states = _relative(graph, encoder)
        return summary(graph, states, left=encoder.config.direction == "left") if first_only else states
    if isinstance(encoder, BertEncoder):
        return _learned(graph, encoder, first_only=first_only)
    raise CheckpointError(f"encoders of kind {encoder.config.kind} cannot be exported as ONNX yet")


def summary(graph: Graph, states: str, *, left: bool) -> str:
    """The state (B, 1, D) that stands for a row (`tasks.long_texts.summary`)."""
    if not left:
        return graph.op("Slice", states, graph.numbers(0), graph.numbers(1), graph.numbers(1))
    lengths_B1 = graph.op("ReduceSum", MASK, graph.numbers(1), keepdims=1)
    places_B11 = graph.op("Unsqueeze", graph.op("Sub", lengths_B1, graph.numbers(1)), graph.numbers(2))
    return graph.op("GatherND", states, places_B11, batch_dims=1)


def _allowed(graph: Graph) -> str:
    """True at tokens, False at padding (B, 1, 1, L)."""
    return graph.op("Cast", graph.op("Unsqueeze", MASK, graph.numbers(1, 2)), to=graph.types.BOOL)


def _bias(graph: Graph, allowed: str) -> str:
    return graph.op("Where", allowed, graph.number(0.0), graph.number(FAR))


def _learned(graph: Graph, encoder: BertEncoder, *, first_only: bool) -> str:
    config, tables = encoder.config, encoder.embeddings
    length = graph.op("Shape", IDS, start=1, end=2)
    positions = graph.op("Slice", graph.parameter(tables.position.weight), graph.numbers(0), length)
    x = graph.op("Add", graph.rows(tables.token.weight, IDS), positions)
    if config.type_vocabulary_size > 1:
        x = graph.op("Add", x, graph.op("Gather", graph.parameter(tables.segment.weight), SEGMENTS))
    else:
        x = graph.op("Add", x, graph.parameter(tables.segment.weight[0]))
    x = graph.norm(x, tables.norm)
    if isinstance(encoder.projection, torch.nn.Linear):
        x = graph.linear(x, encoder.projection)
    bias = _bias(graph, _allowed(graph))
    for number, block in enumerate(encoder.blocks):
        assert isinstance(block, Block)
        asking = summary(graph, x, left=False) if first_only and number == len(encoder.blocks) - 1 else None
        attended = _attention(graph, block.attention, x, bias, asking)
        x = _after(graph, block, attended, x if asking is None else asking)
    return x


def _after(graph: Graph, block: Block | RelativeBlock, attended: str, x: str) -> str:
    """The rest of a block: what was attended to is added, then what the feed-forward makes of it."""
    x = graph.norm(graph.op("Add", attended, x), block.attention_norm)
    inner = graph.activation(graph.linear(x, block.feed_forward.inner), block.feed_forward.activation)
    return graph.norm(graph.op("Add", graph.linear(inner, block.feed_forward.outer), x), block.feed_forward_norm)


def _attention(graph: Graph, attention: Attention, x: str, bias: str, asking: str | None) -> str:
    layer, heads = attention.query_key_value, attention.heads
    D = layer.in_features
    K = D // heads
    if asking is None:
        query, key, value = graph.several("Split", 3, graph.linear(x, layer), axis=-1, num_outputs=3)
    else:
        query = _part(graph, asking, layer, slice(0, D))
        key, value = graph.several("Split", 2, _part(graph, x, layer, slice(D, 3 * D)), axis=-1, num_outputs=2)
    scores = graph.op("MatMul", graph.heads(query, heads, K), graph.heads(key, heads, K, keys=True))
    scores = graph.op("Mul", scores, graph.number(K**-0.5))
    return graph.linear(_mixed(graph, scores, bias, value, heads, D), attention.output)


def _part(graph: Graph, x: str, layer: torch.nn.Linear, rows: slice) -> str:
    """Some of the outputs of a layer."""
    y = graph.op("MatMul", x, graph.parameter(layer.weight[rows], turned=True))
    return graph.op("Add", y, graph.parameter(layer.bias[rows]))


def _mixed(graph: Graph, scores: str, bias: str, value: str, heads: int, D: int) -> str:
    """The values, mixed by the softmax of scores to which a bias is added."""
    weights = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    return graph.joined(graph.op("MatMul", weights, graph.heads(value, heads, D // heads)), D)


def _relative(graph: Graph, encoder: RelativeEncoder) -> str:
    config = encoder.config
    x = graph.rows(encoder.embeddings.token.weight, IDS)
    length = graph.op("Squeeze", graph.op("Shape", IDS, start=1, end=2))
    one = graph.op("Squeeze", graph.numbers(1))
    places_L = graph.op("Range", graph.op("Squeeze", graph.numbers(0)), length, one)
    rows_L1, columns_1L = (graph.op("Unsqueeze", places_L, graph.numbers(axis)) for axis in (1, 0))
    visible = _allowed(graph)
    if config.direction == "left":
        visible = graph.op("And", visible, graph.op("GreaterOrEqual", rows_L1, columns_1L))
    bias = _bias(graph, graph.op("Or", visible, graph.op("Equal", rows_L1, columns_1L)))
    different = None
    if config.type_vocabulary_size > 1:
        of_keys_B11L = graph.op("Unsqueeze", SEGMENTS, graph.numbers(1, 2))
        of_queries_B1L1 = graph.op("Unsqueeze", SEGMENTS, graph.numbers(1, 3))
        same = graph.op("Equal", of_queries_B1L1, of_keys_B11L)
        different = graph.op("Cast", graph.op("Not", same), to=graph.types.FLOAT)
    sinusoids = _sinusoids(graph, length, config.hidden_size)
    for block in encoder.blocks:
        assert isinstance(block, RelativeBlock)
        attended = _relative_attention(graph, block.attention, x, sinusoids, bias, different)
        x = _after(graph, block, attended, x)
    return x


def _sinusoids(graph: Graph, length: str, size: int) -> str:
    """The vectors of the distances L - 1 to -L (2 L, D).

    The last one belongs to no pair of tokens; with it the runs of the queries can be read off (`_lined_up`).
    """
    minus = graph.op("Neg", length)
    one, step = (graph.op("Squeeze", graph.numbers(value)) for value in (1, -1))
    distances = graph.op("Range", graph.op("Sub", length, one), graph.op("Sub", minus, one), step)
    distances = graph.op("Unsqueeze", graph.op("Cast", distances, to=graph.types.FLOAT), graph.numbers(1))
    exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
    angles = graph.op("Mul", distances, graph.parameter(1 / torch.pow(10_000, exponents)))
    return graph.op("Concat", graph.op("Sin", angles), graph.op("Cos", angles), axis=-1)


def _relative_attention(
    graph: Graph, attention: RelativeAttention, x: str, sinusoids: str, bias: str, different: str | None
) -> str:
    heads, D = attention.heads, attention.query.in_features
    K = D // heads
    query = graph.linear(x, attention.query)
    key, value = graph.several("Split", 2, graph.linear(x, attention.key_value), axis=-1, num_outputs=2)
    for_content, for_distance = (
        graph.heads(graph.op("Add", query, graph.parameter(vector)), heads, K)
        for vector in (attention.content_bias, attention.position_bias)
    )
    scores = graph.op("MatMul", for_content, graph.heads(key, heads, K, keys=True))
    vectors_RD = graph.linear(sinusoids, attention.position)
    vectors_RHK = graph.op("Reshape", vectors_RD, graph.numbers(-1, heads, K))
    products = graph.op("MatMul", for_distance, graph.op("Transpose", vectors_RHK, perm=[1, 2, 0]))
    scores = graph.op("Add", scores, _lined_up(graph, products, heads))
    if different is not None and attention.segments is not None and attention.segment_bias is not None:
        # What a key of the other segment scores more than one of the same (`RelativeAttention._segment_scores`).
        same_D, other_D = attention.segments.weight.detach()
        difference_HK1 = (other_D - same_D).view(heads, K, 1)
        constant_H11 = (attention.segment_bias.detach().view(heads, K, 1) * difference_HK1).sum(1, keepdim=True)
        more = graph.op("MatMul", graph.heads(query, heads, K), graph.parameter(difference_HK1.clone()))
        more = graph.op("Add", more, graph.parameter(constant_H11))
        scores = graph.op("Add", scores, graph.op("Mul", more, different))
    scores = graph.op("Mul", scores, graph.number(K**-0.5))
    return graph.linear(_mixed(graph, scores, bias, value, heads, D), attention.output)


def _lined_up(graph: Graph, products: str, heads: int) -> str:
    """Of each query's products with all distances (B, H, L, 2 L) those of its keys (B, H, L, L).

    The row of a query that stands one later starts one distance earlier: read from L - 1 on with rows one shorter,
    the products line up.
    """
    batch, length = (graph.op("Shape", IDS, start=axis, end=axis + 1) for axis in (0, 1))
    one = graph.numbers(1)
    shorter = graph.op("Sub", graph.op("Add", length, length), one)
    first = graph.op("Sub", length, one)
    end = graph.op("Add", first, graph.op("Mul", length, shorter))
    flat = graph.op("Reshape", products, graph.numbers(0, 0, -1))
    run = graph.op("Slice", flat, first, end, graph.numbers(2))
    shape = graph.op("Concat", batch, graph.numbers(heads), length, shorter, axis=0)
    return graph.op("Slice", graph.op("Reshape", run, shape), graph.numbers(0), length, graph.numbers(3))
