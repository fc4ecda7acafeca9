"""One interface to a network, whether PyTorch or onnxruntime computes it.

Shapes: B batch, L length, D hidden size, n positions in the flattened batch, V vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from electra.errors import CheckpointError, ConfigError
from electra.export import pretrained
from electra.export.loading import find_model, load_pretrained
from electra.export.onnx.graph import IDS, MASK, SEGMENTS, is_onnx
from electra.export.onnx.heads import ALLOWED, BEGINS, POSITIONS
from electra.export.onnx.model import OnnxModel, load_onnx
from electra.export.pretrained import Pretrained, warn_if_failed
from electra.modeling.device import resolve_device
from electra.modeling.encoders.base import attention_mask
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.tasks.base import Outputs, Problem, Rows, TaskBatch
from electra.tasks.config import SHORTEST
from electra.tasks.long_texts import LongTexts
from electra.tasks.task_model import CPU_TOKENS, TaskModel, batches_by_length, compute_outputs

LISTED_LABELS = 5
"""Maximum number of labels in the description of a fine-tuned model."""
LABEL_LENGTH = 40
"""Maximum number of characters of such a label."""
MIN_LENGTH = 3
"""Two special tokens and a token of the text."""

LoadedModel = Pretrained | OnnxModel
"""A model for PyTorch or for onnxruntime."""


class Backend(Protocol):
    """A network on its device.

    `memory` is given to networks with a memory only: `memory=Memory(...)`
    (`electra.modeling.encoders.relative.Memory`).
    """

    device: torch.device

    def hidden_states(self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any) -> Tensor:
        """The hidden states of the last layer (B, L, D)."""
        ...

    def replaced_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any) -> Tensor:
        """A discriminator's logit that each token was replaced (B, L)."""
        ...

    def vocabulary_logits(
        self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any
    ) -> Callable[[Tensor], Tensor]:
        """A function from positions (n) in the flattened batch to a masked language model's logits (n, V)."""
        ...


def load_model(model: str | Path | LoadedModel, *, max_length: int | None = None) -> LoadedModel:
    """Load a MODEL or an ONNX folder; a loaded model is returned as it is. A failed fine-tuning is warned of.

    Args:
        max_length: maximum number of tokens that are read at once, special tokens included. None: that of the
            model, or of its task.

    Raises:
        CheckpointError: the model does not exist or cannot be loaded, or onnxruntime is not installed.
        ConfigError: the model cannot read so many tokens, or `max_length` is too small for any text.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    if not isinstance(model, Pretrained | OnnxModel):
        name, folder = model, find_model(model)
        model = load_onnx(folder) if is_onnx(folder) else load_pretrained(folder)
        warn_if_failed(model.task, name)
    return model if max_length is None else _with_max_length(model, max_length)


def _with_max_length(model: LoadedModel, max_length: int) -> LoadedModel:
    if max_length > model.max_length:
        raise ConfigError(
            f"--max-length {max_length:,}: the model reads at most {model.max_length:,} tokens at once; give a "
            "smaller number"
        )
    if max_length < (least := MIN_LENGTH if model.task is None else SHORTEST):
        raise ConfigError(f"--max-length {max_length:,}: must be at least {least}")
    task = None if model.task is None else {**model.task, "max_length": max_length}
    if isinstance(model, OnnxModel):
        return replace(model, metadata=replace(model.metadata, max_length=max_length, task=task))
    return replace(model, max_length=max_length, task=task)


def name_in_messages(model: str | Path | LoadedModel) -> str:
    """How an error message calls a model: its path or id, or "the model" if it was given as an object."""
    return str(model) if isinstance(model, str | Path) else "the model"


def head_kind(loaded: LoadedModel) -> str:
    """The kind of the model's head (`electra.export.pretrained.HeadKind`); "encoder" if it has no head."""
    if isinstance(loaded, OnnxModel):
        return loaded.metadata.kind
    return "encoder" if loaded.head is None else pretrained.head_kind(loaded.head)


def describe_head(loaded: LoadedModel) -> str:
    """Describe what a model is, in words."""
    descriptions = {
        "discriminator": "a discriminator",
        "generator": "a masked language model",
        "language-model": "a language model",
        "encoder": "an encoder without a head",
    }
    return descriptions.get(head_kind(loaded)) or _describe_task(loaded.task or {})


def _describe_task(fields: Mapping[str, Any]) -> str:
    """Describe what a model was fine-tuned for, from its stored fields, which nothing has checked yet."""
    labels = fields.get("labels")
    names = [str(label)[:LABEL_LENGTH] for label in labels] if isinstance(labels, list) else []
    more = ", …" if len(names) > LISTED_LABELS else ""
    listed = f" ({', '.join(names[:LISTED_LABELS])}{more})" if names else ""
    kind = f": {fields['kind']}{listed}" if fields.get("kind") else ""
    return f"fine-tuned for a task{kind}"


def build_backend(loaded: LoadedModel, device: str | torch.device | None) -> Backend:
    """The network of a model on its device.

    Args:
        device: auto, cpu, cuda, cuda:1 or mps. None: auto. An ONNX model is always on the CPU.

    Raises:
        CheckpointError: an ONNX model was asked to run on another device than the CPU.
        ConfigError: there is no such device.
    """
    if isinstance(loaded, OnnxModel):
        _check_device(device)
        return OnnxBackend(loaded)
    return TorchBackend(loaded, device)


