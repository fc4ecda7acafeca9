"""Read the weights of a Hugging Face folder. Pickles are never read, because they can run programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from electra.errors import CheckpointError
from electra.export.onnx.graph import METADATA_FILE, MODEL_FILE
from electra.modeling.encoders.base import EncoderConfig

WEIGHTS = "model.safetensors"
FACTORS = "electra_factors.safetensors"
"""Matrices whose products are in the file of weights (`CheckpointFormat.fold`); electra reads these."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Endings of files in which others store weights, which are or can be pickles."""
MAX_LAYERS = 1000
SPARE_NUMBERS = 2**24
"""A matrix may have this many more numbers than the file of weights, so that missing tensors and other shapes are
named one by one, but no memory is allocated for the absurd sizes of a false config.json."""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder by name, in float32.

    Raises:
        CheckpointError: there is no file of weights, or it is damaged.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(describe_missing_weights(folder))
    try:
        tensors = load_file(path)
        if (path := folder / FACTORS).is_file():
            tensors |= load_file(path)
    except (SafetensorError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is damaged or cut short: {reason}") from error
    return {name: tensor.float() for name, tensor in tensors.items()}


def describe_missing_weights(folder: Path) -> str:
    """The message for a folder without a file of weights."""
    if pickles := sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES):
        return (
            f"{folder} has its weights in {pickles[0]} and has no {WEIGHTS}; pickles can run programs and are "
            'never read\n  if you trust the file, convert it: python -c "from transformers import '
            f'AutoModelForPreTraining as A; f = {str(folder)!r}; A.from_pretrained(f).save_pretrained(f)"'
        )
    hint = f"; for an ONNX folder, {METADATA_FILE} is missing" if (folder / MODEL_FILE).is_file() else ""
    return f"{folder} has no {WEIGHTS}{hint}"


def check_layers(fields: Mapping[str, Any], path: Path) -> None:
    """Check the number of layers in config.json before anything is done for each of them.

    Raises:
        CheckpointError: there are more than `MAX_LAYERS`.
    """
    for name in ("num_hidden_layers", "n_layer"):
        if isinstance(layers := fields.get(name), int) and layers > MAX_LAYERS:
            raise CheckpointError(f"{path}: {name} is {layers:,}; electra reads at most {MAX_LAYERS:,} layers")


def check_size(config: EncoderConfig, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Check that no matrix of a network is larger than all its weights, before memory is allocated for it.

    Args:
        path: config.json, for the message.

    Raises:
        CheckpointError: one is.
    """
    stored = sum(tensor.numel() for tensor in tensors.values())
    positions = config.max_positions if config.has_position_table else 0
    largest = max(
        (config.vocabulary_size + config.type_vocabulary_size + positions) * config.embedding_size,
        config.hidden_size * max(config.hidden_size, config.feed_forward_size, config.embedding_size),
    )
    if largest > stored + SPARE_NUMBERS:
        raise CheckpointError(
            f"{path}: describes a matrix of {largest:,} numbers, but the weights have {stored:,} numbers in all"
        )
