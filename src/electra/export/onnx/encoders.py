"""Encoders as ONNX graphs: with learned positions (`BertEncoder`) and with relative positions (`RelativeEncoder`).

Graphs of the kinds modernbert and deberta are in files of their own.

The memory of relative encoders is not exported: a graph reads each row independently.

Shapes: B batch, L length, D hidden size, H heads, K head size, R distances.
"""

import torch

from electra.errors import CheckpointError
from electra.export.onnx.blocks import (
    attend,
    attention_bias,
    block_output,
    distance_range,
    linear_rows,
    relative_shift,
    summary,
    token_mask,
)
from electra.export.onnx.deberta import deberta_encoder
from electra.export.onnx.graph import IDS, MASK, SEGMENTS, Graph
from electra.export.onnx.modernbert import modernbert_encoder
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.encoders.bert import Attention, BertEncoder, Block
from electra.modeling.encoders.deberta import DebertaEncoder
from electra.modeling.encoders.modernbert import ModernBertEncoder
from electra.modeling.encoders.relative import RelativeBlock, RelativeEncoder
from electra.modeling.kernels.relative_attention import RelativeAttention


def encode(graph: Graph, encoder: EncoderModule, *, summary_only: bool = False) -> str:
    """The hidden states (B, L, D).

    Args:
        summary_only: whether to return only the state (B, 1, D) that represents each row (`summary`). Without
            relative positions, the last block then skips all other positions.

    Raises:
        CheckpointError: there is no ONNX graph for encoders of this kind.
    """
    axes = ("batch", "length")
    graph.input(IDS, *axes)
    graph.input(MASK, *axes)
    if encoder.config.type_vocabulary_size > 1:
        graph.input(SEGMENTS, *axes)
    if isinstance(encoder, RelativeEncoder):
        states = _relative_encoder(graph, encoder)
        return summary(graph, states, left=encoder.config.direction == "left") if summary_only else states
    if isinstance(encoder, BertEncoder):
        return _bert_encoder(graph, encoder, summary_only=summary_only)
    if isinstance(encoder, ModernBertEncoder):
        return modernbert_encoder(graph, encoder, summary_only=summary_only)
    if isinstance(encoder, DebertaEncoder):
        return deberta_encoder(graph, encoder, summary_only=summary_only)
    raise CheckpointError(
        f"an encoder of kind {encoder.config.kind} cannot be exported to ONNX, only the kinds bert, "
        "relative, modernbert and deberta can; use the model in PyTorch: electra score, predict and serve take it "
        "as it is"
    )


def _bert_encoder(graph: Graph, encoder: BertEncoder, *, summary_only: bool) -> str:
    config, embeddings = encoder.config, encoder.embeddings
    length = graph.op("Shape", IDS, start=1, end=2)
    positions = graph.op("Slice", graph.parameter(embeddings.position.weight), graph.integers(0), length)
    x = graph.op("Add", graph.embedding(embeddings.token.weight, IDS), positions)
    if config.type_vocabulary_size > 1:
        x = graph.op("Add", x, graph.op("Gather", graph.parameter(embeddings.segment.weight), SEGMENTS))
    else:
        x = graph.op("Add", x, graph.parameter(embeddings.segment.weight[0]))
    x = graph.norm(x, embeddings.norm)
    if isinstance(encoder.projection, torch.nn.Linear):
        x = graph.linear(x, encoder.projection)
    bias = attention_bias(graph, token_mask(graph))
    for number, block in enumerate(encoder.blocks):
        assert isinstance(block, Block)
        is_last = number == len(encoder.blocks) - 1
        query_states = summary(graph, x, left=False) if summary_only and is_last else None
        attended = _attention(graph, block.attention, x, bias, query_states)
        x = block_output(graph, block, attended, x if query_states is None else query_states)
    return x


def _attention(graph: Graph, attention: Attention, x: str, bias: str, query_states: str | None) -> str:
    """Attention of all states, or of `query_states`, to all states."""
    layer, heads = attention.query_key_value, attention.heads
    D = layer.in_features
    K = D // heads
    if query_states is None:
        query, key, value = graph.multi_output_op("Split", 3, graph.linear(x, layer), axis=-1, num_outputs=3)
    else:
        query = linear_rows(graph, query_states, layer, slice(0, D))
        key_value = linear_rows(graph, x, layer, slice(D, 3 * D))
        key, value = graph.multi_output_op("Split", 2, key_value, axis=-1, num_outputs=2)
    scores = graph.op("MatMul", graph.split_heads(query, heads, K), graph.split_heads(key, heads, K, keys=True))
    scores = graph.op("Mul", scores, graph.scalar(K**-0.5))
    return graph.linear(attend(graph, scores, bias, value, heads, D), attention.output)


