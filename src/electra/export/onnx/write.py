"""Write ONNX folders, with weights in 32 or 8 bits. Each graph is first compared with its network."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from electra import __version__, durable
from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, require
from electra.export.onnx.check import TOLERANCE, max_difference, sample_batches, torch_network
from electra.export.onnx.graph import MASK, METADATA_FILE, MODEL_FILE, SEGMENTS, Graph
from electra.export.onnx.heads import OnnxKind, build
from electra.export.onnx.model import FORMAT, OnnxMetadata, OnnxModel, open_session
from electra.export.pretrained import Pretrained
from electra.export.tokenizer_files import tokenizer_files
from electra.json_files import json_text

Weights = Literal["float32", "int8"]


@dataclass(frozen=True)
class SavedOnnx:
    """A folder that `save_onnx` wrote.

    Attributes:
        difference: the largest difference between the outputs of the float32 graph and those of the network.
        bytes: the size of model.onnx.
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
) -> SavedOnnx:
    """Write an ONNX folder; after an error there is no folder.

    Args:
        config_json: the model's config.json, which is copied for other tools.

    Raises:
        CheckpointError: the folder exists or cannot be written, the network cannot be exported, or its graph
            computes other values.
        MissingExtraError: onnx or onnxruntime is not installed.
    """
    require("ONNX", "onnx", "onnx", "onnxruntime")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _exists(folder)
    graph, kind = build(pretrained)
    model = graph.model("electra", __version__)
    metadata = OnnxMetadata(
        kind,
        tuple(graph.inputs),
        tuple(graph.outputs),
        pretrained.max_length,
        pretrained.hidden_size,
        pretrained.stream and pretrained.task is None,  # rows of tasks always have [CLS]
        pretrained.objective,
        exported_task(pretrained),
        pretrained.trained_length,
    )
    session = open_session(model.SerializeToString())
    difference = check_graph(pretrained, OnnxModel(metadata, pretrained.tokenizer, session))
    texts = {
        **tokenizer_files(pretrained.tokenizer, pretrained.max_length, segments=SEGMENTS in metadata.inputs),
        METADATA_FILE: json_text(_metadata_fields(pretrained, metadata, graph, weights, difference)),
    }
    if config_json is not None and config_json.is_file():
        texts["config.json"] = config_json.read_text(encoding="utf-8")
    if weights == "int8":
        graph, _ = build(pretrained, int8=True)
        model = graph.model("electra", __version__)
    content = model.SerializeToString()
    _write(folder, texts, content)
    return SavedOnnx(folder, kind, difference, len(content))


def check_graph(pretrained: Pretrained, model: OnnxModel) -> float:
    """The largest difference between the outputs of a graph and its network, on batches of several sizes.

    Raises:
        CheckpointError: the difference is above `TOLERANCE`.
    """
    largest, network = 0.0, torch_network(pretrained, model.metadata.kind)
    for inputs in sample_batches(pretrained, special_tokens(pretrained.tokenizer)):
        with torch.inference_mode():
            expected = network(inputs)
        actual = model.run(model.metadata.outputs, **inputs)
        largest = max(largest, max_difference(expected, actual, inputs[MASK]))
    if not largest <= TOLERANCE:
        raise CheckpointError(
            f"the graph differs from the network by {largest:.1e}, more than {TOLERANCE:.0e}, so it is not "
            "written; please report this with the versions of torch and onnxruntime"
        )
    return largest


def exported_task(pretrained: Pretrained) -> dict[str, Any] | None:
    """The description of the task, without the settings for long texts: exported models cut them."""
    if pretrained.task is None:
        return None
    return {name: value for name, value in pretrained.task.items() if name not in ("long", "longest")}


def _metadata_fields(
    pretrained: Pretrained, metadata: OnnxMetadata, graph: Graph, weights: Weights, difference: float
) -> dict[str, Any]:
    """The fields of onnx.json."""
    special = special_tokens(pretrained.tokenizer)
    task = metadata.task or {}
    return {
        "format": FORMAT,
        "kind": metadata.kind,
        "inputs": graph.shapes(metadata.inputs),
        "outputs": graph.shapes(metadata.outputs),
        "labels": list(task.get("labels") or ()),
        "max_length": task.get("max_length", metadata.max_length),
        "trained_length": metadata.trained_length or metadata.max_length,
        "special_tokens": {
            "begin": special.separate if metadata.stream else special.classify,
            "end": special.separate,
            "pad": special.pad,
            "mask": special.mask,
            "unknown": special.unknown,
        },
        "memory": None,
        "hidden_size": metadata.hidden_size,
        "weights": weights,
        "difference_from_torch": difference,
        "objective": metadata.objective,
        "task": metadata.task,
        "electra_version": __version__,
    }


def _write(folder: Path, texts: dict[str, str], content: bytes) -> None:
    with whole_folder(folder) as partial:
        durable.write(partial / MODEL_FILE, lambda path: path.write_bytes(content))
        for name, text in texts.items():
            durable.write_text(partial / name, text)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` at the end of the block; after an error or a kill there is none.

    Raises:
        CheckpointError: `folder` is not empty, or cannot be written.
    """
    partial = durable.temporary_name(folder)
    try:
        partial.mkdir(parents=True)
        yield partial
        if folder.is_dir():
            folder.rmdir()
        partial.replace(folder)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise _exists(folder) from error
        raise CheckpointError(f"{folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def _exists(folder: Path) -> CheckpointError:
    return CheckpointError(f"{folder} exists already; give another --out, or remove it")
