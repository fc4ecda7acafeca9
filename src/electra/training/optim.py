"""The optimiser: AdamW with decay by kind of parameter."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from electra.training.config import OptimizerConfig
from electra.training.sharding import local_shard

_FAR = 1e6
"""Steps after which 1 - β^t is 1 in double precision, for any β up to .9999."""


def build_optimizer(
    module: nn.Module, config: OptimizerConfig, *, rate_scales: Mapping[str, float] | None = None
) -> torch.optim.AdamW:
    """AdamW over the parameters of a module, each once even where networks share it.

    Args:
        rate_scales: each parameter's share of the learning rate, by name, which groups keep as `scale`; None: 1.
    """
    alike: dict[tuple[float, bool], list[Tensor]] = {}
    for name, parameter in module.named_parameters():
        scale = 1.0 if rate_scales is None else rate_scales[name]
        alike.setdefault((scale, parameter.ndim >= 2), []).append(local_shard(parameter))
    groups = [
        {"params": parameters, "weight_decay": config.weight_decay if decayed else 0.0, "scale": scale}
        for (scale, decayed), parameters in alike.items()
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=(config.beta_1, config.beta_2),
        eps=config.epsilon,
        fused=True,
    )
    if not config.bias_correction:
        # The corrections 1 - β^t are exactly 1 where t is large, so the steps are counted from a large number.
        for learnt in map(local_shard, module.parameters()):
            optimizer.state[learnt] = {
                "step": torch.tensor(_FAR, dtype=torch.float32, device=learnt.device),
                "exp_avg": torch.zeros_like(learnt),
                "exp_avg_sq": torch.zeros_like(learnt),
            }
    return optimizer


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter name, for a checkpoint; empty before the first step."""
    return {
        f"{name}/{key}": value.detach()
        for name, parameter in module.named_parameters()
        for key, value in optimizer.state.get(local_shard(parameter), {}).items()
    }


def restore_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    parameters = dict(module.named_parameters())
    for key, value in tensors.items():
        name, _, kind = key.rpartition("/")
        parameter = local_shard(parameters[name])
        # The step counts of the fused optimiser live beside the parameters, as float32 scalars.
        optimizer.state[parameter][kind] = value.to(parameter.device)
