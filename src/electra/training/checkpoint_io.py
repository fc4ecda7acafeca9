"""A run's weights and its optimiser's state in checkpoints: written, found again, put back."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from electra.errors import CheckpointError
from electra.json_files import read_json
from electra.objectives.stream_memory import stream_memories
from electra.training.checkpoint import REMEMBERED, STATE, Checkpoint, Checkpoints, read_checkpoint, write_tensors
from electra.training.distributed import all_gather, broadcast_object, is_main_process, rank, world_size
from electra.training.sharding import is_sharded, load_parts, local_shard, reshard, save_parts
from electra.training.update import Update

SHOWN = 8
"""Digits of a fingerprint that a message has."""


def save(
    checkpoints: Checkpoints, step: int, update: Update, *, state: dict[str, Any], texts: Mapping[str, str]
) -> Path | None:
    """Write the checkpoint of a step; in processes that do not lead, take part in that and return None.

    Raises:
        CheckpointError: the disk is full or refuses.
    """
    objective = update.objective
    remembered = {REMEMBERED + name: rows for name, rows in _remembered(objective).items()}
    memory = {"memory": remembered} if remembered else {}
    if not is_sharded(objective):
        if not is_main_process():
            return None
        weights = {name: parameter.detach() for name, parameter in objective.named_parameters()}
        write = partial(write_tensors, groups={"model": weights, "optimizer": update.tensors(), **memory})
        return checkpoints.save(step, write, state=state, texts=texts)
    reshard(objective)
    weights = {name: parameter.detach() for name, parameter in objective.named_parameters()}
    tensors = {**weights, **update.tensors()}

    def together(folder: Path) -> None:
        broadcast_object(None)  # the leader has made the folder
        save_parts(folder, tensors, weights)
        if is_main_process():
            write_tensors(folder, memory)

    path = None
    if is_main_process():
        path = checkpoints.save(step, together, state=state, texts=texts)
    else:
        together(checkpoints.partial(step))
    broadcast_object(None)  # it has its name
    return path


def latest(checkpoints: Checkpoints) -> Checkpoint | None:
    """The newest one that the leader found whole, in all processes.

    Raises:
        CheckpointError: there are checkpoints, and none is whole.
    """
    found = checkpoints.latest() if is_main_process() else None
    name = broadcast_object(found.path.name if found else None)
    return found if is_main_process() or name is None else read_checkpoint(checkpoints.folder / name)


def different(name: str) -> str:
    """How to say that a fact of an identity is not the same."""
    return f"{'other' if name in ('data', 'tags') else 'another'} {name}"


def check_identity(checkpoint: Checkpoint, identity: dict[str, str]) -> None:
    """Refuse to go on with other data.

    Raises:
        CheckpointError: naming what differs.
    """
    _check(checkpoint.path, checkpoint.state["identity"], identity)


def check_newest(checkpoints: Checkpoints, identity: dict[str, str]) -> None:
    """The same of the newest checkpoint, of which nothing else is read yet: before a run takes anything up.

    One that cannot be read is `latest`'s to name.

    Raises:
        CheckpointError: naming what differs.
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
        if (known := stored.get(name)) != value:
            there, here = (str(fingerprint)[:SHOWN] for fingerprint in (known, value))
            raise CheckpointError(
                f"{path} was trained with {different(name)} (fingerprint {there} there, {here} now); "
                "give the --data of that run, another --out, or --fresh"
            )


def restore(checkpoint: Checkpoint, update: Update) -> None:
    """Put a checkpoint's weights and the optimiser's state in place of those that are there.

    Raises:
        CheckpointError: weights are missing or of another shape.
    """
    objective = update.objective
    reshard(objective)
    parameters = dict(objective.named_parameters())
    if is_sharded(objective):
        tensors = load_parts(checkpoint.path, parameters)
        others = {key: value for key, value in tensors.items() if key not in parameters}
        optimizer = {key: value for key, value in others.items() if not key.startswith(REMEMBERED)}
    else:
        tensors, optimizer = checkpoint.tensors("model"), checkpoint.tensors("optimizer")
    with torch.no_grad():
        for name, parameter in parameters.items():
            _copy(local_shard(parameter), tensors.get(name), f"{checkpoint.path}: {name}")
    update.restore(optimizer)
    remembered = checkpoint.tensors("memory")
    for name, memory in stream_memories(objective).items():
        rows_YBMD = remembered.get(REMEMBERED + name)
        memory.restore(None if rows_YBMD is None else rows_YBMD.chunk(world_size(), 1)[rank()])


def _remembered(objective: nn.Module) -> dict[str, torch.Tensor]:
    """What the memories of an objective hold of the rows of all processes, by name."""
    found = {name: memory.rows() for name, memory in stream_memories(objective).items()}
    return {name: all_gather(rows_YBMD, dim=1) for name, rows_YBMD in found.items() if rows_YBMD is not None}


def _copy(mine: nn.Parameter | torch.Tensor, stored: torch.Tensor | None, name: str) -> None:
    if stored is None or stored.shape != mine.shape:
        found = "nothing" if stored is None else tuple(stored.shape)
        raise CheckpointError(f"{name} should be {tuple(mine.shape)}, found {found}")
    mine.copy_(stored)
