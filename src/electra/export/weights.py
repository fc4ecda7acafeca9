"""Read the weights of a Hugging Face folder."""

from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from electra.errors import CheckpointError
from electra.export.onnx.graph import METADATA_FILE, MODEL_FILE

WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
FACTORS = "electra_factors.safetensors"
"""Matrices whose products are in the file of weights (`CheckpointFormat.fold`); electra reads these."""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder by name, in float32.

    Raises:
        CheckpointError: there is no file of weights, or it is damaged.
    """
    path = folder / WEIGHTS
    try:
        if path.is_file():
            tensors = load_file(path)
            if (path := folder / FACTORS).is_file():
                tensors |= load_file(path)
            return {name: tensor.float() for name, tensor in tensors.items()}
        if not (path := folder / OLD_WEIGHTS).is_file():
            hint = f"; for an ONNX folder, {METADATA_FILE} is missing" if (folder / MODEL_FILE).is_file() else ""
            raise CheckpointError(f"{folder} has neither {WEIGHTS} nor {OLD_WEIGHTS}{hint}")
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, UnpicklingError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is damaged or cut short: {reason}") from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise CheckpointError(f"{path} must hold tensors by name, found {type(tensors).__name__}")
    return {name: tensor.float() for name, tensor in tensors.items()}
