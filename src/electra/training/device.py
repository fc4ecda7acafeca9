"""The device that a run computes on."""

import torch

from electra.errors import ConfigError


def resolve_device(wanted: str) -> torch.device:
    """The device for a setting `train.device`: auto, cpu or cuda.

    Raises:
        ConfigError: cuda is wanted, but torch sees no GPU.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device: cuda, but torch sees no GPU here; set it to auto or cpu")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    # With its number: in another thread, "cuda" alone can mean another card.
    return torch.device("cuda", torch.cuda.current_device())
