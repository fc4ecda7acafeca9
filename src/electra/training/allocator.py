"""How the process holds its memory while it trains on a CPU."""

import ctypes
import sys

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, from glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let glibc's allocator keep what is freed for the next tensor instead of giving it back to the system.

    Every step asks for the same large tensors again. By default each of them is mapped afresh, and filling fresh
    pages takes a tenth of a step and more (docs/results/benchmarks.md). The process needs no more memory at its
    peak; it only keeps its peak until it ends. Applies to the whole process; where the allocator is another one
    nothing changes.

    Returns:
        Whether the allocator took the setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    # Older versions refuse more than 32 MiB. Where none is taken the other setting would only do harm.
    taken = mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)
    return bool(taken and mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def peak_memory(device: torch.device) -> int:
    """Bytes that were in use at once at most: on an accelerator by tensors, else by the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # which Windows does not have

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used  # bytes there, kibibytes elsewhere
