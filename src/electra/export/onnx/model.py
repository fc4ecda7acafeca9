"""A folder that onnxruntime runs: what it holds, and the network in it behind the door of one of PyTorch's.

`model.onnx` is the graph; `onnx.json` says what it is and what goes in and out, so that a program in any language
can use it; `tokenizer.json` is that of the `tokenizers` library; `config.json` and `tokenizer_config.json` are
there for other tools.

Shapes: B batch, L length, D hidden size, N positions, V vocabulary.
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
from electra.export.onnx.graph import FACTS, IDS, MASK, MODEL, SEGMENTS
from electra.export.onnx.heads import KINDS, OnnxKind
from electra.json_files import raise_if_damaged, read_json

FORMAT = 1
"""Of onnx.json; one that is higher was written by a later version."""


@dataclass(frozen=True)
class OnnxFacts:
    """What onnx.json says.

    Attributes:
        kind: what the head is for.
        max_length: the longest input, special tokens included.
        hidden_size: of the states.
        stream: a text stands between two [SEP]s, as in the training of networks with a memory, not behind [CLS].
        objective: what a network was trained by that was not fine-tuned.
        task: what a fine-tuned one knows of its task.
    """

    kind: OnnxKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    max_length: int
    hidden_size: int
    stream: bool
    objective: str | None
    task: dict[str, Any] | None

    @classmethod
    def read(cls, path: Path) -> "OnnxFacts":
        """
        Raises:
            CheckpointError: the file is garbled, or of a later version.
        """
        facts = read_json(path)
        with raise_if_damaged(path):
            if not isinstance(version := facts["format"], int) or version < 1:
                raise ValueError(f"format {version!r}")
            if version > FORMAT:
                raise CheckpointError(
                    f"{path} has format {version}, and this version of electra reads up to {FORMAT}; take a newer "
                    "one, or export the model again"
                )
            kind = next((known for known in KINDS if known == facts["kind"]), None)
            if kind is None:
                raise ValueError(f"kind {facts['kind']!r}")
            return cls(
                kind,
                tuple(map(str, facts["inputs"])),
                tuple(map(str, facts["outputs"])),
                int(facts["max_length"]),
                int(facts["hidden_size"]),
                facts["special_tokens"]["begin"] == facts["special_tokens"]["end"],
                facts.get("objective"),
                facts.get("task"),
            )


@dataclass(frozen=True)
class OnnxModel:
    """A network that onnxruntime computes, on the CPU, and its tokenizer."""

    facts: OnnxFacts
    tokenizer: Tokenizer
    session: Any

    @property
    def max_length(self) -> int:
        return self.facts.max_length

    @property
    def objective(self) -> str | None:
        return self.facts.objective

    @property
    def task(self) -> dict[str, Any] | None:
        return self.facts.task

    @property
    def stream(self) -> bool:
        return self.facts.stream

    @property
    def memory_length(self) -> int:
        """None goes out: each window is read by itself."""
        return 0

    @property
    def hidden_size(self) -> int:
        return self.facts.hidden_size

    def run(self, names: tuple[str, ...], **inputs: Tensor) -> dict[str, Tensor]:
        """Some of the outputs by name.

        Args:
            inputs: by name; those that the graph does not take are passed over. Where the mask or the segments
                are left out, there is no padding, and all tokens are of segment 0.
        """
        ids = inputs[IDS].numpy()
        given = {MASK: np.ones_like(ids), SEGMENTS: np.zeros_like(ids)} | {
            name: tensor.numpy().astype(np.int64) for name, tensor in inputs.items()
        }
        found = self.session.run(names, {name: given[name] for name in self.facts.inputs})
        return {name: torch.from_numpy(values) for name, values in zip(names, found, strict=True)}


def load_onnx(folder: Path) -> OnnxModel:
    """What a folder holds.

    Raises:
        CheckpointError: onnxruntime is missing, or a file is garbled, missing, or of a later version.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    require("ONNX", "onnx", "onnxruntime")
    facts = OnnxFacts.read(folder / FACTS)
    session = open_session(folder / MODEL)
    for what, said, names in (
        ("inputs", facts.inputs, session.get_inputs()), ("outputs", facts.outputs, session.get_outputs())
    ):  # fmt: skip
        if {*said} != {value.name for value in names}:
            raise CheckpointError(
                f"{folder}: {FACTS} names the {what} {', '.join(said)}, {MODEL} has "
                f"{', '.join(value.name for value in names)}; the two belong to different models"
            )
    tokenizer = load_tokenizer(folder)
    tokenizers.special_tokens(tokenizer, folder)
    return OnnxModel(facts, tokenizer, session)


def open_session(model: Path | bytes, *, threads: int | None = None) -> Any:
    """A session of onnxruntime on the CPU.

    Args:
        threads: None: as many as PyTorch takes. onnxruntime's own choice ties each to a core, which container
            rules often forbid, and leaves PyTorch's setting unheard.

    Raises:
        CheckpointError: it is no graph that it can run.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads() if threads is None else threads
    options.log_severity_level = 3
    where = model if isinstance(model, bytes) else str(model)
    if isinstance(model, Path) and not model.is_file():
        raise CheckpointError(f"{model} is missing; put back a copy of the folder, or export the model again")
    try:
        return onnxruntime.InferenceSession(where, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no class in common but this
        name = "the graph" if isinstance(model, bytes) else model
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{name} is damaged, or this onnxruntime is too old for it: {reason}") from error
