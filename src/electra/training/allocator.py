"""Settings of the memory allocator for training on a CPU."""

import ctypes
import sys
from collections.abc import Callable

import torch

RELEASE_EVERY = 50
"""Steps between two releases of freed memory (docs/results/performance.md)."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, from glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let glibc's allocator keep freed memory for the next tensors instead of returning it to the system.

    Every step allocates large tensors of the same sizes. By default each of them is mapped again, and page faults
    take a tenth of a step or more (docs/results/benchmarks.md). The setting applies to the whole process. With
    another allocator it does nothing.

    Where the sizes differ from step to step, as with packed rows, the process grows, with the default setting,
    too. `release_freed_memory` returns what is not used.

    Returns:
        Whether the allocator accepted the setting.
    """
    mallopt = _from_glibc("mallopt")
    if mallopt is None:
        return False
    # Older versions refuse more than 32 MiB. The second setting is harmful without the first.
    accepted = mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)
    return bool(accepted and mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def release_freed_memory() -> bool:
    """Let glibc's allocator return all freed memory to the system, whatever `keep_freed_memory` has set.

    Returns:
        Whether any memory was returned.
    """
    malloc_trim = _from_glibc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(0))


def _from_glibc(name: str) -> Callable[..., int] | None:
    """A function of glibc; None: there is no glibc."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of tensors on a GPU, else of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # Windows does not have it

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used  # bytes on macOS, kibibytes on Linux
