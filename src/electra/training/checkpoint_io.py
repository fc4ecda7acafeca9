"""Save and restore a run: its weights, optimizer state and memories, also with several processes."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from electra.errors import CheckpointError
from electra.json_files import read_json
from electra.objectives.stream_memory import stream_memories
from electra.training.checkpoint import (
    MEMORY_PREFIX,
    STATE,
    Checkpoint,
    Checkpoints,
    read_checkpoint,
    write_tensors,
)
from electra.training.distributed import all_gather, broadcast_object, is_main_process, rank, world_size
from electra.training.sharding import is_sharded, load_shards, local_shard, reshard, save_shards
from electra.training.update import Update

FINGERPRINT_DIGITS = 8
"""Number of digits of a fingerprint in messages."""


def save(
    checkpoints: Checkpoints, step: int, update: Update, *, state: dict[str, Any], texts: Mapping[str, str]
) -> Path | None:
    """Write the checkpoint of a step. All processes must call this; only the main process returns the path.

    Raises:
        CheckpointError: the checkpoint cannot be written (disk full).
    """
    objective = update.objective
    memories = {MEMORY_PREFIX + name: rows for name, rows in _gather_memories(objective).items()}
    memory = {"memory": memories} if memories else {}
    if not is_sharded(objective):
        if not is_main_process():
            return None
        weights = {name: parameter.detach() for name, parameter in objective.named_parameters()}
        write = partial(write_tensors, groups={"model": weights, "optimizer": update.state_dict(), **memory})
        return checkpoints.save(step, write, state=state, texts=texts)
    reshard(objective)
    weights = {name: parameter.detach() for name, parameter in objective.named_parameters()}
    tensors = {**weights, **update.state_dict()}

    def write_shards(folder: Path) -> None:
        broadcast_object(None)  # wait until the main process has created the folder
        save_shards(folder, tensors, weights)
        if is_main_process():
            write_tensors(folder, memory)

    path = None
    if is_main_process():
        path = checkpoints.save(step, write_shards, state=state, texts=texts)
    else:
        write_shards(checkpoints.partial(step))
    broadcast_object(None)  # wait until the main process has renamed the folder
    return path


def latest(checkpoints: Checkpoints) -> Checkpoint | None:
    """Read the newest checkpoint that is not damaged, as found by the main process; None: there is none.

    Raises:
        CheckpointError: all checkpoints are damaged.
    """
    checkpoint = checkpoints.latest() if is_main_process() else None
    name = broadcast_object(checkpoint.path.name if checkpoint else None)
    return checkpoint if is_main_process() or name is None else read_checkpoint(checkpoints.folder / name)


def describe_difference(name: str) -> str:
    """The words "other NAME" for a part of an identity that differs, for messages."""
    return f"{'other' if name in ('data', 'tags') else 'another'} {name}"


def check_identity(checkpoint: Checkpoint, identity: dict[str, str]) -> None:
    """Refuse to resume with other data.

    Raises:
        CheckpointError: the fingerprints differ.
    """
    _check(checkpoint.path, checkpoint.state["identity"], identity)


def check_newest(checkpoints: Checkpoints, identity: dict[str, str]) -> None:
    """Refuse to resume with other data, before anything else of the newest checkpoint is read.

    A damaged checkpoint is ignored here; `latest` reports it.

    Raises:
        CheckpointError: the fingerprints differ.
    """
    for name in checkpoints.names()[-1:]:
        try:
            stored = read_json(checkpoints.folder / name / STATE)["identity"]
        except (CheckpointError, KeyError):
            return
        if isinstance(stored, dict):
            _check(checkpoints.folder / name, stored, identity)


def _check(path: Path, stored: dict[str, str], identity: dict[str, str]) -> None:
    for name, value in identity.items():
        if stored.get(name) != value:
            before, now = (str(fingerprint)[:FINGERPRINT_DIGITS] for fingerprint in (stored.get(name), value))
            raise CheckpointError(
                f"{path} was trained with {describe_difference(name)} (fingerprint {before} before, {now} now); "
                "give the --data of that run, another --out, or --fresh"
            )


def restore(checkpoint: Checkpoint, update: Update) -> None:
    """Load the weights, the optimizer state and the memories of a checkpoint.

    Raises:
        CheckpointError: weights are missing or have another shape.
    """
    objective = update.objective
    reshard(objective)
    parameters = dict(objective.named_parameters())
    if is_sharded(objective):
        tensors = load_shards(checkpoint.path, parameters)
        others = {key: value for key, value in tensors.items() if key not in parameters}
        optimizer = {key: value for key, value in others.items() if not key.startswith(MEMORY_PREFIX)}
    else:
        tensors, optimizer = checkpoint.tensors("model"), checkpoint.tensors("optimizer")
    with torch.no_grad():
        for name, parameter in parameters.items():
            _copy(local_shard(parameter), tensors.get(name), f"{checkpoint.path}: {name}")
    update.load_state_dict(optimizer)
    memories = checkpoint.tensors("memory")
    for name, memory in stream_memories(objective).items():
        rows_YBMD = memories.get(MEMORY_PREFIX + name)
        memory.restore(None if rows_YBMD is None else rows_YBMD.chunk(world_size(), 1)[rank()])


def _gather_memories(objective: nn.Module) -> dict[str, torch.Tensor]:
    """The memories of an objective for the rows of all processes, by name."""
    local = {name: memory.rows() for name, memory in stream_memories(objective).items()}
    return {name: all_gather(rows_YBMD, dim=1) for name, rows_YBMD in local.items() if rows_YBMD is not None}


def _copy(parameter: nn.Parameter | torch.Tensor, stored: torch.Tensor | None, name: str) -> None:
    if stored is None or stored.shape != parameter.shape:
        shape = "nothing" if stored is None else tuple(stored.shape)
        raise CheckpointError(f"{name} should have shape {tuple(parameter.shape)}, found {shape}")
    parameter.copy_(stored)
