"""Parts of the graphs of several kinds of encoders.

Shapes: B batch, L length, D hidden size, H heads.
"""

import torch

from electra.export.onnx.graph import MASK, Graph

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
    y = graph.op("MatMul", x, graph.parameter(layer.weight[rows], transpose=True))
    return y if layer.bias is None else graph.op("Add", y, graph.parameter(layer.bias[rows]))


def attend(graph: Graph, scores: str, bias: str, value: str, heads: int, D: int) -> str:
    """The average of the values (B, L, D), weighted by the softmax of scores plus bias."""
    weights = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    return graph.merge_heads(graph.op("MatMul", weights, graph.split_heads(value, heads, D // heads)), D)
