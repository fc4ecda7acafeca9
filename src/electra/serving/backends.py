"""What texts are put through: a network of PyTorch's, or one that onnxruntime computes, behind one door.

Shapes: B batch, L length, D hidden size, n positions in the flattened batch, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from electra.errors import CheckpointError
from electra.export.huggingface import KINDS, Pretrained
from electra.export.loading import find, load_pretrained
from electra.export.onnx.graph import IDS, MASK, SEGMENTS, is_onnx
from electra.export.onnx.heads import ALLOWED, BEGINS, POSITIONS
from electra.export.onnx.model import OnnxModel, load_onnx
from electra.modeling.encoders.bert import attention_mask
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead
from electra.tasks.base import Outputs, Problem, Rows, TaskBatch
from electra.tasks.long_texts import LongTexts
from electra.tasks.task_model import CPU_TOKENS, TaskModel, batches_by_length, compute_outputs

LoadedModel = Pretrained | OnnxModel
"""What a MODEL holds: for PyTorch, or for onnxruntime."""


class Backend(Protocol):
    """A network where it computes. `past` is what one with a memory remembers (`recurrence.Past`)."""

    device: torch.device

    def hidden_states(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Tensor:
        """States (B, L, D)."""
        ...

    def replaced_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Tensor:
        """Of each token's having been replaced (B, L): of a discriminator."""
        ...

    def vocabulary_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Callable[[Tensor], Tensor]:
        """From positions (n) in the flattened batch to logits (n, V): of a masked language model."""
        ...


def load_model(model: str | Path | LoadedModel) -> LoadedModel:
    """A MODEL, or an ONNX folder.

    Raises:
        CheckpointError: there is none, it cannot be loaded, or onnxruntime is missing.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    if isinstance(model, Pretrained | OnnxModel):
        return model
    folder = find(model)
    return load_onnx(folder) if is_onnx(folder) else load_pretrained(folder)


def head_kind(loaded: LoadedModel) -> str:
    """What the head is for (`export.names.HeadKind`); of a network without one `encoder`."""
    if isinstance(loaded, OnnxModel):
        return loaded.facts.kind
    return "encoder" if loaded.head is None else KINDS[type(loaded.head)]


def build_backend(loaded: LoadedModel, device: str | torch.device | None) -> Backend:
    """The network on its device; None: the GPU where there is one and PyTorch computes.

    Raises:
        CheckpointError: an ONNX model is to be on another device than the CPU.
    """
    if isinstance(loaded, OnnxModel):
        _refuse_device(device)
        return OnnxBackend(loaded)
    return TorchBackend(loaded, device)


class TorchBackend:
    """An encoder and its head, on their device; None: the GPU where there is one."""

    def __init__(self, pretrained: Pretrained, device: str | torch.device | None) -> None:
        self.device = _device(device)
        self.encoder = pretrained.encoder.to(self.device)
        self.head = None if pretrained.head is None else pretrained.head.to(self.device)

    def hidden_states(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Tensor:
        states_BLD: Tensor = self.encoder(ids_BL, None, mask_BL, **past)
        return states_BLD

    def replaced_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Tensor:
        assert isinstance(self.head, ReplacedTokenHead)
        logits_BL: Tensor = self.head(self.hidden_states(ids_BL, mask_BL, **past))
        return logits_BL

    def vocabulary_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Callable[[Tensor], Tensor]:
        states = self.hidden_states(ids_BL, mask_BL, **past).flatten(0, 1)
        head, table_VE = self.head, self.encoder.embeddings.token.weight
        assert isinstance(head, MaskedLanguageModelHead)
        return lambda positions_n: head.logits(states[positions_n], table_VE)


class OnnxBackend:
    """The same by onnxruntime."""

    def __init__(self, model: OnnxModel) -> None:
        self.model, self.device = model, torch.device("cpu")

    def hidden_states(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Tensor:
        return self._one("states", ids_BL, mask_BL)

    def replaced_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Tensor:
        return self._one("logits", ids_BL, mask_BL)

    def vocabulary_logits(self, ids_BL: Tensor, mask_BL: Tensor | None, **past: Any) -> Callable[[Tensor], Tensor]:
        return lambda positions_n: self._one("logits", ids_BL, mask_BL, positions_n)

    def _one(self, name: str, ids_BL: Tensor, mask_BL: Tensor | None, positions_n: Tensor | None = None) -> Tensor:
        """One of the outputs. Where states alone are wanted of a masked language model, it predicts no words."""
        positions = torch.zeros(0, dtype=torch.int64) if positions_n is None else positions_n
        inputs = {IDS: ids_BL, POSITIONS: positions}
        if mask_BL is not None:
            inputs[MASK] = mask_BL
        return self.model.run((name,), **inputs)[name]


class TaskBackend(Protocol):
    """A network that was fine-tuned for a problem."""

    def outputs(self, rows: Rows, *, pad: int, batch_tokens: int | None = None) -> list[Outputs]:
        """What the problem makes of each row, in order."""
        ...


def build_task_backend(
    loaded: LoadedModel, problem: Problem, device: str | torch.device | None, *, long: LongTexts | None = None
) -> TaskBackend:
    """As `build_backend`.

    Args:
        long: how PyTorch's reads rows that are longer than its windows; what went out as ONNX reads none.
    """
    if isinstance(loaded, OnnxModel):
        _refuse_device(device)
        return OnnxTaskBackend(loaded, problem)
    return TorchTaskBackend(loaded, problem, _device(device), long=long)


class TorchTaskBackend:
    """An encoder and its head."""

    def __init__(
        self, pretrained: Pretrained, problem: Problem, device: torch.device, *, long: LongTexts | None
    ) -> None:
        self.device = device
        head: Any = pretrained.head
        self.module = TaskModel(pretrained.encoder, problem, head=head, long=long).to(device).eval()

    def outputs(self, rows: Rows, *, pad: int, batch_tokens: int | None = None) -> list[Outputs]:
        return self.module.outputs(rows, pad=pad, device=self.device, batch_tokens=batch_tokens)


class OnnxTaskBackend:
    """The same by onnxruntime."""

    def __init__(self, model: OnnxModel, problem: Problem) -> None:
        self.model, self.problem = model, problem

    def outputs(self, rows: Rows, *, pad: int, batch_tokens: int | None = None) -> list[Outputs]:
        batches = batches_by_length(rows, batch_tokens or CPU_TOKENS)
        return compute_outputs(rows, batches, self.logits, self.problem, pad=pad, device=torch.device("cpu"))

    def logits(self, batch: TaskBatch) -> dict[str, Tensor]:
        """What the head gives for a batch (`tasks.base.Problem.logits`)."""
        inputs = {IDS: batch.input_ids_BL, SEGMENTS: batch.segment_ids_BL}
        mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
        if mask_BL is not None:
            inputs[MASK] = mask_BL
        wanted = [name for name in (ALLOWED, BEGINS) if name in self.model.facts.inputs]
        return self.model.run(
            self.model.facts.outputs, **inputs, **{name: batch.targets[name] == 1 for name in wanted}
        )


def _device(device: str | torch.device | None) -> torch.device:
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _refuse_device(device: str | torch.device | None) -> None:
    if device is not None and torch.device(device).type != "cpu":
        raise CheckpointError(
            f"an ONNX model runs on the CPU here, not on {device}; take the model it was made of"
        )
