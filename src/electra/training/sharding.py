"""Weights, gradients and the optimiser's state in parts, one a process (FSDP2), where one device cannot hold them.

Blocks are gathered when they are computed; everything else, and blocks that share weights, with the objective. The
optimiser sees plain tensors, the parts; checkpoints are written by all processes, each its parts, and read by any
number of them.

What is imported inside functions takes a second or more, and few runs need it.
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

OF_OPTIMIZER = "/"
"""In the name of a tensor: it is not a weight."""


def shard(objective: nn.Module, device: torch.device) -> None:
    """Leave each process its part of an objective's weights."""
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
    """Put the parts back in place of gathered weights, which an evaluation leaves behind."""
    for module in objective.modules():
        if is_sharded(module):
            cast("FSDPModule", module).reshard()


def sum_gradients(objective: nn.Module, *, wanted: bool) -> None:
    """Whether the next backward pass ends in the sum of all processes, or adds to what is here."""
    cast("FSDPModule", objective).set_requires_gradient_sync(wanted)


def local_shard(parameter: AnyTensor) -> AnyTensor:
    """What this process holds of a parameter, in its memory, the same tensor at each call; or all of it."""
    if not hasattr(parameter, "to_local"):
        return parameter
    if not hasattr(parameter, "part"):
        parameter.part = parameter.to_local().detach()  # type: ignore[attr-defined]
    return cast(AnyTensor, parameter.part)  # type: ignore[attr-defined]


def attach_local_gradients(objective: nn.Module) -> None:
    """Give each part its gradient, and the parameter none."""
    for parameter in objective.parameters():
        if local_shard(parameter) is not parameter and parameter.grad is not None:
            local_shard(parameter).grad = cast("DTensor", parameter.grad).to_local()
            parameter.grad = None


def global_norm(norm: Tensor) -> Tensor:
    """The norm of a vector of which this one is that of the part here."""
    square = norm.square()
    dist.all_reduce(square)
    return square.sqrt()


def save_parts(folder: Path, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Write safetensors files, each process its own; all must call this at once.

    Args:
        tensors: weights, and the optimiser's state as `NAME/KIND`, with the parts that are here.
        parameters: by name, as the objective has them.
    """
    from torch.distributed.checkpoint import save  # type: ignore[attr-defined]
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    state = {key: _spread(value, parameters.get(_weight(key))) for key, value in tensors.items()}
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save(state, storage_writer=writer, process_group=message_group())


def load_parts(folder: Path, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What this process is to hold of all tensors in the safetensors files of a folder, whoever wrote them."""
    from torch.distributed.checkpoint import load  # type: ignore[attr-defined]
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    state = _empty(folder)
    for key, value in state.items():
        parameter = parameters.get(_weight(key))
        if parameter is not None and value.shape == parameter.shape:
            state[key] = _spread(torch.zeros_like(local_shard(parameter)), parameter)
    load(state, storage_reader=HuggingFaceStorageReader(str(folder)), process_group=message_group())
    return {key: cast("DTensor", v).to_local() if hasattr(v, "to_local") else v for key, v in state.items()}


def load_whole(folder: Path) -> dict[str, Tensor]:
    """All tensors in the safetensors files of a folder that several processes wrote, whole, in this one alone."""
    from torch.distributed.checkpoint import load  # type: ignore[attr-defined]
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    state = _empty(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*load in a single process")  # which is what is asked for
        load(state, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return state


def _empty(folder: Path) -> dict[str, Tensor]:
    """Tensors of the names, shapes and types that the safetensors files of a folder have."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    known: dict[str, Any] = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {key: torch.zeros(about.size, dtype=about.properties.dtype) for key, about in known.items()}


def _weight(key: str) -> str:
    """The name of the weight that a tensor is, or that the optimiser's state belongs to."""
    return key.rpartition(OF_OPTIMIZER)[0] or key


def _spread(value: Tensor, parameter: Tensor | None) -> Tensor:
    """A part as a piece of the whole; what all processes have alike, as it is."""
    from torch.distributed.tensor import DTensor

    if not isinstance(parameter, DTensor) or isinstance(value, DTensor) or value.ndim != parameter.ndim:
        return value
    return DTensor.from_local(
        value, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape,
        stride=parameter.stride(),
    )  # fmt: skip
