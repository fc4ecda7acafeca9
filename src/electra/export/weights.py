"""Read the weights of a Hugging Face folder. Pickles are never read, because they can run programs."""

import shlex
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor

from electra.errors import CheckpointError, is_out_of_memory
from electra.export.onnx.graph import METADATA_FILE, MODEL_FILE
from electra.export.weights_file import WEIGHTS, read_header

FACTORS = "electra_factors.safetensors"
"""Matrices whose products are in the file of weights (`CheckpointFormat.fold`); electra reads these."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Endings of files in which others store weights, which are or can be pickles."""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder by name, in float32.

    Raises:
        CheckpointError: there is no file of weights, or it is damaged.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(describe_missing_weights(folder))
    try:
        tensors = _read_tensors(path)
        if (path := folder / FACTORS).is_file():
            tensors |= _read_tensors(path)
    except (SafetensorError, OSError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is damaged or cut short: {reason}") from error
    return {name: tensor.float() for name, tensor in tensors.items()}


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file. safetensors compares shapes and places in the header with the file's size.

    Raises:
        CheckpointError: the header is damaged, or has millions of tensors.
        SafetensorError: the file is damaged.
    """
    read_header(path)  # refuses longer headers than safetensors does
    return load_file(path) if is_named_in_utf8(path) else load(path.read_bytes())


def is_named_in_utf8(path: Path) -> bool:
    """Whether libraries that want names in UTF-8, such as safetensors and onnxruntime, can open a file."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def describe_missing_weights(folder: Path) -> str:
    """The message for a folder without a file of weights."""
    if pickles := sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES):
        program = (
            f"from transformers import AutoModelForPreTraining as A; f = {str(folder)!r}; "
            "A.from_pretrained(f).save_pretrained(f)"
        )
        return (
            f"{folder} has its weights in {pickles[0]} and has no {WEIGHTS}; pickles can run programs and are "
            f"never read\n  if you trust the file, convert it: python -c {shlex.quote(program)}"
        )
    hint = f"; for an ONNX folder, {METADATA_FILE} is missing" if (folder / MODEL_FILE).is_file() else ""
    return f"{folder} has no {WEIGHTS}{hint}"
