"""A network as an ONNX graph: the encoder with its head.

Shapes: B batch, L length, D hidden size, V vocabulary, N masked positions in the flattened batch, T starts of
answers, A width of the hidden layer for the ends of answers.
"""

from typing import Literal, get_args

from torch import nn

from electra.errors import CheckpointError
from electra.export.onnx.blocks import summary
from electra.export.onnx.encoders import encode
from electra.export.onnx.graph import IDS, MASK, Graph
from electra.export.pretrained import Pretrained
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.task_heads import BEAM, ConditionalSpanHead, PredictionHead, SpanHead, TextHead, TokenHead

OnnxKind = Literal["discriminator", "generator", "encoder", "text", "token", "span", "conditional-span"]
KINDS: tuple[OnnxKind, ...] = get_args(OnnxKind)
POSITIONS, ALLOWED, BEGINS = "positions", "allowed", "begins"
"""Further inputs: masked positions in the flattened batch (N); 1 where an answer may be (B, L); 1 where it may
begin (B, L)."""
FILE_LIMIT = 2**31 - 2**20
"""Bytes of weights that fit into a protobuf file, which has at most 2 GiB, with space for the operators."""


def build(pretrained: Pretrained, *, int8: bool = False) -> tuple[Graph, OnnxKind]:
    """The graph of a network, and its kind.

    Args:
        int8: compute linear layers in 8 bits, and store the token table in 8 bits, with a scale for each row. The
            table of a masked language model stays in 32 bits, because it also computes the logits.

    Raises:
        CheckpointError: there is no ONNX graph for this encoder or head, or the network is too large for one file.
    """
    encoder, head = pretrained.encoder, pretrained.head
    graph = Graph(int8_layers=int8, int8_embeddings=int8 and not isinstance(head, MaskedLanguageModelHead))
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
            _masked_language_model(graph, encoder, head)
        case TextHead():
            kind = "text"
            _text(graph, encoder, head)
        case TokenHead():
            kind = "token"
            _token(graph, encoder, head)
        case SpanHead():
            kind = "span"
            _span(graph, encoder, head)
        case ConditionalSpanHead():
            kind = "conditional-span"
            _conditional_span(graph, encoder, head)
        case _:
            raise CheckpointError(
                "language models such as XLNet and Transformer-XL cannot be exported as ONNX, but their encoders "
                "can: --part encoder"
            )
    if graph.num_bytes > FILE_LIMIT:
        raise CheckpointError(
            f"the network has {graph.num_bytes / 2**30:.1f} GiB of weights, but an ONNX file holds at most "
            "2 GiB; it cannot be exported"
        )
    return graph, kind


def _states(graph: Graph, encoder: EncoderModule, states: str) -> None:
    graph.output("states", states, "batch", "length", encoder.config.hidden_size)


def _encoder(graph: Graph, encoder: EncoderModule) -> None:
    """Hidden states, and their mean over the tokens of each row, special tokens included."""
    states = encode(graph, encoder)
    _states(graph, encoder, states)
    mask_BL1 = graph.op("Cast", graph.op("Unsqueeze", MASK, graph.integers(2)), to=graph.types.FLOAT)
    sums_BD = graph.op("ReduceSum", graph.op("Mul", states, mask_BL1), graph.integers(1), keepdims=0)
    counts_B1 = graph.op("ReduceSum", mask_BL1, graph.integers(1), keepdims=0)
    embeddings = graph.op("Div", sums_BD, graph.op("Max", counts_B1, graph.scalar(1.0)))
    graph.output("embeddings", embeddings, "batch", encoder.config.hidden_size)


def _discriminator(graph: Graph, head: ReplacedTokenHead, states: str) -> None:
    hidden = states
    if head.dense is not None:
        hidden = graph.norm(graph.activation(graph.linear(states, head.dense), head.activation), head.norm)
    logits = graph.op("Squeeze", graph.linear(hidden, head.prediction), graph.integers(-1))
    graph.output("logits", logits, "batch", "length")


def _masked_language_model(graph: Graph, encoder: EncoderModule, head: MaskedLanguageModelHead) -> None:
    """Logits over the vocabulary (N, V), only at the masked positions: they are most of the work."""
    states = encode(graph, encoder)
    graph.input(POSITIONS, "positions")
    flat = graph.op("Reshape", states, graph.integers(-1, encoder.config.hidden_size))
    hidden = graph.linear(graph.op("Gather", flat, POSITIONS), head.dense)
    hidden = graph.norm(graph.activation(hidden, head.activation), head.norm)
    if head.projection is not None:
        hidden = graph.linear(hidden, head.projection)
    # Transposed at run time, so that the file has the table only once.
    table = graph.op("Transpose", graph.parameter(encoder.embeddings.token.weight), perm=[1, 0])
    logits = graph.op("Add", graph.op("MatMul", hidden, table), graph.parameter(head.bias))
    graph.output("logits", logits, "positions", encoder.config.vocabulary_size)
    _states(graph, encoder, states)