def _relative_encoder(graph: Graph, encoder: RelativeEncoder) -> str:
    config = encoder.config
    x = graph.embedding(encoder.embeddings.token.weight, IDS)
    length = graph.op("Squeeze", graph.op("Shape", IDS, start=1, end=2))
    one = graph.op("Squeeze", graph.integers(1))
    positions_L = graph.op("Range", graph.op("Squeeze", graph.integers(0)), length, one)
    rows_L1, columns_1L = (graph.op("Unsqueeze", positions_L, graph.integers(axis)) for axis in (1, 0))
    visible = token_mask(graph)
    if config.direction == "left":
        visible = graph.op("And", visible, graph.op("GreaterOrEqual", rows_L1, columns_1L))
    bias = attention_bias(graph, graph.op("Or", visible, graph.op("Equal", rows_L1, columns_1L)))
    other_segment = None
    if config.type_vocabulary_size > 1:
        key_segments_B11L = graph.op("Unsqueeze", SEGMENTS, graph.integers(1, 2))
        query_segments_B1L1 = graph.op("Unsqueeze", SEGMENTS, graph.integers(1, 3))
        same = graph.op("Equal", query_segments_B1L1, key_segments_B11L)
        other_segment = graph.op("Cast", graph.op("Not", same), to=graph.types.FLOAT)
    sinusoids = _sinusoids(graph, length, config.hidden_size)
    for block in encoder.blocks:
        assert isinstance(block, RelativeBlock)
        attended = _relative_attention(graph, block.attention, x, sinusoids, bias, other_segment)
        x = block_output(graph, block, attended, x)
    return x


def _sinusoids(graph: Graph, length: str, size: int) -> str:
    """Sinusoidal encodings of the distances L - 1 to -L (2 L, D).

    No pair of tokens has the last distance, but `relative_shift` needs rows of length 2 L.
    """
    distances = distance_range(graph)
    distances = graph.op("Unsqueeze", graph.op("Cast", distances, to=graph.types.FLOAT), graph.integers(1))
    exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
    angles = graph.op("Mul", distances, graph.parameter(1 / torch.pow(10_000, exponents)))
    return graph.op("Concat", graph.op("Sin", angles), graph.op("Cos", angles), axis=-1)


def _relative_attention(
    graph: Graph, attention: RelativeAttention, x: str, sinusoids: str, bias: str, other_segment: str | None
) -> str:
    heads, D = attention.heads, attention.query.in_features
    K = D // heads
    query = graph.linear(x, attention.query)
    key, value = graph.multi_output_op("Split", 2, graph.linear(x, attention.key_value), axis=-1, num_outputs=2)
    content_query, position_query = (
        graph.split_heads(graph.op("Add", query, graph.parameter(vector)), heads, K)
        for vector in (attention.content_bias, attention.position_bias)
    )
    scores = graph.op("MatMul", content_query, graph.split_heads(key, heads, K, keys=True))
    vectors_RD = graph.linear(sinusoids, attention.position)
    vectors_RHK = graph.op("Reshape", vectors_RD, graph.integers(-1, heads, K))
    products = graph.op("MatMul", position_query, graph.op("Transpose", vectors_RHK, perm=[1, 2, 0]))
    scores = graph.op("Add", scores, relative_shift(graph, products, heads))
    if other_segment is not None and attention.segments is not None and attention.segment_bias is not None:
        # By how much the segment score of a key rises if the key is in the other segment
        # (`RelativeAttention._segment_scores`).
        same_D, other_D = attention.segments.weight.detach()
        difference_HK1 = (other_D - same_D).view(heads, K, 1)
        constant_H11 = (attention.segment_bias.detach().view(heads, K, 1) * difference_HK1).sum(1, keepdim=True)
        query_heads = graph.split_heads(query, heads, K)
        # MatMul with one column would sum in an order that depends on the length.
        by_unit = graph.op("Mul", query_heads, graph.parameter(difference_HK1.mT))
        segment_scores = graph.op("ReduceSum", by_unit, graph.integers(-1), keepdims=1)
        segment_scores = graph.op("Add", segment_scores, graph.parameter(constant_H11))
        scores = graph.op("Add", scores, graph.op("Mul", segment_scores, other_segment))
    scores = graph.op("Mul", scores, graph.scalar(K**-0.5))
    return graph.linear(attend(graph, scores, bias, value, heads, D), attention.output)
