"""ONNX folders out: the graph, compared with its network, with its weights in 32 bits or in 8."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from electra import __version__, durable
from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, require
from electra.export.onnx.check import TOLERANCE, difference, reference, samples
from electra.export.onnx.graph import FACTS, MASK, MODEL, SEGMENTS
from electra.export.onnx.heads import OnnxKind, build
from electra.export.onnx.model import FORMAT, OnnxFacts, OnnxModel, open_session
from electra.export.pretrained import Pretrained
from electra.export.tokenizer_files import tokenizer_files
from electra.json_files import json_text

Weights = Literal["float32", "int8"]


@dataclass(frozen=True)
class OnnxWritten:
    """A folder that was written.

    Attributes:
        difference: between the outputs of the graph in float32 and those of the network.
        bytes: of model.onnx.
    """

    folder: Path
    kind: OnnxKind
    difference: float
    bytes: int


def save_onnx(
    pretrained: Pretrained,
    folder: Path,
    *,
    weights: Weights = "float32",
    config_json: Path | None = None,
) -> OnnxWritten:
    """Write an ONNX folder, whole or not at all.

    Args:
        config_json: of the model, which other tools look for.

    Raises:
        CheckpointError: a package is missing, the folder is there already, the network is none that goes out, its
            graph computes something else, or the disk refuses.
    """
    require("ONNX", "onnx", "onnx", "onnxruntime")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} is there already; give another --out, or remove it")
    graph, kind = build(pretrained)
    model = graph.model("electra", __version__)
    facts = OnnxFacts(
        kind,
        tuple(graph.inputs),
        tuple(graph.outputs),
        pretrained.max_length,
        pretrained.hidden_size,
        pretrained.stream and pretrained.task is None,  # rows of tasks have a [CLS] always
        pretrained.objective,
        outgoing_task(pretrained),
    )
    found = checked(pretrained, OnnxModel(facts, pretrained.tokenizer, open_session(model.SerializeToString())))
    texts = {
        **tokenizer_files(pretrained.tokenizer, pretrained.max_length, segments=SEGMENTS in facts.inputs),
        FACTS: json_text(_described(pretrained, facts, graph, weights, found)),
    }
    if config_json is not None and config_json.is_file():
        texts["config.json"] = config_json.read_text(encoding="utf-8")
    if weights == "int8":
        graph, _ = build(pretrained, small_tables=True)
        content = quantized(graph.model("electra", __version__))
    else:
        content = model.SerializeToString()
    _write(folder, texts, content)
    return OnnxWritten(folder, kind, found, len(content))


def checked(pretrained: Pretrained, model: OnnxModel) -> float:
    """How far what a graph gives is from what its network gives, over batches of several sizes and lengths.

    Raises:
        CheckpointError: further than `TOLERANCE`.
    """
    largest, network = 0.0, reference(pretrained, model.facts.kind)
    for inputs in samples(pretrained, special_tokens(pretrained.tokenizer)):
        with torch.inference_mode():
            wanted = network(inputs)
        found = model.run(model.facts.outputs, **inputs)
        largest = max(largest, difference(wanted, found, inputs[MASK]))
    if not largest <= TOLERANCE:
        raise CheckpointError(
            f"the graph differs from the network by {largest:.1e}, and {TOLERANCE:.0e} is the most: it is not "
            "written; please report this with the versions of torch and onnxruntime"
        )
    return largest


def quantized(model: Any) -> bytes:
    """The model with the weights of its products in 8 bits, each output of a layer with a scale of its own.

    Activations are brought to 8 bits as they come (dynamic quantisation), with one scale for all of a product's
    input. Of the weights' 8 bits 7 are used: without special instructions (VNNI) a processor adds pairs of
    products in 16 bits, which 8 overflow. Products without weights stay as they are, those inside of attention and
    that with the token table.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    tables = {table.name for table in model.graph.initializer}
    others = [node.name for node in model.graph.node if node.op_type == "MatMul" and node.input[1] not in tables]
    with tempfile.TemporaryDirectory() as name, _quiet():
        path = Path(name) / MODEL
        quantize_dynamic(
            model, path, op_types_to_quantize=["MatMul"], nodes_to_exclude=others, per_channel=True,
            reduce_range=True, weight_type=QuantType.QInt8,
        )  # fmt: skip
        return path.read_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime advises on the root logger to optimise the graph first, which gives nothing here. Where that has
    no handler it gets one on the way, which would show every message of ours twice."""
    root = logging.getLogger()
    before, handlers = root.disabled, list(root.handlers)
    root.disabled = True
    try:
        yield
    finally:
        root.disabled, root.handlers[:] = before, handlers


def outgoing_task(pretrained: Pretrained) -> dict[str, Any] | None:
    """A task's facts, without how texts are read that are longer than a row: what goes out cuts them."""
    if pretrained.task is None:
        return None
    return {name: value for name, value in pretrained.task.items() if name not in ("long", "longest")}


def _described(
    pretrained: Pretrained, facts: OnnxFacts, graph: Any, weights: Weights, difference: float
) -> dict[str, Any]:
    """What onnx.json says."""
    special = special_tokens(pretrained.tokenizer)
    task = facts.task or {}
    return {
        "format": FORMAT,
        "kind": facts.kind,
        "inputs": graph.shapes(facts.inputs),
        "outputs": graph.shapes(facts.outputs),
        "labels": list(task.get("labels") or ()),
        "max_length": task.get("max_length", facts.max_length),
        "special_tokens": {
            "begin": special.separate if facts.stream else special.classify,
            "end": special.separate,
            "pad": special.pad,
            "mask": special.mask,
            "unknown": special.unknown,
        },
        "memory": None,
        "hidden_size": facts.hidden_size,
        "weights": weights,
        "difference_from_torch": difference,
        "objective": facts.objective,
        "task": facts.task,
        "electra_version": __version__,
    }


def _write(folder: Path, texts: dict[str, str], content: bytes) -> None:
    """All files into a folder beside, which then takes the name."""
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        durable.write(partial / MODEL, lambda path: path.write_bytes(content))
        for name, text in texts.items():
            durable.write_text(partial / name, text)
        if folder.is_dir():  # it is empty
            folder.rmdir()
        partial.replace(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"{folder} cannot be written: {error}") from error
