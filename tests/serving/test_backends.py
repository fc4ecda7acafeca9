"""The device of a model."""

import pytest
import torch

from electra.errors import ConfigError
from electra.serving.backends import _resolve_device


@pytest.mark.parametrize("device", ["foo", "cuda:99", "cuda"])
def test_a_device_that_does_not_exist_is_refused(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match=f"device: {device} cannot be used: .*set it to cpu, or leave it out"):
        _resolve_device(device)
