"""Average the weights of a continued network with those of the network that it was continued from.

On a task of the new domain, the average is often better than both networks, which are joined by a path of low loss
(Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
"""

import torch
from torch import nn

from electra.errors import CheckpointError


@torch.no_grad()
def average_with(encoder: nn.Module, original: nn.Module, *, weight: float) -> None:
    """Replace each parameter of `encoder` with weight × that of `original` + (1 - weight) × its own.

    Raises:
        CheckpointError: the networks have other tensors, or tensors of other shapes.
    """
    ours, theirs = encoder.state_dict(), original.state_dict()
    different = sorted(ours.keys() ^ theirs.keys())
    different += [name for name in ours.keys() & theirs.keys() if ours[name].shape != theirs[name].shape]
    if different:
        raise CheckpointError(f"the networks differ in {', '.join(different[:5])}, so they have no average")
    # In contrast to state_dict, a parameter that several blocks share is there once.
    for name, parameter in encoder.named_parameters():
        parameter.lerp_(theirs[name].to(parameter), weight)
