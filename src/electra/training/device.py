"""The device of a run."""

import torch

from electra.errors import ConfigError


def resolve_device(wanted: str) -> torch.device:
    """The device for a setting `train.device`: auto, cpu or cuda.

    Raises:
        ConfigError: the setting is cuda, but torch finds no GPU.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device: is cuda, but torch finds no GPU; set it to auto or cpu")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    # With its index, because in another thread "cuda" alone can be another GPU.
    return torch.device("cuda", torch.cuda.current_device())
