"""Load a MODEL: an export folder, a run, a Hugging Face folder or id (docs/guides/checkpoints.md)."""

import re
from pathlib import Path

from tokenizers import Tokenizer

from electra.data.shards import MANIFEST
from electra.errors import CheckpointError, caller_name, did_you_mean, require
from electra.export.huggingface import load as load_folder
from electra.export.included_models import find_included, included_models, model_path
from electra.export.onnx.graph import is_onnx
from electra.export.pretrained import Pretrained
from electra.export.weights_file import WEIGHTS
from electra.modeling.encoders.base import EncoderModule

MODEL_KINDS = "a run, an export, the output of a fine-tuning, a Hugging Face folder or an id (OWNER/NAME)"
"""What a MODEL can be, besides the name of an included model."""
AVERAGED = "averaged"
"""The folder in a run's export with the average of the trained network and the one that it was continued from."""
EXPORTED = ("discriminator", "encoder", "generator", AVERAGED)
"""The folders of models that a run's export can have."""
_FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]


def load(model: str | Path) -> tuple[EncoderModule, Tokenizer]:
    """Return the encoder of a MODEL, in evaluation mode, and its tokenizer.

    For a run it is the encoder of the discriminator, or the only encoder. RUN/export/generator is the generator.

    Raises:
        CheckpointError: there is no such model, a run has no export yet, or the model cannot be loaded.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    pretrained = load_pretrained(model)
    return pretrained.encoder, pretrained.tokenizer


def load_pretrained(model: str | Path, *, quiet: bool = False) -> Pretrained:
    """Load a MODEL with its head.

    Args:
        quiet: without a log message that names the tensors which are not loaded.

    Raises:
        CheckpointError, DataError: as `load`.
    """
    return load_folder(find_model(model), quiet=quiet)


def find_model(model: str | Path) -> Path:
    """Return the Hugging Face or ONNX folder of a MODEL. A Hugging Face id is downloaded.

    Raises:
        CheckpointError: there is no such model.
    """
    path = model_path(model)
    if path.is_dir():
        exports = [parent / name for parent in (path, path / "export") for name in ("discriminator", "encoder")]
        for folder in (path, *exports, path / "model"):
            if is_model_folder(folder):
                return folder
        if (path / "state.json").is_file():
            raise CheckpointError(
                f"{path} is a checkpoint; export it first: "
                f"electra export {path.parent.parent} --checkpoint {path.name}"
            )
        if models := [file.parent.parent for file in sorted(path.glob("*/model/config.json"))]:
            names = ", ".join(folder.name for folder in models)
            raise CheckpointError(f"{path} has several models: {names}; give one of them, such as {models[0]}")
        if (path / "config.toml").is_file():
            raise CheckpointError(f"{path} is a run without an export yet; export it first: electra export {path}")
        if (path / MANIFEST).is_file():
            raise CheckpointError(
                f"{path} is prepared data, not a model; give a run that was trained on it: "
                + caller_name(f"electra pretrain PRESET --data {path} --out RUN", "electra.pretrain")
            )
        raise CheckpointError(
            f"{path} is not a model: it has no config.json, no export and no config.toml\n  give {MODEL_KINDS}"
        )
    if path.exists():
        raise CheckpointError(f"{path} is a file; a model is a folder: an export, a run, or a Hugging Face folder")
    if is_hub_id(str(model)) and not path.parent.is_dir():
        return _download(str(model))
    near = did_you_mean(str(model), list(included_models()))
    names = "".join(f", or {name}" for name in included_models())
    raise CheckpointError(f"there is no folder {path}{near or f'; give {MODEL_KINDS}{names}'}")


def find_encoder(model: str | Path) -> Path:
    """Return the folder that fine-tuning starts from: RUN/export/averaged or, without it, that of `find_model`.

    Raises:
        CheckpointError: as `find_model`.
    """
    averaged = model_path(model) / "export" / AVERAGED
    return averaged if is_model_folder(averaged) else find_model(model)


def is_model_folder(folder: Path) -> bool:
    """Whether a folder is a Hugging Face folder or an ONNX folder."""
    return (folder / "config.json").is_file() or is_onnx(folder)


def find_generator(model: str | Path) -> Path | None:
    """Return the generator's folder for a run, its export, or its exported discriminator; None: there is none."""
    path = model_path(model).absolute()  # so that "." has a name
    exports = [path / "export", path, *([path.parent] if path.name == "discriminator" else [])]
    folders = [export / "generator" for export in exports]
    return next((folder for folder in folders if is_model_folder(folder)), None)


def find_masked_lm(model: str | Path) -> Path | None:
    """Return the folder of the masked language model beside a discriminator; None: there is none.

    It is the generator or, without one, the discriminator's own network with another head.
    """
    if generator := find_generator(model):
        return generator
    path = model_path(model).absolute()
    for export in (path / "export", path, path.parent):
        folders = export / "discriminator", export / "encoder"
        if all(map(is_model_folder, folders)) and path in (export.parent, export, folders[0]):
            return folders[1]
    return None


def is_hub_id(model: str) -> bool:
    """Whether a MODEL has the form of a Hugging Face id, OWNER/NAME, and is no network of an included model."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", model) is not None and find_included(model) is None


def _download(name: str) -> Path:
    """Download a model from the Hugging Face hub; return its folder."""
    missing = f"there is no folder {name}"
    require(f"{missing}; loading it from the Hugging Face hub", "hub", "huggingface_hub")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*_FILES, WEIGHTS]))
    except Exception as error:  # errors of the hub, of two HTTP libraries, and of the disk
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{missing}, and {name} cannot be downloaded from the Hugging Face hub: {reason}\n"
            "  without a network, give a folder or a model that was downloaded before"
        ) from error
    return folder
