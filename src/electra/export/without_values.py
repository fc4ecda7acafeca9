"""Build networks whose weights are read from a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _Uninitialized(TorchFunctionMode):
    """Disable the functions of `torch.nn.init`.

    They have no effect on the meta device, but they make PyTorch import its compiler, which takes a second or two.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


@contextmanager
def without_values() -> Iterator[None]:
    """Build modules on the meta device, because loaded weights replace the initial ones."""
    with torch.device("meta"), _Uninitialized():
        yield
