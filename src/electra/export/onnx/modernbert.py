"""ONNX graphs of encoders of kind modernbert.

Local blocks compute windows only, as `modeling.kernels.local_attention` does, so that time and memory grow
linearly with the length in onnxruntime, too. A block of queries has as many tokens as the window reaches, or the
whole row if that is shorter. Global blocks compute the scores of some queries at a time, so that their memory
grows linearly, too.

Shapes: B batch, L length, D hidden size, H heads, K head size, P = K / 2 pairs, N blocks of Q queries, W = 3 Q
keys of a window.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from electra.export.onnx.blocks import attend, attention_bias, linear_rows, summary, token_mask
from electra.export.onnx.graph import IDS, MASK, SEGMENTS, Graph
from electra.modeling.encoders.modernbert import (
    GatedFeedForward,
    ModernBertBlock,
    ModernBertEncoder,
)
from electra.modeling.encoders.rotary_attention import RotaryAttention

QUERIES = 512
"""Queries whose scores of all keys are in memory at a time, in blocks that attend to the whole row."""


@dataclass(frozen=True)
class Angles:
    """Cosine and sine (L, P) of the angles of all positions."""

    cos: str
    sin: str


@dataclass(frozen=True)
class Windows:
    """What local blocks share.

    Attributes:
        size: the number Q of queries in a block (1).
        padding: by how many tokens rows are shorter than whole blocks (1).
        bias: the bias of attention scores (B, N, 1, Q, W).
    """

    size: str
    padding: str
    bias: str


def modernbert_encoder(graph: Graph, encoder: ModernBertEncoder, *, summary_only: bool) -> str:
    """The hidden states (B, L, D), or with `summary_only` (B, 1, D)."""
    config, K = encoder.config, encoder.config.hidden_size // encoder.config.heads
    angles = local_angles = None
    if config.position_encoding == "rotary":
        angles, local_angles = (_angles(graph, K, theta) for theta in (config.rope_theta, config.local_rope_theta))
    x, bias = _embeddings(graph, encoder), attention_bias(graph, token_mask(graph))
    windows = None
    last = len(encoder.blocks) - 1
    for layer, block in enumerate(encoder.blocks):
        assert isinstance(block, ModernBertBlock)
        is_local, is_summary = config.is_local(layer), summary_only and layer == last
        if is_local and not is_summary and windows is None:
            windows = _windows(graph, config.reach)
        residual = summary(graph, x, left=False) if is_summary else x
        states = graph.norm(x, block.attention_norm) if block.pre_norm else x
        if is_summary:
            reach = config.reach if is_local else None
            attended = _attend_from_first(
                graph, block.attention, states, bias, local_angles if is_local else angles, reach
            )
        elif is_local:
            assert windows is not None
            attended = _attend_in_windows(graph, block.attention, states, windows, local_angles)
        else:
            attended = _attend_to_all(graph, block.attention, states, bias, angles)
        x = graph.op("Add", graph.linear(attended, block.attention.output), residual)
        if block.pre_norm:
            inner = _feed_forward(graph, block.feed_forward, graph.norm(x, block.feed_forward_norm))
            x = graph.op("Add", inner, x)
        else:
            x = graph.norm(x, block.attention_norm)
            inner = _feed_forward(graph, block.feed_forward, x)
            x = graph.norm(graph.op("Add", inner, x), block.feed_forward_norm)
    return graph.norm(x, encoder.final_norm)


def _embeddings(graph: Graph, encoder: ModernBertEncoder) -> str:
    embeddings = encoder.embeddings
    x = graph.embedding(embeddings.token.weight, IDS)
    if isinstance(embeddings.projection, nn.Linear):
        x = graph.linear(x, embeddings.projection)
    if embeddings.position is not None:
        positions = graph.parameter(embeddings.position.weight)
        x = graph.op("Add", x, graph.op("Slice", positions, graph.integers(0), _length(graph)))
    if embeddings.segment is not None:
        x = graph.op("Add", x, graph.op("Gather", graph.parameter(embeddings.segment.weight), SEGMENTS))
    return graph.norm(x, embeddings.norm)


def _feed_forward(graph: Graph, layer: GatedFeedForward, x: str) -> str:
    inner = graph.linear(x, layer.inner)
    if not layer.gated:
        return graph.linear(graph.activation(inner, layer.activation), layer.outer)
    activated, gate = graph.multi_output_op("Split", 2, inner, axis=-1, num_outputs=2)
    activated = graph.activation(activated, layer.activation)
    return graph.linear(graph.op("Mul", activated, gate), layer.outer)


def _length(graph: Graph) -> str:
    """The length of the rows (1)."""
    return graph.op("Shape", IDS, start=1, end=2)


def _range(graph: Graph, count: str) -> str:
    """The numbers from 0 to count - 1."""
    zero, one = (graph.op("Squeeze", graph.integers(value)) for value in (0, 1))
    return graph.op("Range", zero, graph.op("Squeeze", count), one)


def _ceil_divided(graph: Graph, number: str, divisor: str) -> str:
    """The quotient of two positive integers, rounded up."""
    return graph.op("Div", graph.op("Sub", graph.op("Add", number, divisor), graph.integers(1)), divisor)


def _angles(graph: Graph, head_size: int, theta: float) -> Angles:
    exponents_P = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    positions = graph.op("Cast", _range(graph, _length(graph)), to=graph.types.FLOAT)
    positions_L1 = graph.op("Unsqueeze", positions, graph.integers(1))
    angles_LP = graph.op("Mul", positions_L1, graph.parameter(1.0 / theta**exponents_P))
    return Angles(graph.op("Cos", angles_LP), graph.op("Sin", angles_LP))


def _rotate(graph: Graph, x_BHLK: str, angles: Angles | None) -> str:
    if angles is None:
        return x_BHLK
    first, second = graph.multi_output_op("Split", 2, x_BHLK, axis=-1, num_outputs=2)
    turned_first = graph.op("Sub", graph.op("Mul", first, angles.cos), graph.op("Mul", second, angles.sin))
    turned_second = graph.op("Add", graph.op("Mul", second, angles.cos), graph.op("Mul", first, angles.sin))
    return graph.op("Concat", turned_first, turned_second, axis=-1)


def _query_key_value(
    graph: Graph, attention: RotaryAttention, x: str, angles: Angles | None
) -> tuple[str, str, str]:
    """Rotated and scaled queries, rotated keys (B, H, L, K), and values (B, L, D)."""
    layer, heads = attention.query_key_value, attention.heads
    K = layer.in_features // heads
    query, key, value = graph.multi_output_op("Split", 3, graph.linear(x, layer), axis=-1, num_outputs=3)
    query = _rotate(graph, graph.split_heads(query, heads, K), angles)
    key = _rotate(graph, graph.split_heads(key, heads, K), angles)
    return graph.op("Mul", query, graph.scalar(K**-0.5)), key, value


def _attend_to_all(graph: Graph, attention: RotaryAttention, x: str, bias: str, angles: Angles | None) -> str:
    """Attention to the whole row, for `QUERIES` queries at a time: scores of all would take memory with the square
    of the length."""
    query, key, value = _query_key_value(graph, attention, x, angles)
    heads, D = attention.heads, attention.query_key_value.in_features
    value, key = graph.split_heads(value, heads, D // heads), graph.op("Transpose", key, perm=[0, 1, 3, 2])
    length, zero = _length(graph), graph.integers(0)
    count = _ceil_divided(graph, length, graph.integers(QUERIES))
    size = _ceil_divided(graph, length, count)
    padding = graph.op("Sub", graph.op("Mul", count, size), length)

    def attend_block(query_BHQK: str) -> str:
        scores_BHQL = graph.op("Add", graph.op("MatMul", query_BHQK, key), bias)
        return graph.op("MatMul", graph.softmax(scores_BHQL), value)

    blocks = graph.op("Transpose", _blocks(graph, query, zero, padding, size), perm=[2, 0, 1, 3, 4])
    attended = graph.op("Transpose", graph.for_each(attend_block, blocks), perm=[1, 2, 0, 3, 4])
    y_BHLK = graph.op("Reshape", attended, graph.integers(0, 0, -1, D // heads))
    return graph.merge_heads(graph.op("Slice", y_BHLK, zero, length, graph.integers(2)), D)


def _attend_from_first(
    graph: Graph, attention: RotaryAttention, x: str, bias: str, angles: Angles | None, reach: int | None
) -> str:
    """Attention of the first token only. Its angles are 0, so its query is not rotated.

    Args:
        reach: the reach of a window; None: all tokens are seen.
    """
    layer, heads = attention.query_key_value, attention.heads
    D = layer.in_features
    K = D // heads
    if reach is not None:
        end = graph.integers(reach + 1)
        x = graph.op("Slice", x, graph.integers(0), end, graph.integers(1))
        bias = graph.op("Slice", bias, graph.integers(0), end, graph.integers(3))
        if angles is not None:
            cos, sin = (graph.op("Slice", y, graph.integers(0), end) for y in (angles.cos, angles.sin))
            angles = Angles(cos, sin)
    query = linear_rows(graph, summary(graph, x, left=False), layer, slice(0, D))
    key_value = linear_rows(graph, x, layer, slice(D, 3 * D))
    key, value = graph.multi_output_op("Split", 2, key_value, axis=-1, num_outputs=2)
    key = _rotate(graph, graph.split_heads(key, heads, K), angles)
    query = graph.op("Mul", graph.split_heads(query, heads, K), graph.scalar(K**-0.5))
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    return attend(graph, scores, bias, value, heads, D)


def _windows(graph: Graph, reach: int) -> Windows:
    """A query sees the tokens of its window that are at most `reach` positions away; padding sees itself."""
    length, zero = _length(graph), graph.integers(0)
    size = graph.op("Min", length, graph.integers(reach))
    padding = graph.op("Mod", graph.op("Sub", size, graph.op("Mod", length, size)), size)
    windows = Windows(size, padding, "")
    mask_B1L1 = graph.op("Cast", graph.op("Unsqueeze", MASK, graph.integers(1, 3)), to=graph.types.FLOAT)
    keys_B1N1W = graph.op("Transpose", _keys_of_windows(graph, mask_B1L1, windows), perm=[0, 1, 2, 4, 3])
    keys_W = _range(graph, graph.op("Mul", size, graph.integers(3)))
    queries_Q1 = graph.op("Unsqueeze", graph.op("Add", _range(graph, size), size), graph.integers(1))
    distances_QW = graph.op("Abs", graph.op("Sub", keys_W, queries_Q1))
    near_QW = graph.op("LessOrEqual", distances_QW, graph.integers(reach))
    visible = graph.op("And", graph.op("Cast", keys_B1N1W, to=graph.types.BOOL), near_QW)
    visible = graph.op("Or", visible, graph.op("Equal", distances_QW, zero))
    return replace(windows, bias=attention_bias(graph, visible))


def _blocks(graph: Graph, x_BHLK: str, before: str, after: str, size: str) -> str:
    """Pad the length with zeros at both ends and split it into blocks of `size`: (B, H, N, Q, K)."""
    pads = graph.op("Concat", before, after, axis=0)
    padded = graph.op("Pad", x_BHLK, pads, graph.scalar(0.0), graph.integers(2))
    heads, width = (graph.op("Shape", x_BHLK, start=axis, end=axis + 1) for axis in (1, 3))
    shape = graph.op("Concat", graph.integers(0), heads, graph.integers(-1), size, width, axis=0)
    return graph.op("Reshape", padded, shape)


def _keys_of_windows(graph: Graph, x_BHLK: str, windows: Windows) -> str:
    """Each block with its two neighbors (B, H, N, W, K)."""
    size = windows.size
    after = graph.op("Add", size, windows.padding)
    blocks = _blocks(graph, x_BHLK, size, after, size)  # of which the first and the last are empty
    axis, end = graph.integers(2), 2**31
    parts = [
        graph.op("Slice", blocks, graph.integers(first), graph.integers(last), axis)
        for first, last in ((0, -2), (1, -1), (2, end))
    ]
    return graph.op("Concat", *parts, axis=3)


def _attend_in_windows(
    graph: Graph, attention: RotaryAttention, x: str, windows: Windows, angles: Angles | None
) -> str:
    query, key, value = _query_key_value(graph, attention, x, angles)
    heads, D = attention.heads, attention.query_key_value.in_features
    value = graph.split_heads(value, heads, D // heads)
    query = _blocks(graph, query, graph.integers(0), windows.padding, windows.size)
    keys, values = (_keys_of_windows(graph, y, windows) for y in (key, value))
    scores = graph.op("MatMul", query, graph.op("Transpose", keys, perm=[0, 1, 2, 4, 3]))
    weights = graph.softmax(graph.op("Add", scores, windows.bias))
    y_BHLK = graph.op("Reshape", graph.op("MatMul", weights, values), graph.integers(0, 0, -1, D // heads))
    y_BHLK = graph.op("Slice", y_BHLK, graph.integers(0), _length(graph), graph.integers(2))
    return graph.merge_heads(y_BHLK, D)
