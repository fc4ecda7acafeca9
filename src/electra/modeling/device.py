"""The device that a network computes on, and what devices lack."""

import functools
import logging

import torch

from electra.config_fields import DEVICE_NAMES, is_device_name
from electra.errors import ConfigError

logger = logging.getLogger(__name__)

WIDEST_FLOATS = {"mps": torch.float32}
"""The floating-point type with the most digits, of types of devices without float64."""


def resolve_device(wanted: str | torch.device | None, *, option: str = "device") -> torch.device:
    """Return the device for a name: auto, cpu, cuda, cuda:N (the GPU with this number, from 0) or mps.

    Args:
        wanted: the name; auto or None: a CUDA GPU if there is one, else the CPU. A `torch.device` is returned as
            it is.
        option: what the user calls this option or setting, for messages.

    Raises:
        ConfigError: there is no such device, or torch cannot use it.
    """
    if isinstance(wanted, torch.device):
        return wanted
    if wanted is None or wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    check_device(wanted, option=option)
    if wanted == "cuda":
        # With its index, because in another thread "cuda" alone can be another GPU.
        return torch.device("cuda", torch.cuda.current_device())
    if wanted == "mps":
        _warn_about_mps()
    return torch.device(wanted)


def check_device(wanted: str, *, option: str = "device") -> None:
    """Check that torch can use a device on this machine.

    Raises:
        ConfigError: as `resolve_device`.
    """
    if not is_device_name(wanted):
        raise ConfigError(f"--{option}: there is no device {wanted!r}; give {DEVICE_NAMES}")
    if problem := _problem(wanted):
        raise ConfigError(f"--{option} {wanted}: {problem}")


@functools.cache
def _warn_about_mps() -> None:
    """Warn once in a process, however many networks it loads."""
    logger.warning(
        "mps: electra has never been measured on Apple's GPUs; compare some results with those of cpu, and if an "
        "operation is missing, set the environment variable PYTORCH_ENABLE_MPS_FALLBACK=1"
    )


def _problem(name: str) -> str | None:
    """Return why torch cannot use a device on this machine; None if it can."""
    if name == "mps" and not torch.backends.mps.is_available():
        return "torch finds no Apple GPU (it needs a Mac with Apple silicon and PyTorch for macOS); set it to auto"
    if not name.startswith("cuda"):
        return None
    if not torch.cuda.is_available():
        built = "" if torch.backends.cuda.is_built() else ": this PyTorch is built without CUDA"
        return f"torch finds no GPU{built}; set it to auto or cpu"
    count = torch.cuda.device_count()
    if int(name.partition(":")[2] or 0) >= count:
        number = "one GPU" if count == 1 else f"{count} GPUs"
        return f"this machine has {number}, counted from 0; the last one is cuda:{count - 1}"
    return None


def synchronize(device: torch.device) -> None:
    """Wait until a device has done all of its work, to measure time. A CPU has always done it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def widest_float(device: torch.device) -> torch.dtype:
    """The floating-point type with the most digits: float64; on Apple's GPUs, which have none, float32."""
    return WIDEST_FLOATS.get(device.type, torch.float64)
