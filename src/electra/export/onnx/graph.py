"""Networks as ONNX graphs, built from the standard operators of opset 20.

PyTorch's exporter gives the same numbers, but needs 10 to 40 seconds for a network and writes four times as many
operators: each attention tests for NaN, and axes are computed from one another. From opset 23 on it writes
`Attention`, which onnxruntime refuses if there is a mask for padding. electra has few kinds of networks, so their
computation is written here a second time. Each graph is compared with its network before it is saved (`check`).

Shapes: B batch, L length, V vocabulary, D hidden size, H heads, K head size, E outputs of a layer.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electra.modeling.encoders.base import ACTIVATIONS

OPSET, IR_VERSION = 20, 9
"""Opset 20 is the first with Gelu. onnxruntime supports both versions from 1.17 on."""

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
"""The inputs of every graph, int64 (B, L). Networks with one segment have no SEGMENTS."""

WEIGHT_STEPS, ACTIVATION_STEPS = 63, 127
"""Steps of 8-bit values on each side of zero. Weights use 7 bits: processors without VNNI instructions add pairs
of products in 16 bits, which would overflow."""

METADATA_FILE, MODEL_FILE = "onnx.json", "model.onnx"
"""The files of an ONNX folder next to those of the tokenizer."""


def is_onnx(folder: Path) -> bool:
    """Whether a folder is an ONNX folder."""
    return (folder / METADATA_FILE).is_file()


class Graph:
    """An ONNX graph to which operators and initializers are added. A value is known by its name.

    Args:
        int8_layers: whether linear layers compute in 8 bits; see `product`.
        int8_embeddings: whether embedding tables are stored in 8 bits, with a scale for each row.
    """

    def __init__(self, *, int8_layers: bool = False, int8_embeddings: bool = False) -> None:
        from onnx import TensorProto, helper

        self._helper, self.types = helper, TensorProto
        self.int8_layers, self.int8_embeddings = int8_layers, int8_embeddings
        self.nodes: list[Any] = []
        self._numbers = itertools.count()
        self._initializers: dict[Any, tuple[str, NDArray[Any]]] = {}
        self._parameters: list[Tensor] = []  # kept alive, because their memory addresses are keys
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output; return the name of the output."""
        return self.multi_output_op(kind, 1, *inputs, **attributes)[0]

    def multi_output_op(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operator with `count` outputs; return their names."""
        number = next(self._numbers)
        outputs = [f"{kind}_{number}" if count == 1 else f"{kind}_{number}_{i}" for i in range(count)]
        self.nodes.append(self._helper.make_node(kind, inputs, outputs, name=f"{kind}_{number}", **attributes))
        return outputs

    def for_each(self, compute: Callable[[str], str], x_Nx: str) -> str:
        """Compute a float32 value for each element of the first axis, one after another; return them stacked.

        Only one of the intermediate values is in memory at a time.
        """
        number = next(self._numbers)
        nodes, self.nodes = self.nodes, []
        element = f"Element_{number}"
        result = compute(element)
        given, returned = (
            self._helper.make_tensor_value_info(name, self.types.FLOAT, None) for name in (element, result)
        )
        body = self._helper.make_graph(self.nodes, f"Body_{number}", [given], [returned])
        self.nodes = nodes
        return self.op("Scan", x_Nx, body=body, num_scan_inputs=1)

    def integers(self, *values: int) -> str:
        """A constant int64 vector, such as axes."""
        return self._initializer(("integers", values), np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        """A constant float32 scalar."""
        return self._initializer(("scalar", value), np.array(value, np.float32))

    def parameter(self, tensor: Tensor, *, transpose: bool = False) -> str:
        """A parameter of the network. A parameter that several blocks share is stored once.

        Args:
            transpose: whether to store the transpose, as MatMul expects for the weight of a linear layer.
        """
        key = self._key("parameter", tensor, transpose)
        if key in self._initializers:
            return self._initializers[key][0]
        tensor = tensor.detach()
        values = (tensor if tensor.dtype == torch.int8 else tensor.float()).cpu().numpy()
        return self._initializer(key, np.ascontiguousarray(values.T if transpose else values))

    def _key(self, kind: str, tensor: Tensor, *others: Any) -> Any:
        """The key of an initializer that is made from a parameter."""
        self._parameters.append(tensor)
        return (kind, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), *others)

    def _initializer(self, key: Any, values: NDArray[Any]) -> str:
        if key not in self._initializers:
            self._initializers[key] = f"table_{len(self._initializers)}", values
        return self._initializers[key][0]

    def linear(self, x: str, layer: nn.Linear) -> str:
        """A linear layer, with or without bias."""
        return self.product(x, layer.weight, layer.bias)

    def product(self, x: str, weight_ED: Tensor, bias_E: Tensor | None = None) -> str:
        """A value (..., D) times the transpose of a weight, plus the bias.

        In 8 bits, a weight has a scale for each output. The value is quantized at run time with a scale for each
        vector of D: with one for the whole value, as onnxruntime's dynamic quantization has it, the result of a
        text would depend on the other texts of its batch.
        """
        if not self.int8_layers:
            y = self.op("MatMul", x, self.parameter(weight_ED, transpose=True))
            return y if bias_E is None else self.op("Add", y, self.parameter(bias_E))
        largest = self.op("ReduceMax", self.op("Abs", x), self.integers(-1), keepdims=1)
        largest = self.op("Max", largest, self.scalar(1e-12))
        steps = self.op("Mul", x, self.op("Div", self.scalar(ACTIVATION_STEPS), largest))
        # Cast cuts off, so that half a step more rounds. Unsigned values with an offset are faster than signed.
        offset = ACTIVATION_STEPS + 1
        unsigned = self.op("Cast", self.op("Add", steps, self.scalar(offset + 0.5)), to=self.types.UINT8)
        zero = self._initializer(("offset",), np.array(offset, np.uint8))
        weight, scales_E = self._int8_weight(weight_ED)
        sums = self.op("Cast", self.op("MatMulInteger", unsigned, weight, zero), to=self.types.FLOAT)
        scales = self.op("Mul", self.op("Mul", largest, self.scalar(1 / ACTIVATION_STEPS)), scales_E)
        y = self.op("Mul", sums, scales)
        # onnxruntime (1.32) would fuse an Add, but then multiplies the bias by the scales as well.
        return y if bias_E is None else self.op("Sub", y, self.parameter(-bias_E))

    def _int8_weight(self, weight_ED: Tensor) -> tuple[str, str]:
        """A weight in 8 bits, transposed, and the scale of each output."""
        values_ED = weight_ED.detach().float().cpu()
        scales_E = values_ED.abs().amax(1).clamp(min=1e-12) / WEIGHT_STEPS
        int8_ED = torch.round(values_ED / scales_E[:, None]).to(torch.int8)
        weight = self._initializer(self._key("int8", weight_ED), np.ascontiguousarray(int8_ED.numpy().T))
        return weight, self._initializer(self._key("scales", weight_ED), scales_E.numpy())

    def embedding(self, weight: Tensor, indices: str) -> str:
        """Rows of an embedding table."""
        if not self.int8_embeddings:
            return self.op("Gather", self.parameter(weight), indices)
        scales_V1 = weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        int8_weight = self.parameter(torch.round(weight.detach() / scales_V1).to(torch.int8))
        values = self.op("Cast", self.op("Gather", int8_weight, indices), to=self.types.FLOAT)
        return self.op("Mul", values, self.op("Gather", self.parameter(scales_V1), indices))

    def norm(self, x: str, layer: nn.Module) -> str:
        """A LayerNorm, with or without bias, or nothing in its place."""
        if isinstance(layer, nn.Identity):
            return x
        assert isinstance(layer, nn.LayerNorm)
        parameters = [self.parameter(layer.weight), *([] if layer.bias is None else [self.parameter(layer.bias)])]
        return self.op("LayerNormalization", x, *parameters, epsilon=layer.eps)

    def activation(self, x: str, function: Callable[[Tensor], Tensor]) -> str:
        """One of `modeling.encoders.base.ACTIVATIONS`."""
        match next(name for name, activation in ACTIVATIONS.items() if activation is function):
            case "gelu":
                return self.op("Gelu", x)
            case "gelu_tanh":
                return self.op("Gelu", x, approximate="tanh")
            case "relu":
                return self.op("Relu", x)
            case "silu":
                return self.op("Mul", x, self.op("Sigmoid", x))

    def softmax(self, x: str) -> str:
        """The softmax over the last axis.

        In 8 bits, its sum is computed in float64. The order of onnxruntime's sum depends on the padding, and so on
        the other texts of the batch. A difference in the last bit is enough for the next layer to round some
        value to another step.
        """
        if not self.int8_layers:
            return self.op("Softmax", x, axis=-1)
        axis = self.integers(-1)
        powers = self.op("Exp", self.op("Sub", x, self.op("ReduceMax", x, axis, keepdims=1)))
        sums = self.op("ReduceSum", self.op("Cast", powers, to=self.types.DOUBLE), axis, keepdims=1)
        return self.op("Div", powers, self.op("Cast", sums, to=self.types.FLOAT))

    def split_heads(self, x: str, heads: int, size: int, *, keys: bool = False) -> str:
        """Reshape (B, L, D) to (B, H, L, K), or for keys to (B, H, K, L)."""
        x_BLHK = self.op("Reshape", x, self.integers(0, 0, heads, size))
        return self.op("Transpose", x_BLHK, perm=[0, 2, 3, 1] if keys else [0, 2, 1, 3])

    def merge_heads(self, x: str, width: int) -> str:
        """Reshape (B, H, L, K) to (B, L, D)."""
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), self.integers(0, 0, width))

    def input(self, name: str, *axes: str) -> str:
        """Declare an int64 input, unless there is one of this name."""
        if name not in self.inputs:
            self._inputs.append(self._helper.make_tensor_value_info(name, self.types.INT64, axes))
        return name

    def output(self, name: str, value: str, *axes: str | int, integer: bool = False) -> None:
        """Declare a value as an output.

        Args:
            integer: whether the value is int64 instead of float32.
        """
        self.nodes.append(self._helper.make_node("Identity", [value], [name], name=name))
        kind = self.types.INT64 if integer else self.types.FLOAT
        self._outputs.append(self._helper.make_tensor_value_info(name, kind, axes))

    @property
    def inputs(self) -> list[str]:
        return [value.name for value in self._inputs]

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self._outputs]

    def shapes(self, names: Sequence[str]) -> dict[str, list[str | int]]:
        """The axes of inputs or outputs: sizes, or names for dynamic axes."""
        shapes = {
            value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
            for value in (*self._inputs, *self._outputs)
        }
        return {name: shapes[name] for name in names}

    @property
    def num_bytes(self) -> int:
        """Size of the initializers in bytes."""
        return sum(values.nbytes for _, values in self._initializers.values())

    def model(self, producer: str, version: str) -> Any:
        """The graph as a model of the `onnx` package, after its checks."""
        import onnx
        from onnx import numpy_helper

        initializers = [numpy_helper.from_array(values, name) for name, values in self._initializers.values()]
        graph = self._helper.make_graph(self.nodes, producer, self._inputs, self._outputs, initializers)
        opsets = [self._helper.make_opsetid("", OPSET)]
        model = self._helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        model.producer_name, model.producer_version = producer, version
        onnx.checker.check_model(model, full_check=False)
        return model
