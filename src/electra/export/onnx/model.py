"""ONNX folders: their metadata, and the network that onnxruntime computes.

`model.onnx` is the graph. `onnx.json` describes its inputs, outputs and special tokens, so that programs in any
language can use it. `tokenizer.json` is in the format of the `tokenizers` library. Other tools read `config.json`
and `tokenizer_config.json`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, require
from electra.export.onnx.graph import IDS, MASK, METADATA_FILE, MODEL_FILE, SEGMENTS
from electra.export.onnx.heads import KINDS, OnnxKind
from electra.export.weights import is_named_in_utf8
from electra.json_files import raise_if_damaged, read_json

FORMAT = 1
"""Version of onnx.json. Later versions of electra may write a higher one."""


@dataclass(frozen=True)
class OnnxMetadata:
    """The content of onnx.json.

    Attributes:
        kind: the kind of head.
        max_length: the longest input in tokens, special tokens included.
        hidden_size: width of the hidden states.
        stream: whether a text is read between two [SEP] instead of after [CLS], as networks with a memory are
            trained.
        objective: the objective that trained the network; None if it was fine-tuned.
        task: the description of the fine-tuning task; None without fine-tuning.
        trained_length: the longest input in training; None: `max_length`.
    """

    kind: OnnxKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    max_length: int
    hidden_size: int
    stream: bool
    objective: str | None
    task: dict[str, Any] | None
    trained_length: int | None = None

    @classmethod
    def read(cls, path: Path) -> "OnnxMetadata":
        """Read an onnx.json.

        Raises:
            CheckpointError: the file is damaged, or was written by a later version.
        """
        fields = read_json(path)
        with raise_if_damaged(path):
            if not isinstance(version := fields["format"], int) or version < 1:
                raise ValueError(f"format {version!r}")
            if version > FORMAT:
                raise CheckpointError(
                    f"{path} has format {version}, and this version of electra reads up to {FORMAT}; install a "
                    "newer electra, or export the model again"
                )
            kind = next((kind for kind in KINDS if kind == fields["kind"]), None)
            if kind is None:
                raise ValueError(f"kind {fields['kind']!r}")
            return cls(
                kind,
                tuple(map(str, fields["inputs"])),
                tuple(map(str, fields["outputs"])),
                int(fields["max_length"]),
                int(fields["hidden_size"]),
                fields["special_tokens"]["begin"] == fields["special_tokens"]["end"],
                fields.get("objective"),
                fields.get("task"),
                fields.get("trained_length"),
            )


@dataclass(frozen=True)
class OnnxModel:
    """A network that onnxruntime computes, on the CPU, and its tokenizer."""

    metadata: OnnxMetadata
    tokenizer: Tokenizer
    session: Any

    @property
    def max_length(self) -> int:
        return self.metadata.max_length

    @property
    def trained_length(self) -> int | None:
        return self.metadata.trained_length

    @property
    def objective(self) -> str | None:
        return self.metadata.objective

    @property
    def task(self) -> dict[str, Any] | None:
        return self.metadata.task

    @property
    def stream(self) -> bool:
        return self.metadata.stream

    @property
    def memory_length(self) -> int:
        """0: the memory is not exported, so each window is read independently."""
        return 0

    @property
    def hidden_size(self) -> int:
        return self.metadata.hidden_size

    def run(self, names: tuple[str, ...], **inputs: Tensor) -> dict[str, Tensor]:
        """Compute some of the outputs; return them by name.

        Args:
            names: names of outputs.
            inputs: inputs by name. Inputs that the graph does not have are ignored. Default of the mask: no
                padding; of the segments: all 0.
        """
        ids = inputs[IDS].numpy()
        arrays = {MASK: np.ones_like(ids), SEGMENTS: np.zeros_like(ids)} | {
            name: tensor.numpy().astype(np.int64) for name, tensor in inputs.items()
        }
        values = self.session.run(names, {name: arrays[name] for name in self.metadata.inputs})
        return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


def load_onnx(folder: Path) -> OnnxModel:
    """Load an ONNX folder.

    Raises:
        CheckpointError: onnxruntime is missing, or a file is damaged, missing, or of a later version.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    require("ONNX", "onnx", "onnxruntime")
    metadata = OnnxMetadata.read(folder / METADATA_FILE)
    session = open_session(folder / MODEL_FILE)
    for what, names, values in (
        ("inputs", metadata.inputs, session.get_inputs()), ("outputs", metadata.outputs, session.get_outputs())
    ):  # fmt: skip
        graph_names = [value.name for value in values]
        if {*names} != {*graph_names}:
            raise CheckpointError(
                f"{folder}: {METADATA_FILE} names the {what} {', '.join(names)}, {MODEL_FILE} has "
                f"{', '.join(graph_names)}; the two files belong to different models"
            )
    tokenizer = load_tokenizer(folder)
    tokenizers.special_tokens(tokenizer, folder)
    return OnnxModel(metadata, tokenizer, session)


def open_session(model: Path | bytes, *, threads: int | None = None) -> Any:
    """Open a graph in onnxruntime on the CPU.

    Args:
        model: the file, or its content.
        threads: the number of threads; None: PyTorch's. onnxruntime's default pins each thread to a core, which
            containers often forbid, and ignores PyTorch's setting.

    Raises:
        CheckpointError: the file is missing, or onnxruntime cannot run the graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads() if threads is None else threads
    options.log_severity_level = 3
    if isinstance(model, Path) and not model.is_file():
        raise CheckpointError(f"{model} is missing; copy the folder again, or export the model again")
    if isinstance(model, Path) and not is_named_in_utf8(model):
        model = model.read_bytes()
    source = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no other common class
        name = "the graph" if isinstance(model, bytes) else model
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{name} is damaged, or onnxruntime is too old for it: {reason}") from error
