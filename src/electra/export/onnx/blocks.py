"""Parts of the graphs of several kinds of encoders.

Shapes: B batch, L length, D hidden size, H heads.
"""

import torch

from electra.export.onnx.graph import IDS, MASK, Graph
from electra.modeling.encoders.bert import Block
from electra.modeling.encoders.deberta import DebertaBlock
from electra.modeling.encoders.relative import RelativeBlock

MASKED_BIAS = -1e9
"""Added to the scores of masked keys. With -inf, a row that has only padding would give NaN."""


def summary(graph: Graph, states: str, *, left: bool) -> str:
    """The state (B, 1, D) that represents a row (`tasks.long_texts.summary`).

    Args:
        left: whether the encoder is left-to-right: the state is that of the last token instead of [CLS].
    """
    if not left:
        return graph.op("Slice", states, graph.integers(0), graph.integers(1), graph.integers(1))
    lengths_B1 = graph.op("ReduceSum", MASK, graph.integers(1), keepdims=1)
    positions_B11 = graph.op("Unsqueeze", graph.op("Sub", lengths_B1, graph.integers(1)), graph.integers(2))
    return graph.op("GatherND", states, positions_B11, batch_dims=1)


def token_mask(graph: Graph) -> str:
    """True at tokens, False at padding (B, 1, 1, L)."""
    return graph.op("Cast", graph.op("Unsqueeze", MASK, graph.integers(1, 2)), to=graph.types.BOOL)


def attention_bias(graph: Graph, mask: str) -> str:
    """The bias of attention scores: 0 where the mask is True."""
    return graph.op("Where", mask, graph.scalar(0.0), graph.scalar(MASKED_BIAS))


def linear_rows(graph: Graph, x: str, layer: torch.nn.Linear, rows: slice) -> str:
    """Some of the outputs of a linear layer, which are rows of its weight."""
    return graph.product(x, layer.weight[rows], None if layer.bias is None else layer.bias[rows])


def attend(graph: Graph, scores: str, bias: str, value: str, heads: int, D: int) -> str:
    """The average of the values (B, L, D), weighted by the softmax of scores plus bias."""
    weights = graph.softmax(graph.op("Add", scores, bias))
    return graph.merge_heads(graph.op("MatMul", weights, graph.split_heads(value, heads, D // heads)), D)


def block_output(graph: Graph, block: Block | RelativeBlock | DebertaBlock, attended: str, x: str) -> str:
    """The part of a block after attention: residual connection, feed-forward layer, and layer norms."""
    x = graph.norm(graph.op("Add", attended, x), block.attention_norm)
    inner = graph.activation(graph.linear(x, block.feed_forward.inner), block.feed_forward.activation)
    return graph.norm(graph.op("Add", graph.linear(inner, block.feed_forward.outer), x), block.feed_forward_norm)


def distance_range(graph: Graph) -> str:
    """The distances from L - 1 down to -L (2 L)."""
    length = graph.op("Squeeze", graph.op("Shape", IDS, start=1, end=2))
    one, step = (graph.op("Squeeze", graph.integers(value)) for value in (1, -1))
    return graph.op("Range", graph.op("Sub", length, one), graph.op("Sub", graph.op("Neg", length), one), step)


def relative_shift(graph: Graph, products: str, heads: int) -> str:
    """From each query's products with all distances (B, H, L, 2 L), select those with its keys (B, H, L, L).

    In each row the products of the keys start one element earlier than in the row before. If the elements are
    read from number L - 1 on in rows of length 2 L - 1, the products of the keys come first in each row.
    """
    batch, length = (graph.op("Shape", IDS, start=axis, end=axis + 1) for axis in (0, 1))
    one = graph.integers(1)
    shorter = graph.op("Sub", graph.op("Add", length, length), one)
    first = graph.op("Sub", length, one)
    end = graph.op("Add", first, graph.op("Mul", length, shorter))
    flat = graph.op("Reshape", products, graph.integers(0, 0, -1))
    shifted = graph.op("Slice", flat, first, end, graph.integers(2))
    shape = graph.op("Concat", batch, graph.integers(heads), length, shorter, axis=0)
    return graph.op("Slice", graph.op("Reshape", shifted, shape), graph.integers(0), length, graph.integers(3))
