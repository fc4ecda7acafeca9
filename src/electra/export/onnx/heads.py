"""A whole network as an ONNX graph: its encoder, and what its head gives.

Shapes: B batch, L length, D hidden size, V vocabulary, K labels, T starts of answers, N positions of words, A
width of an answer's hidden layer.
"""

from typing import Literal, get_args

from torch import Tensor, nn

from electra.errors import CheckpointError
from electra.export.onnx.encoders import encode, summary
from electra.export.onnx.graph import IDS, MASK, Graph
from electra.export.pretrained import Pretrained
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.task_heads import BEAM, ConditionalSpanHead, SpanHead, TextHead, TokenHead

OnnxKind = Literal["discriminator", "generator", "encoder", "text", "token", "span", "conditional-span"]
KINDS: tuple[OnnxKind, ...] = get_args(OnnxKind)
POSITIONS, ALLOWED, BEGINS = "positions", "allowed", "begins"
"""Further inputs: where words are predicted, in the flattened batch (N); where an answer may stand (B, L); where
it may begin (B, L)."""
FILE_LIMIT = 2**31 - 2**20
"""Bytes that a protobuf file holds, some left for the operators."""


def build(pretrained: Pretrained, *, small_tables: bool = False) -> tuple[Graph, OnnxKind]:
    """The graph of a network, and its kind.

    Args:
        small_tables: hold the token table in 8 bits, with a scale for each row; not where it also gives the logits
            of words.

    Raises:
        CheckpointError: the head is none that goes out, or the network is too large for one file.
    """
    encoder, head = pretrained.encoder, pretrained.head
    graph = Graph(small_tables=small_tables and not isinstance(head, MaskedLanguageModelHead))
    match head:
        case None:
            kind: OnnxKind = "encoder"
            _encoder(graph, encoder)
        case ReplacedTokenHead():
            kind = "discriminator"
            states = encode(graph, encoder)
            _discriminator(graph, head, states)
            _states(graph, encoder, states)
        case MaskedLanguageModelHead():
            kind = "generator"
            _words(graph, encoder, head)
        case TextHead():
            kind = "text"
            _text(graph, encoder, head)
        case TokenHead():
            kind = "token"
            _tokens(graph, encoder, head)
        case SpanHead():
            kind = "span"
            _span(graph, encoder, head)
        case ConditionalSpanHead():
            kind = "conditional-span"
            _conditional_span(graph, encoder, head)
        case _:
            raise CheckpointError(
                "a language model of XLNet's or Transformer-XL's kind does not go out as ONNX; its encoder does: "
                "--part encoder"
            )
    if graph.size > FILE_LIMIT:
        raise CheckpointError(
            f"the network has {graph.size / 2**30:.1f} GiB of weights, and an ONNX file holds 2; it cannot go out"
        )
    return graph, kind


def _states(graph: Graph, encoder: EncoderModule, states: str) -> None:
    graph.output("states", states, "batch", "length", encoder.config.hidden_size)


def _encoder(graph: Graph, encoder: EncoderModule) -> None:
    """States, and their mean over the tokens of a row, special ones with them."""
    states = encode(graph, encoder)
    _states(graph, encoder, states)
    mask_BL1 = graph.op("Cast", graph.op("Unsqueeze", MASK, graph.numbers(2)), to=graph.types.FLOAT)
    sums_BD = graph.op("ReduceSum", graph.op("Mul", states, mask_BL1), graph.numbers(1), keepdims=0)
    counts_B1 = graph.op("ReduceSum", mask_BL1, graph.numbers(1), keepdims=0)
    embeddings = graph.op("Div", sums_BD, graph.op("Max", counts_B1, graph.number(1.0)))
    graph.output("embeddings", embeddings, "batch", encoder.config.hidden_size)


def _discriminator(graph: Graph, head: ReplacedTokenHead, states: str) -> None:
    hidden = graph.activation(graph.linear(states, head.dense), head.activation)
    logits = graph.op("Squeeze", graph.linear(hidden, head.prediction), graph.numbers(-1))
    graph.output("logits", logits, "batch", "length")


def _words(graph: Graph, encoder: EncoderModule, head: MaskedLanguageModelHead) -> None:
    """Logits of all words (N, V), computed at the wanted positions alone: they are most of the work."""
    states = encode(graph, encoder)
    graph.input(POSITIONS, "positions")
    flat = graph.op("Reshape", states, graph.numbers(-1, encoder.config.hidden_size))
    hidden = graph.linear(graph.op("Gather", flat, POSITIONS), head.dense)
    hidden = graph.norm(graph.activation(hidden, head.activation), head.norm)
    # Turned at run time: the file holds the table once.
    table = graph.op("Transpose", graph.parameter(encoder.embeddings.token.weight), perm=[1, 0])
    logits = graph.op("Add", graph.op("MatMul", hidden, table), graph.parameter(head.bias))
    graph.output("logits", logits, "positions", encoder.config.vocabulary_size)
    _states(graph, encoder, states)


