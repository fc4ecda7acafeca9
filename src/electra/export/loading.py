"""MODEL of every verb: an export folder, a run, a Hugging Face folder or id (docs/guides/checkpoints.md)."""

import re
from pathlib import Path

from tokenizers import Tokenizer

from electra.errors import CheckpointError, require
from electra.export.huggingface import load as load_folder
from electra.export.onnx.graph import is_onnx
from electra.export.pretrained import Pretrained
from electra.export.weights import OLD_WEIGHTS, WEIGHTS
from electra.modeling.encoders.base import EncoderModule

_FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]


def load(model: str | Path) -> tuple[EncoderModule, Tokenizer]:
    """The encoder of a MODEL, in evaluation mode, and its tokenizer.

    Of a run's folder it is the discriminator, or the one encoder that was trained; RUN/export/generator names the
    generator.

    Raises:
        CheckpointError: there is no such model, a run has no export yet, or what is there cannot be loaded.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    pretrained = load_pretrained(model)
    return pretrained.encoder, pretrained.tokenizer


def load_pretrained(model: str | Path) -> Pretrained:
    """Everything that a MODEL holds: the encoder, its head, the tokenizer and the longest input.

    Raises:
        CheckpointError, DataError: as `load`.
    """
    return load_folder(find(model))


def find(model: str | Path) -> Path:
    """The folder that MODEL stands for, of Hugging Face's form or for onnxruntime; downloaded where it is an id.

    Raises:
        CheckpointError: there is none, with what to do about it.
    """
    path = Path(model)
    if path.is_dir():
        towers = [above / tower for above in (path, path / "export") for tower in ("discriminator", "encoder")]
        for folder in (path, *towers, path / "model"):
            if holds_model(folder):
                return folder
        if (path / "state.json").is_file():
            raise CheckpointError(
                f"{path} is a checkpoint; make a model of it first: "
                f"electra export {path.parent.parent} --checkpoint {path.name}"
            )
        if inside := sorted(path.glob("*/model/config.json")):
            names = ", ".join(folder.parent.parent.name for folder in inside)
            raise CheckpointError(f"{path} holds several models: {names}; give one, as {inside[0].parent.parent}")
        if (path / "config.toml").is_file():
            raise CheckpointError(f"{path} is a run without an export yet; make one first: electra export {path}")
        raise CheckpointError(f"{path} is no model: no config.json, no export, no config.toml")
    if path.exists():
        raise CheckpointError(f"{path} is a file; a model is a folder: an export, a run, or a Hugging Face folder")
    if is_id(str(model)):
        return _download(str(model))
    raise CheckpointError(f"there is no folder {path}; give an export, a run, a Hugging Face folder or an id")


def holds_model(folder: Path) -> bool:
    """Whether a folder is one of Hugging Face's, or for onnxruntime."""
    return (folder / "config.json").is_file() or is_onnx(folder)


def generator_beside(model: str | Path) -> Path | None:
    """The folder of the generator that a run, its export, or the discriminator in there has beside; None: none."""
    path = Path(model).absolute()  # so that "." has a name
    beside = [path / "export", path, *([path.parent] if path.name == "discriminator" else [])]
    folders = [folder / "generator" for folder in beside]
    return next((folder for folder in folders if holds_model(folder)), None)


def is_id(model: str) -> bool:
    """Whether a MODEL has the form of a Hugging Face id, OWNER/NAME."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", model) is not None


def _download(name: str) -> Path:
    """The local copy of a model on the Hugging Face hub."""
    missing = f"there is no folder {name}"
    require(f"{missing}; loading it from the Hugging Face hub", "hub", "huggingface_hub")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*_FILES, WEIGHTS]))
        if not (folder / WEIGHTS).is_file():
            folder = Path(snapshot_download(name, allow_patterns=[*_FILES, OLD_WEIGHTS]))
    except Exception as error:  # the hub's own errors, those of two HTTP libraries, and the disk's
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{missing}, and the Hugging Face hub does not give {name}: {reason}\n"
            "  without a network, give a folder or a model that was downloaded before"
        ) from error
    return folder
