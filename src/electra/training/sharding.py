"""Full sharding (FSDP2): weights, gradients and optimizer state are sharded over processes.

The weights of a block are gathered when the block is computed; all other weights, and those of blocks that share
weights, when the objective is called. The optimizer works on plain tensors, the local shards. Each process writes
its shards to a checkpoint, which any number of processes can read.

Imports inside functions take a second or more, and few runs need them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from electra.modeling.encoders.base import EncoderModule
from electra.training.distributed import message_group, world_size

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

AnyTensor = TypeVar("AnyTensor", bound=Tensor)

OPTIMIZER_SEPARATOR = "/"
"""Occurs in the names of tensors of the optimizer state, `PARAMETER/KIND`, and never in names of parameters."""


def shard(objective: nn.Module, device: torch.device) -> None:
    """Shard the weights of an objective over all processes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (world_size(),))
    for module in objective.modules():
        if isinstance(module, EncoderModule):
            for block in module.blocks if module.config.share_layers == "none" else ():
                fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    register_fsdp_forward_method(objective, "evaluate")


def is_sharded(module: nn.Module) -> bool:
    return hasattr(module, "reshard")


def reshard(objective: nn.Module) -> None:
    """Free the gathered weights that an evaluation leaves, and return to the shards."""
    for module in objective.modules():
        if is_sharded(module):
            cast("FSDPModule", module).reshard()


def set_gradient_sync(objective: nn.Module, *, enabled: bool) -> None:
    """Set whether the next backward pass sums gradients over processes, or only accumulates them locally."""
    cast("FSDPModule", objective).set_requires_gradient_sync(enabled)


def local_shard(parameter: AnyTensor) -> AnyTensor:
    """The local shard of a parameter, the same tensor at each call; the parameter itself if it is not sharded."""
    if not hasattr(parameter, "to_local"):
        return parameter
    if not hasattr(parameter, "local_shard"):
        parameter.local_shard = parameter.to_local().detach()  # type: ignore[attr-defined]
    return cast(AnyTensor, parameter.local_shard)  # type: ignore[attr-defined]


def attach_local_gradients(objective: nn.Module) -> None:
    """Move gradients from sharded parameters to their local shards, which the optimizer updates."""
    for parameter in objective.parameters():
        if local_shard(parameter) is not parameter and parameter.grad is not None:
            local_shard(parameter).grad = cast("DTensor", parameter.grad).to_local()
            parameter.grad = None


def global_norm(norm: Tensor) -> Tensor:
    """The norm of a sharded vector, from the norm of the local shard."""
    square = norm.square()
    dist.all_reduce(square)
    return square.sqrt()


def save_shards(folder: Path, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Write safetensors files, one per process. All processes must call this at the same time.

    Args:
        tensors: weights by name, and the optimizer state as `NAME/KIND`, as local shards.
        parameters: the parameters of the objective, by name.
    """
    from torch.distributed.checkpoint import save  # type: ignore[attr-defined]
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    state = {key: _to_dtensor(value, parameters.get(_parameter_name(key))) for key, value in tensors.items()}
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save(state, storage_writer=writer, process_group=message_group())


def load_shards(folder: Path, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read the local shards of all tensors in a folder, written by any number of processes."""
    from torch.distributed.checkpoint import load  # type: ignore[attr-defined]
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    state = _empty_tensors(folder)
    for key, value in state.items():
        parameter = parameters.get(_parameter_name(key))
        if parameter is not None and value.shape == parameter.shape:
            state[key] = _to_dtensor(torch.zeros_like(local_shard(parameter)), parameter)
    load(state, storage_reader=HuggingFaceStorageReader(str(folder)), process_group=message_group())
    return {key: cast("DTensor", v).to_local() if hasattr(v, "to_local") else v for key, v in state.items()}


def load_unsharded(folder: Path) -> dict[str, Tensor]:
    """Read all tensors in a folder as whole tensors, in a single process."""
    from torch.distributed.checkpoint import load  # type: ignore[attr-defined]
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    state = _empty_tensors(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*load in a single process")  # intended here
        load(state, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return state


def _empty_tensors(folder: Path) -> dict[str, Tensor]:
    """Zero tensors with the names, shapes and dtypes of the safetensors files in a folder."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    metadata: dict[str, Any] = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {key: torch.zeros(tensor.size, dtype=tensor.properties.dtype) for key, tensor in metadata.items()}


def _parameter_name(key: str) -> str:
    """The name of the parameter that a tensor is, or whose optimizer state it is."""
    return key.rpartition(OPTIMIZER_SEPARATOR)[0] or key


def _to_dtensor(value: Tensor, parameter: Tensor | None) -> Tensor:
    """A local shard as a DTensor; a tensor that is the same in all processes is returned unchanged."""
    from torch.distributed.tensor import DTensor

    if not isinstance(parameter, DTensor) or isinstance(value, DTensor) or value.ndim != parameter.ndim:
        return value
    return DTensor.from_local(
        value, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape,
        stride=parameter.stride(),
    )  # fmt: skip