def _text(graph: Graph, encoder: EncoderModule, head: TextHead) -> None:
    x_BD = graph.op("Squeeze", encode(graph, encoder, first_only=True), graph.numbers(1))
    if head.dense is not None:
        x_BD = graph.op("Gelu", graph.linear(x_BD, head.dense))
    graph.output("logits", graph.linear(x_BD, head.prediction), "batch", len(head.prediction.bias))


def _read(graph: Graph, encoder: EncoderModule) -> str:
    """The states as heads of tokens read them (`TaskModel.states`)."""
    states = encode(graph, encoder)
    if encoder.config.direction != "left":
        return states
    length = graph.op("Shape", IDS, start=1, end=2)
    others = graph.op("Slice", states, graph.numbers(1), length, graph.numbers(1))
    return graph.op("Concat", summary(graph, states, left=True), others, axis=1)


def _tokens(graph: Graph, encoder: EncoderModule, head: TokenHead) -> None:
    logits = graph.linear(_read(graph, encoder), head.prediction)
    graph.output("logits", logits, "batch", "length", len(head.prediction.bias))


def _span(graph: Graph, encoder: EncoderModule, head: SpanHead) -> None:
    logits = graph.linear(_read(graph, encoder), head.prediction)
    for name, one in zip(
        ("start_logits", "end_logits"), graph.several("Split", 2, logits, axis=-1, num_outputs=2), strict=True
    ):
        graph.output(name, graph.op("Squeeze", one, graph.numbers(-1)), "batch", "length")


def _conditional_span(graph: Graph, encoder: EncoderModule, head: ConditionalSpanHead) -> None:
    """What `Answering.logits` gives: the likeliest starts, every token as the end of each, and no answer."""
    x_BLD = _read(graph, encoder)
    allowed, begins = (
        graph.op("Cast", graph.input(name, "batch", "length"), to=graph.types.BOOL) for name in (ALLOWED, BEGINS)
    )
    none = graph.number(float("-inf"))
    start_BL = graph.op("Where", allowed, _last(graph, x_BLD, head.start), none)
    scores_BL = graph.op("LogSoftmax", start_BL, axis=-1)
    length = graph.op("Shape", IDS, start=1, end=2)
    beam = graph.op("Min", length, graph.numbers(BEAM))
    found = graph.op("Where", begins, scores_BL, none)
    best_BT, starts_BT = graph.several("TopK", 2, found, beam, axis=-1)
    D = encoder.config.hidden_size
    first, second = head.end_dense.weight.split([D, D], dim=1)
    places_BT1 = graph.op("Unsqueeze", starts_BT, graph.numbers(2))
    of_starts = graph.op("GatherND", x_BLD, places_BT1, batch_dims=1)
    first_BT1A = graph.op("Unsqueeze", _product(graph, of_starts, first), graph.numbers(2))
    second_BLA = graph.op("Add", _product(graph, x_BLD, second), graph.parameter(head.end_dense.bias))
    pairs = graph.op("Gelu", graph.op("Add", first_BT1A, graph.op("Unsqueeze", second_BLA, graph.numbers(1))))
    allowed_B1L = graph.op("Unsqueeze", allowed, graph.numbers(1))
    end_BTL = graph.op("Where", allowed_B1L, _last(graph, pairs, head.end), none)
    graph.output("start_scores", best_BT, "batch", "starts")
    graph.output("starts", starts_BT, "batch", "starts", whole=True)
    graph.output("end_scores", graph.op("LogSoftmax", end_BTL, axis=-1), "batch", "starts", "length")
    if head.answerable_dense is None or head.answerable is None:
        null = graph.op("Slice", scores_BL, graph.numbers(0), graph.numbers(1), graph.numbers(1))
    else:
        weights_B1L = graph.op("Unsqueeze", graph.op("Softmax", start_BL, axis=-1), graph.numbers(1))
        both = graph.op(
            "Concat", summary(graph, x_BLD, left=False), graph.op("MatMul", weights_B1L, x_BLD), axis=-1
        )
        null = _last(graph, graph.op("Gelu", graph.linear(both, head.answerable_dense)), head.answerable)
    graph.output("null_scores", graph.op("Squeeze", null, graph.numbers(1)), "batch")


def _last(graph: Graph, x: str, layer: nn.Linear) -> str:
    """The one output of a layer, without its axis."""
    return graph.op("Squeeze", graph.linear(x, layer), graph.numbers(-1))


def _product(graph: Graph, x: str, weight: Tensor) -> str:
    return graph.op("MatMul", x, graph.parameter(weight, turned=True))
