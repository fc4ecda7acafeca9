"""Deterministic kernels, so that a run on a GPU can be repeated bit for bit."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from electra.errors import ConfigError


@contextlib.contextmanager
def deterministic_algorithms(enabled: bool) -> Iterator[None]:
    """Let PyTorch use deterministic kernels only.

    On a CPU nothing changes: with the same number of threads, a run gives the same bits in any case. On a GPU, the
    gradients of embeddings, indexing and attention are sums whose order otherwise depends on thread timing.

    Raises:
        ConfigError: an operation within the block has no deterministic kernel.
    """
    if not enabled:
        yield
        return
    settings: Any = torch.utils.deterministic
    before, filled = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS requires it
    torch.use_deterministic_algorithms(True)
    settings.fill_uninitialized_memory = False  # no code reads uninitialized memory, and filling takes time
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise ConfigError(f"train.deterministic: {str(error).partition(', but')[0]}; set it to false") from error
    finally:
        torch.use_deterministic_algorithms(before)
        settings.fill_uninitialized_memory = filled