class TorchBackend:
    """An encoder and its head in PyTorch."""

    def __init__(self, pretrained: Pretrained, device: str | torch.device | None) -> None:
        self.device = resolve_device(device)
        self.encoder = pretrained.encoder.to(self.device)
        self.head = None if pretrained.head is None else pretrained.head.to(self.device)

    def hidden_states(self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any) -> Tensor:
        states_BLD: Tensor = self.encoder(ids_BL, None, mask_BL, **memory)
        return states_BLD

    def replaced_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any) -> Tensor:
        assert isinstance(self.head, ReplacedTokenHead)
        logits_BL: Tensor = self.head(self.hidden_states(ids_BL, mask_BL, **memory))
        return logits_BL

    def vocabulary_logits(
        self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any
    ) -> Callable[[Tensor], Tensor]:
        states = self.hidden_states(ids_BL, mask_BL, **memory).flatten(0, 1)
        head, table_VE = self.head, self.encoder.embeddings.token.weight
        assert isinstance(head, MaskedLanguageModelHead)
        return lambda positions_n: head.logits(states[positions_n], table_VE)


class OnnxBackend:
    """An ONNX graph in onnxruntime. It has no memory, so `memory` is not used."""

    def __init__(self, model: OnnxModel) -> None:
        self.model, self.device = model, torch.device("cpu")

    def hidden_states(self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any) -> Tensor:
        return self._run("states", ids_BL, mask_BL)

    def replaced_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any) -> Tensor:
        return self._run("logits", ids_BL, mask_BL)

    def vocabulary_logits(
        self, ids_BL: Tensor, mask_BL: Tensor | None, **memory: Any
    ) -> Callable[[Tensor], Tensor]:
        return lambda positions_n: self._run("logits", ids_BL, mask_BL, positions_n)

    def _run(
        self, output: str, ids_BL: Tensor, mask_BL: Tensor | None, positions_n: Tensor | None = None
    ) -> Tensor:
        """One output of the graph. Without positions, a masked language model computes no logits."""
        positions = torch.zeros(0, dtype=torch.int64) if positions_n is None else positions_n
        inputs = {IDS: ids_BL, POSITIONS: positions}
        if mask_BL is not None:
            inputs[MASK] = mask_BL
        return self.model.run((output,), **inputs)[output]


class TaskBackend(Protocol):
    """A network that was fine-tuned for a task."""

    def outputs(self, rows: Rows, *, pad: int, batch_tokens: int | None = None) -> list[Outputs]:
        """The task's outputs for each row, in the order of the rows."""
        ...


def build_task_backend(
    loaded: LoadedModel, problem: Problem, device: str | torch.device | None, *, long: LongTexts | None = None
) -> TaskBackend:
    """The fine-tuned network of a model on its device.

    Args:
        device: the device (`build_backend`).
        long: how PyTorch reads rows that are longer than its windows. ONNX models are exported without this.

    Raises:
        CheckpointError: an ONNX model was asked to run on another device than the CPU.
        ConfigError: there is no such device.
    """
    if isinstance(loaded, OnnxModel):
        _check_device(device)
        return OnnxTaskBackend(loaded, problem)
    return TorchTaskBackend(loaded, problem, resolve_device(device), long=long)


class TorchTaskBackend:
    """An encoder and its task head in PyTorch."""

    def __init__(
        self, pretrained: Pretrained, problem: Problem, device: torch.device, *, long: LongTexts | None
    ) -> None:
        self.device = device
        head: Any = pretrained.head
        self.module = TaskModel(pretrained.encoder, problem, head=head, long=long).to(device).eval()

    def outputs(self, rows: Rows, *, pad: int, batch_tokens: int | None = None) -> list[Outputs]:
        return self.module.outputs(rows, pad=pad, device=self.device, batch_tokens=batch_tokens)


class OnnxTaskBackend:
    """An ONNX graph with a task head in onnxruntime."""

    def __init__(self, model: OnnxModel, problem: Problem) -> None:
        self.model, self.problem = model, problem

    def outputs(self, rows: Rows, *, pad: int, batch_tokens: int | None = None) -> list[Outputs]:
        batches = batches_by_length(rows, batch_tokens or CPU_TOKENS)
        return compute_outputs(rows, batches, self.logits, self.problem, pad=pad, device=torch.device("cpu"))

    def logits(self, batch: TaskBatch) -> dict[str, Tensor]:
        """The outputs of the head for a batch (`electra.tasks.base.Problem.logits`)."""
        inputs = {IDS: batch.input_ids_BL, SEGMENTS: batch.segment_ids_BL}
        mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
        if mask_BL is not None:
            inputs[MASK] = mask_BL
        flags = [name for name in (ALLOWED, BEGINS) if name in self.model.metadata.inputs]
        return self.model.run(
            self.model.metadata.outputs, **inputs, **{name: batch.targets[name] == 1 for name in flags}
        )


def _check_device(device: str | torch.device | None) -> None:
    if device is not None and str(device).partition(":")[0] not in ("auto", "cpu"):
        raise CheckpointError(
            f"an ONNX model runs on the CPU only, not on {device}; give the model that was exported to ONNX"
        )