def _text(graph: Graph, encoder: EncoderModule, head: TextHead) -> None:
    x_B1D = _hidden(graph, encode(graph, encoder, summary_only=True), head.hidden)
    x_BD = graph.op("Squeeze", x_B1D, graph.integers(1))
    if head.dense is not None:
        x_BD = graph.op("Gelu", graph.linear(x_BD, head.dense))
    graph.output("logits", graph.linear(x_BD, head.prediction), "batch", len(head.prediction.bias))


def _hidden(graph: Graph, x: str, hidden: nn.Module) -> str:
    """The first part of a head of a task, which some encoders have."""
    if not isinstance(hidden, PredictionHead):
        return x
    return graph.norm(graph.op("Gelu", graph.linear(x, hidden.dense)), hidden.norm)


def _token_states(graph: Graph, encoder: EncoderModule) -> str:
    """The hidden states as heads for tokens read them (`TaskModel.states`)."""
    states = encode(graph, encoder)
    if encoder.config.direction != "left":
        return states
    length = graph.op("Shape", IDS, start=1, end=2)
    rest = graph.op("Slice", states, graph.integers(1), length, graph.integers(1))
    return graph.op("Concat", summary(graph, states, left=True), rest, axis=1)


def _token(graph: Graph, encoder: EncoderModule, head: TokenHead) -> None:
    logits = graph.linear(_hidden(graph, _token_states(graph, encoder), head.hidden), head.prediction)
    graph.output("logits", logits, "batch", "length", len(head.prediction.bias))


def _span(graph: Graph, encoder: EncoderModule, head: SpanHead) -> None:
    logits = graph.linear(_hidden(graph, _token_states(graph, encoder), head.hidden), head.prediction)
    start_and_end = graph.multi_output_op("Split", 2, logits, axis=-1, num_outputs=2)
    for name, logits_BL1 in zip(("start_logits", "end_logits"), start_and_end, strict=True):
        graph.output(name, graph.op("Squeeze", logits_BL1, graph.integers(-1)), "batch", "length")


def _conditional_span(graph: Graph, encoder: EncoderModule, head: ConditionalSpanHead) -> None:
    """The outputs of `ConditionalSpanHead`: scores of the likeliest starts, of all ends for each start, and of no
    answer."""
    x_BLD = _token_states(graph, encoder)
    allowed, begins = (
        graph.op("Cast", graph.input(name, "batch", "length"), to=graph.types.BOOL) for name in (ALLOWED, BEGINS)
    )
    minus_infinity = graph.scalar(float("-inf"))
    start_BL = graph.op("Where", allowed, _scalar_linear(graph, x_BLD, head.start), minus_infinity)
    scores_BL = graph.op("LogSoftmax", start_BL, axis=-1)
    length = graph.op("Shape", IDS, start=1, end=2)
    beam = graph.op("Min", length, graph.integers(BEAM))
    begin_scores_BL = graph.op("Where", begins, scores_BL, minus_infinity)
    best_BT, starts_BT = graph.multi_output_op("TopK", 2, begin_scores_BL, beam, axis=-1)
    D = encoder.config.hidden_size
    start_weight_AD, end_weight_AD = head.end_dense.weight.split([D, D], dim=1)
    positions_BT1 = graph.op("Unsqueeze", starts_BT, graph.integers(2))
    start_states_BTD = graph.op("GatherND", x_BLD, positions_BT1, batch_dims=1)
    from_start_BT1A = graph.op("Unsqueeze", graph.product(start_states_BTD, start_weight_AD), graph.integers(2))
    from_end_BLA = graph.product(x_BLD, end_weight_AD, head.end_dense.bias)
    from_end_B1LA = graph.op("Unsqueeze", from_end_BLA, graph.integers(1))
    hidden_BTLA = graph.op("Gelu", graph.op("Add", from_start_BT1A, from_end_B1LA))
    allowed_B1L = graph.op("Unsqueeze", allowed, graph.integers(1))
    end_BTL = graph.op("Where", allowed_B1L, _scalar_linear(graph, hidden_BTLA, head.end), minus_infinity)
    graph.output("start_scores", best_BT, "batch", "starts")
    graph.output("starts", starts_BT, "batch", "starts", integer=True)
    graph.output("end_scores", graph.op("LogSoftmax", end_BTL, axis=-1), "batch", "starts", "length")
    if head.answerable_dense is None or head.answerable is None:
        null_score = graph.op("Slice", scores_BL, graph.integers(0), graph.integers(1), graph.integers(1))
    else:
        weights_B1L = graph.op("Unsqueeze", graph.softmax(start_BL), graph.integers(1))
        cls_B1D, weighted_B1D = summary(graph, x_BLD, left=False), graph.op("MatMul", weights_B1L, x_BLD)
        features = graph.op("Concat", cls_B1D, weighted_B1D, axis=-1)
        hidden = graph.op("Gelu", graph.linear(features, head.answerable_dense))
        null_score = _scalar_linear(graph, hidden, head.answerable)
    graph.output("null_scores", graph.op("Squeeze", null_score, graph.integers(1)), "batch")


def _scalar_linear(graph: Graph, x: str, layer: nn.Linear) -> str:
    """A linear layer with one output, whose axis is removed."""
    return graph.op("Squeeze", graph.linear(x, layer), graph.integers(-1))
