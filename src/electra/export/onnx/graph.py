"""Networks as ONNX graphs, operator by operator, of the standard's own operators alone (opset 20).

PyTorch's exporter gives the same numbers, but needs 10 to 40 seconds a network and writes four times as many
operators, among them a test for NaN in each attention and axes that it computes from one another; from opset 23 on
it writes `Attention`, which onnxruntime refuses for a mask of padding. The networks here are few, so what they
compute is written down once more, and every graph is compared with its network before a file is made of it
(`onnx_check`).

Shapes: B batch, L length, D hidden size, E embedding size, H heads, K head size; C classes; n places of words.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electra.modeling.encoders.base import ACTIVATIONS

OPSET, IR_VERSION = 20, 9
"""20 is the first with Gelu; onnxruntime knows both from 1.17 on."""

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
"""The inputs of every graph, int64 (B, L); segments only where the network tells two apart."""

FACTS, MODEL = "onnx.json", "model.onnx"
"""What such a folder holds beside the tokenizer."""


def is_onnx(folder: Path) -> bool:
    """Whether a folder is for onnxruntime."""
    return (folder / FACTS).is_file()


class Graph:
    """Operators and tables as they are added; a value is known by its name.

    Args:
        small_tables: tables of embeddings are held in 8 bits, with a scale for each row.
    """

    def __init__(self, *, small_tables: bool = False) -> None:
        from onnx import TensorProto, helper

        self._helper, self.types = helper, TensorProto
        self.small_tables = small_tables
        self.nodes: list[Any] = []
        self._tables: dict[Any, tuple[str, NDArray[Any]]] = {}
        self._parameters: list[Tensor] = []  # whose places in memory are keys, so they must not be freed
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One operator with one output."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """One operator with so many outputs."""
        number = len(self.nodes)
        outputs = [f"{kind}_{number}" if count == 1 else f"{kind}_{number}_{i}" for i in range(count)]
        self.nodes.append(self._helper.make_node(kind, inputs, outputs, name=f"{kind}_{number}", **attributes))
        return outputs

    def numbers(self, *values: int) -> str:
        """A short list of whole numbers, such as axes."""
        return self._table(("numbers", values), np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A float32."""
        return self._table(("number", value), np.array(value, np.float32))

    def parameter(self, tensor: Tensor, *, turned: bool = False) -> str:
        """A network's weights; what several blocks share is held once.

        Args:
            turned: the transpose, which is what a product takes.
        """
        tensor = tensor.detach()
        self._parameters.append(tensor)
        key = ("parameter", tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), turned)
        if key in self._tables:
            return self._tables[key][0]
        values = (tensor if tensor.dtype == torch.int8 else tensor.float()).cpu().numpy()
        return self._table(key, np.ascontiguousarray(values.T if turned else values))

    def _table(self, key: Any, values: NDArray[Any]) -> str:
        if key not in self._tables:
            self._tables[key] = f"table_{len(self._tables)}", values
        return self._tables[key][0]

    def linear(self, x: str, layer: nn.Linear) -> str:
        """A product with the weights, and the bias where there is one."""
        y = self.op("MatMul", x, self.parameter(layer.weight, turned=True))
        return y if layer.bias is None else self.op("Add", y, self.parameter(layer.bias))

    def rows(self, table: Tensor, places: str) -> str:
        """Rows of a table of embeddings."""
        if not self.small_tables:
            return self.op("Gather", self.parameter(table), places)
        scales_V1 = table.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        whole = self.parameter(torch.round(table.detach() / scales_V1).to(torch.int8))
        values = self.op("Cast", self.op("Gather", whole, places), to=self.types.FLOAT)
        return self.op("Mul", values, self.op("Gather", self.parameter(scales_V1), places))

    def norm(self, x: str, layer: nn.LayerNorm) -> str:
        return self.op(
            "LayerNormalization", x, self.parameter(layer.weight), self.parameter(layer.bias), epsilon=layer.eps
        )

    def activation(self, x: str, function: Callable[[Tensor], Tensor]) -> str:
        """One of `modeling.encoder.ACTIVATIONS`."""
        match next(name for name, known in ACTIVATIONS.items() if known is function):
            case "gelu":
                return self.op("Gelu", x)
            case "gelu_tanh":
                return self.op("Gelu", x, approximate="tanh")
            case "relu":
                return self.op("Relu", x)
            case "silu":
                return self.op("Mul", x, self.op("Sigmoid", x))

    def heads(self, x: str, heads: int, size: int, *, keys: bool = False) -> str:
        """(B, L, D) as (B, H, L, K), or for keys as (B, H, K, L)."""
        parted = self.op("Reshape", x, self.numbers(0, 0, heads, size))
        return self.op("Transpose", parted, perm=[0, 2, 3, 1] if keys else [0, 2, 1, 3])

    def joined(self, x: str, width: int) -> str:
        """(B, H, L, K) as (B, L, D)."""
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), self.numbers(0, 0, width))

    def input(self, name: str, *axes: str) -> str:
        """An input of whole numbers."""
        if name not in self.inputs:
            self._inputs.append(self._helper.make_tensor_value_info(name, self.types.INT64, axes))
        return name

    def output(self, name: str, value: str, *axes: str | int, whole: bool = False) -> None:
        """Give a value a name to the outside.

        Args:
            whole: it holds whole numbers, not float32.
        """
        self.nodes.append(self._helper.make_node("Identity", [value], [name], name=name))
        kind = self.types.INT64 if whole else self.types.FLOAT
        self._outputs.append(self._helper.make_tensor_value_info(name, kind, axes))

    @property
    def inputs(self) -> list[str]:
        return [value.name for value in self._inputs]

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self._outputs]

    def shapes(self, names: Sequence[str]) -> dict[str, list[str | int]]:
        """The axes of inputs or outputs: their sizes, or the names of those that are open."""
        found = {
            value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
            for value in (*self._inputs, *self._outputs)
        }
        return {name: found[name] for name in names}

    @property
    def size(self) -> int:
        """Bytes of the tables."""
        return sum(values.nbytes for _, values in self._tables.values())

    def model(self, producer: str, version: str) -> Any:
        """The graph as a model of the `onnx` package, checked by it."""
        import onnx
        from onnx import numpy_helper

        tables = [numpy_helper.from_array(values, name) for name, values in self._tables.values()]
        graph = self._helper.make_graph(self.nodes, producer, self._inputs, self._outputs, tables)
        opsets = [self._helper.make_opsetid("", OPSET)]
        model = self._helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        model.producer_name, model.producer_version = producer, version
        onnx.checker.check_model(model, full_check=False)
        return model
