"""Encoders of the kind deberta as ONNX graphs.

The projections of the relative table are constants of the graph.

Shapes: B batch, L length, R rows of the table, D hidden size, H heads, K head size.
"""

import torch
from torch import Tensor

from electra.export.onnx.blocks import (
    attend,
    attention_bias,
    block_output,
    distance_range,
    relative_shift,
    summary,
    token_mask,
)
from electra.export.onnx.graph import IDS, MASK, SEGMENTS, Graph
from electra.modeling.encoders.deberta import DebertaBlock, DebertaEncoder, DisentangledAttention
from electra.modeling.kernels.convolution import Convolution


def deberta_encoder(graph: Graph, encoder: DebertaEncoder, *, summary_only: bool) -> str:
    """The hidden states (B, L, D), or with `summary_only` (B, 1, D)."""
    first = x = _embeddings(graph, encoder)
    bias = attention_bias(graph, token_mask(graph))
    rows = _rows(graph, encoder)
    table = encoder.relative_positions
    table_RD = table.norm(table.table.weight)
    for layer, block in enumerate(encoder.blocks):
        assert isinstance(block, DebertaBlock)
        x = block_output(graph, block, _attention(graph, block.attention, x, bias, table_RD, rows), x)
        if layer == 0 and encoder.convolution is not None:
            x = _with_convolution(graph, encoder.convolution, x, first)
    return summary(graph, x, left=False) if summary_only else x


def _embeddings(graph: Graph, encoder: DebertaEncoder) -> str:
    embeddings = encoder.embeddings
    x = graph.embedding(embeddings.token.weight, IDS)
    if embeddings.segment is not None:
        table = embeddings.segment.weight
        several = len(table) > 1
        added = graph.op("Gather", graph.parameter(table), SEGMENTS) if several else graph.parameter(table[0])
        x = graph.op("Add", x, added)
    if isinstance(embeddings.projection, torch.nn.Linear):
        x = graph.linear(x, embeddings.projection)
    return graph.norm(x, embeddings.norm)


def _rows(graph: Graph, encoder: DebertaEncoder) -> tuple[str, str]:
    """The row of the table for each distance of query minus key, from L - 1 down to -L, and from -(L - 1) to L.

    No pair of tokens has the last distance, but `relative_shift` needs rows of length 2 L.
    """
    table = encoder.relative_positions
    longest = table.max_distance  # all longer distances have the same row
    known = graph.integers(*table.rows(longest + 1).tolist())
    rows = []
    distances = distance_range(graph)
    for values in (distances, graph.op("Neg", distances)):
        limits = (graph.op("Squeeze", graph.integers(value)) for value in (-longest, longest))
        places = graph.op("Add", graph.op("Clip", values, *limits), graph.integers(longest))
        rows.append(graph.op("Gather", known, places))
    return rows[0], rows[1]


def _attention(
    graph: Graph, attention: DisentangledAttention, x: str, bias: str, table_RD: Tensor, rows: tuple[str, str]
) -> str:
    heads, D, config = attention.heads, attention.output.in_features, attention.config
    K = D // heads
    product = graph.linear(x, attention.query_key_value)
    query, key, value = graph.multi_output_op("Split", 3, product, axis=-1, num_outputs=3)
    scores = graph.op("MatMul", graph.split_heads(query, heads, K), graph.split_heads(key, heads, K, keys=True))
    if config.content_to_position:
        vectors_RD = attention.project(table_RD, attention.position_key, slice(D, 2 * D)).flatten(1)
        products = _products(graph, query, vectors_RD, rows[0], heads)
        scores = graph.op("Add", scores, relative_shift(graph, products, heads))
    if config.position_to_content:
        vectors_RD = attention.project(table_RD, attention.position_query, slice(D)).flatten(1)
        shifted = relative_shift(graph, _products(graph, key, vectors_RD, rows[1], heads), heads)
        scores = graph.op("Add", scores, graph.op("Transpose", shifted, perm=[0, 1, 3, 2]))
    terms = 1 + config.content_to_position + config.position_to_content
    scores = graph.op("Mul", scores, graph.scalar((K * terms) ** -0.5))
    return graph.linear(attend(graph, scores, bias, value, heads, D), attention.output)


def _products(graph: Graph, x: str, vectors_RD: Tensor, rows: str, heads: int) -> str:
    """The products of the states of all tokens with the vectors of all distances (B, H, L, 2 L)."""
    K = vectors_RD.shape[1] // heads
    vectors = graph.op("Gather", graph.parameter(vectors_RD), rows)
    vectors = graph.op("Reshape", vectors, graph.integers(-1, heads, K))
    return graph.op("MatMul", graph.split_heads(x, heads, K), graph.op("Transpose", vectors, perm=[1, 2, 0]))


def _with_convolution(graph: Graph, convolution: Convolution, x: str, embeddings: str) -> str:
    """The first block's output with the convolution of the embeddings, which are 0 at padding.

    It is a product of windows of tokens: Conv would sum in an order that depends on the length.
    """
    mask_BL1 = graph.op("Cast", graph.op("Unsqueeze", MASK, graph.integers(2)), to=graph.types.FLOAT)
    layer = convolution.convolution
    width, axis = layer.kernel_size[0], graph.integers(1)
    pads = graph.integers(width // 2, width // 2)
    padded = graph.op("Pad", graph.op("Mul", embeddings, mask_BL1), pads, graph.scalar(0.0), axis)
    ends = [number - width + 1 for number in range(width - 1)] + [2**31]
    parts = [
        graph.op("Slice", padded, graph.integers(start), graph.integers(end), axis)
        for start, end in enumerate(ends)
    ]
    windows = graph.op("Concat", *parts, axis=-1)
    added = graph.product(windows, _convolution_matrix(layer), layer.bias)
    if convolution.activation is torch.tanh:
        added = graph.op("Tanh", added)
    else:
        added = graph.activation(added, convolution.activation)
    return graph.norm(graph.op("Add", x, added), convolution.norm)


def _convolution_matrix(layer: torch.nn.Conv1d) -> Tensor:
    """The weight (D, width D) of a convolution for the states of a window; 0 between groups."""
    size, width = layer.out_channels, layer.kernel_size[0]
    weight_DwD = layer.weight.new_zeros(size, width, size)
    for rows in torch.arange(size).chunk(layer.groups):
        weight_DwD[rows[:, None, None], torch.arange(width)[:, None], rows] = layer.weight[rows].detach().mT
    return weight_DwD.flatten(1)
