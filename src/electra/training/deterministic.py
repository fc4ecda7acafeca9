"""The same bits from the same run, also on a GPU."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from electra.errors import ConfigError


@contextlib.contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Let PyTorch choose no kernel that adds in an order of chance; where it knows no other, it is named.

    On a CPU nothing changes: with the same number of threads a run is the same bit for bit anyway. On a GPU
    gradients of embeddings, indexing and attention are otherwise sums whose order is that in which threads come.

    Raises:
        ConfigError: within the block, an operation has no such kernel.
    """
    if not wanted:
        yield
        return
    settings: Any = torch.utils.deterministic
    before, filled = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS wants for it
    torch.use_deterministic_algorithms(True)
    settings.fill_uninitialized_memory = False  # none is read here, and it takes time
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise ConfigError(f"train.deterministic: {str(error).partition(', but')[0]}; set it to false") from error
    finally:
        torch.use_deterministic_algorithms(before)
        settings.fill_uninitialized_memory = filled
