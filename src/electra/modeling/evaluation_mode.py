"""Evaluation mode for the time of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Within it the module is in evaluation mode (no dropout); afterwards its mode is what it was before."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
