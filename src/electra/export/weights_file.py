"""The file of weights of a model folder: its name, and its header, which is read without torch."""

import json
from pathlib import Path
from typing import Any

from electra.errors import CheckpointError

WEIGHTS = "model.safetensors"
MAX_HEADER = 1 << 23
"""Maximum size of the header of a safetensors file (8 MiB); that of a network with 1,000 tensors has 0.1 MiB."""


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: type, shape and place of each tensor by name, and `__metadata__`.

    Raises:
        CheckpointError: the header is damaged, or has millions of tensors.
    """
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            text = file.read(min(size, MAX_HEADER))
        too_long = MAX_HEADER < size < path.stat().st_size
        header = None if too_long else json.loads(text.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged or cut short: {error}") from error
    if too_long:
        raise CheckpointError(f"{path}: its header has {size:,} bytes, at most {MAX_HEADER:,}; it is no model")
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is damaged: its header is no JSON object")
    return header
