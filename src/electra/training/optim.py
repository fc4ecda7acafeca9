"""The optimizer: AdamW, with weight decay for matrices only; or Muon for the matrices of blocks, and AdamW."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from electra.modeling.encoders.base import EncoderModule
from electra.training.config import OptimizerConfig
from electra.training.muon import Muon, orthogonalization_flops
from electra.training.sharding import local_shard

_LARGE_STEP = 1e6
"""A step count t at which 1 - β^t is 1 in double precision, for any β up to 0.9999."""


def build_optimizer(
    module: nn.Module, config: OptimizerConfig, *, rate_scales: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """The optimizer of the parameters of a module; a parameter that networks share occurs once.

    Args:
        rate_scales: a factor of the learning rate for each parameter, by name, stored as `scale` in the parameter
            groups; None: 1 for all.
    """
    by_group: dict[tuple[float, bool], list[Tensor]] = {}
    muon_groups: dict[int, list[Tensor]] = {}
    parts = _block_matrices(module) if config.matrices == "muon" else {}
    assert not parts or rate_scales is None, "Muon has one learning rate for all matrices"
    for name, parameter in module.named_parameters():
        if name in parts:
            muon_groups.setdefault(parts[name], []).append(parameter)
            continue
        scale = 1.0 if rate_scales is None else rate_scales[name]
        by_group.setdefault((scale, parameter.ndim >= 2), []).append(local_shard(parameter))
    groups: list[dict[str, Any]] = [
        {"params": parameters, "weight_decay": config.weight_decay if decayed else 0.0, "scale": scale}
        for (scale, decayed), parameters in by_group.items()
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=(config.beta_1, config.beta_2),
        eps=config.epsilon,
        fused=True,
    )
    if not config.bias_correction:
        # The corrections 1 - β^t are exactly 1 for a large t, so the step count starts at a large number.
        for parameter in (one for group in groups for one in group["params"]):
            optimizer.state[parameter] = {
                "step": torch.tensor(_LARGE_STEP, dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    if not muon_groups:
        return optimizer
    return Muon(
        [{"params": parameters, "parts": number} for number, parameters in muon_groups.items()],
        optimizer,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        momentum=config.muon_momentum,
    )


def update_flops(module: nn.Module, config: OptimizerConfig) -> float:
    """Operations of the matrix products of an update of all parameters: Muon's; the others are elementwise.

    A stage in which some networks are not trained has fewer.
    """
    parts = _block_matrices(module) if config.matrices == "muon" else {}
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    shapes = [(parts[name], parameter.shape) for name, parameter in trained if name in parts]
    return sum(number * orthogonalization_flops(rows // number, columns) for number, (rows, columns) in shapes)


def _block_matrices(module: nn.Module) -> dict[str, int]:
    """The names of the weights of linear layers of encoders' blocks, each with its number of stacked matrices."""
    matrices = {}
    for encoder_name, encoder in module.named_modules():
        if isinstance(encoder, EncoderModule):
            prefix = f"{encoder_name}.blocks".lstrip(".")
            for name, layer in encoder.blocks.named_modules(prefix=prefix):
                if isinstance(layer, nn.Linear):
                    stacked = encoder.stacked_matrices.get(name.rpartition(".")[2], 1)
                    matrices[f"{name}.weight"] = stacked
    return matrices


def optimizer_state_dict(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer state as `PARAMETER/KIND`, for a checkpoint; empty before the first step."""
    return {
        f"{name}/{key}": value.detach()
        for name, parameter in module.named_parameters()
        for key, value in optimizer.state.get(local_shard(parameter), {}).items()
    }


def load_optimizer_state_dict(
    module: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Load the result of `optimizer_state_dict`."""
    parameters = dict(module.named_parameters())
    for key, value in tensors.items():
        name, _, kind = key.rpartition("/")
        parameter = local_shard(parameters[name])
        # The step counts of the fused optimizer are float32 scalars on the parameters' device.
        optimizer.state[parameter][kind] = value.to(parameter.device)
