"""Write and read Hugging Face folders without transformers.

transformers has classes that compute the same as electra's networks. It loads the folders that electra writes
without missing weights, and electra loads the folders that transformers writes. formats/ has one file for each
kind of encoder.
"""

import logging
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from electra import __version__, durable
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import SpecialTokens, load_tokenizer
from electra.errors import CheckpointError
from electra.export.formats.base import (
    CheckpointFormat,
    FolderConfig,
    Networks,
    format_of_encoder,
    format_of_folder,
)
from electra.export.formats.stored_fields import check_types, refuse
from electra.export.onnx.graph import is_onnx
from electra.export.pretrained import Head, Pretrained, head_kind
from electra.export.tokenizer_files import check_vocabulary_size, read_tokenizer, tokenizer_files
from electra.export.weights import FACTORS, read_weights
from electra.export.weights_file import WEIGHTS
from electra.json_files import json_text, raise_if_damaged, read_json
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.heads import SentencePairHead
from electra.tasks.catalog import load_problem, task_problems

logger = logging.getLogger(__name__)

OBJECTIVE, TASK, TRAINED_LENGTH = "electra_objective", "electra_task", "electra_trained_length"
"""Keys in config.json that only electra reads: the objective that trained the network, the description of its
task, and the longest input in training, if the network can read longer ones."""
_TYPES: dict[str, Any] = {
    "model_type": str,
    "architectures": list | None,
    "id2label": dict | None,
    "pad_token_id": int | None,
    OBJECTIVE: str | None,
    TASK: dict | None,
    TRAINED_LENGTH: int | None,
}
"""Types of the fields of config.json that all formats have."""
FILES = frozenset(
    (
        WEIGHTS, FACTORS, "README.md", "config.json",
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt",
    )
)  # fmt: skip
"""The names of all files that `save` can write."""
MAX_LISTED = 20
"""Maximum number of tensors that a message names."""


def save(
    folder: Path,
    *,
    encoder: EncoderModule,
    head: Head,
    tokenizer_json: Path,
    card: str,
    max_length: int | None = None,
    model_type: str | None = None,
    objective: str | None = None,
    task: dict[str, Any] | None = None,
    pairs: SentencePairHead | None = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a folder that transformers loads: with AutoModel, AutoTokenizer, and the class for the head.

    Each file is written under a temporary name and then renamed, config.json last, so a folder with a config.json
    is complete. Other files in the folder are kept.

    Args:
        tokenizer_json: the tokenizer with which the data was prepared.
        card: the text of README.md.
        max_length: the longest input that the network was trained on; None: the number of its positions.
        model_type: `model_type` of config.json; None: the default of the encoder's format. For a full-size masked
            language model it is `CheckpointFormat.language_model_type`.
        objective: the objective that trained the network (`objective.kind`), for electra.
        task: the description of the fine-tuning task, for electra.
        pairs: a head for pairs of segments; it is left out if the model type has none.
        dtype: of the stored weights. config.json says float32 in any case, so that transformers computes in it.

    Raises:
        DataError: the tokenizer cannot be read or lacks a special token.
        CheckpointError: the tokenizer has more entries than the token table has rows, the weights cannot be stored
            in `dtype`, or the folder cannot be written.
    """
    config = encoder.config
    checkpoint_format = format_of_encoder(config)
    model_type = model_type or checkpoint_format.model_types[0]
    tokenizer = load_tokenizer(tokenizer_json)
    check_vocabulary_size(tokenizer, config, tokenizer_json)
    special = tokenizers.special_tokens(tokenizer)
    networks = Networks(encoder, head, pairs if checkpoint_format.stores_pairs(model_type) else None)
    fields = {
        **_network_fields(networks, checkpoint_format, model_type, special),
        OBJECTIVE: objective,
        **({} if task is None else _task_fields(task)),
    }
    trained_length = max_length or config.max_positions
    longest = config.longest_input(trained_length)
    if trained_length < longest:
        fields[TRAINED_LENGTH] = trained_length
    texts = tokenizer_files(tokenizer, longest, segments=config.type_vocabulary_size > 1)
    texts |= {"README.md": card, "config.json": json_text(fields)}
    folder_config = FolderConfig(model_type, config, special.pad, head_kind(head))
    tensors = checkpoint_format.write_tensors(networks, folder_config)
    factors = checkpoint_format.fold(tensors)
    if dtype != torch.float32:
        if factors:
            raise CheckpointError(
                f"{folder}: a table that is stored as a product of two cannot be rounded like them; leave --dtype "
                "out"
            )
        tensors = {name: _rounded(name, tensor, dtype) for name, tensor in tensors.items()}
    _write(folder, {FACTORS: factors, WEIGHTS: tensors}, texts)


def save_pretrained(pretrained: Pretrained, folder: Path, *, source: Path) -> None:
    """Write a loaded model, whose weights may have changed, as a folder of the same type with the same card.

    Args:
        source: the folder from which the model was loaded.

    Raises:
        CheckpointError, DataError: as `save`.
    """
    assert pretrained.head is not None
    card = source / "README.md"
    with tempfile.TemporaryDirectory() as temporary:
        tokenizer_json = Path(temporary) / "tokenizer.json"
        pretrained.tokenizer.save(str(tokenizer_json))
        save(
            folder,
            encoder=pretrained.encoder,
            head=pretrained.head,
            tokenizer_json=tokenizer_json,
            card=card.read_text(encoding="utf-8") if card.is_file() else "",
            max_length=pretrained.trained_length,
            model_type=read_json(source / "config.json").get("model_type"),
            objective=pretrained.objective,
            task=pretrained.task,
            pairs=pretrained.pairs,
        )


def refuse_other_files(folder: Path) -> None:
    """Refuse to save a model in a folder that holds something else.

    A model may be there already, or files of a save that was interrupted.

    Raises:
        CheckpointError: the folder has other files, or its config.json cannot be read.
    """
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    if "config.json" in names:
        others = [] if "model_type" in read_json(folder / "config.json") else names
    else:
        was_interrupted = not {WEIGHTS, FACTORS}.isdisjoint(names)  # these are written first
        others = [name for name in names if name not in FILES] if was_interrupted else names
    if others:
        raise CheckpointError(
            f"{folder} is not empty and is no model (it has {', '.join(sorted(others)[:3])}); give a new folder"
        )


def _rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor in a smaller type.

    Raises:
        CheckpointError: a number is too large for it.
    """
    rounded = tensor.to(dtype)
    if not rounded.isfinite().all():
        raise CheckpointError(f"{name} has numbers that are too large for {dtype}; leave --dtype out")
    return rounded


def _write(folder: Path, files: Mapping[str, dict[str, Tensor]], texts: Mapping[str, str]) -> None:
    """Write the tensors and then the texts of a folder; a file without tensors is removed.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, contents in files.items():
            if contents:
                durable.write(folder / file, partial(save_file, contents, metadata={"format": "pt"}))
            else:
                (folder / file).unlink(missing_ok=True)
        for name, text in texts.items():
            durable.write_text(folder / name, text)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be written: {error}") from error


def _network_fields(
    networks: Networks, checkpoint_format: CheckpointFormat, model_type: str, special: SpecialTokens
) -> dict[str, Any]:
    """Return the fields of config.json that describe the networks."""
    assert networks.head is not None
    kind = head_kind(networks.head)
    encoder_fields = checkpoint_format.write_config(networks.encoder.config, model_type, kind, special)
    architecture = checkpoint_format.architecture(model_type, kind if networks.pairs is None else "pair")
    return {
        **({} if architecture is None else {"architectures": [architecture]}),
        "model_type": model_type,
        **encoder_fields,
        "pad_token_id": special.pad,
        "tie_word_embeddings": encoder_fields.get("tie_word_embeddings", True),
        "dtype": "float32",
        "electra_version": __version__,
    }


def load(folder: Path, *, quiet: bool = False) -> Pretrained:
    """Return the networks and the tokenizer of a Hugging Face folder.

    Heads that electra does not know, such as a classifier that transformers fine-tuned, are ignored, with a log
    message.

    Args:
        quiet: without that message, for callers that log `Pretrained.unused`, or have loaded the folder before.

    Raises:
        CheckpointError: a file is missing or damaged, electra has no such network, or tensors are missing, unknown
            or of another shape; the message names them.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    if is_onnx(folder):
        raise CheckpointError(
            f"{folder} is an ONNX folder, for score, predict and serve; give the model from which it was exported"
        )
    path = folder / "config.json"
    fields = read_json(path)
    problems: list[str] = []
    with raise_if_damaged(path):
        task = check_types(fields, _TYPES, problems).get(TASK)
        problems += [f"{TASK}.{problem}" for problem in task_problems(task or {})]
        refuse(problems, path)
        checkpoint_format = format_of_folder(fields, path)
        config = checkpoint_format.read_config(fields, path)
        if config.encoder.vocabulary_size < 1:
            raise ValueError("the vocabulary size must be at least 1")
        trained_length = fields.get(TRAINED_LENGTH) or sys.maxsize
        if trained_length < 1:
            raise ValueError(f"{TRAINED_LENGTH} must be at least 1, found {trained_length}")
    tensors = read_weights(folder)
    renamed, dropped = _renamed(checkpoint_format, tensors, config.model_type)
    with raise_if_damaged(path):
        networks = checkpoint_format.load_networks(config, tensors, task=task is not None, problems=problems)
    if problems:
        raise CheckpointError(f"{folder}: the weights do not fit config.json:\n" + _list(problems))
    if tensors and not quiet:
        logger.info("%s: ignored %s, which belong to another head", folder, ", ".join(sorted(tensors)))
    tokenizer, max_length = read_tokenizer(folder, networks.encoder.config)
    return Pretrained(
        networks.encoder,
        networks.head,
        tokenizer,
        fields.get(OBJECTIVE),
        max_length,
        task,
        networks.pairs,
        trained_length=min(max_length, trained_length),
        unused=(*sorted(tensors), *dropped),
        renamed={stored: name for stored, name in renamed.items() if name not in tensors},
    )


def _renamed(
    checkpoint_format: CheckpointFormat, tensors: dict[str, Tensor], model_type: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the tensors that the format renames (stored name: new name), and the names of those that it drops."""
    names = {id(tensor): name for name, tensor in checkpoint_format.rename(dict(tensors), model_type).items()}
    kept = {name: names[id(tensor)] for name, tensor in sorted(tensors.items()) if id(tensor) in names}
    dropped = tuple(sorted(tensors.keys() - kept.keys()))
    return {stored: name for stored, name in kept.items() if stored != name}, dropped


def _task_fields(task: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of config.json for a fine-tuning task: for electra, and labels for transformers."""
    problem = load_problem(task)
    fields: dict[str, Any] = {TASK: task}
    if names := problem.exported_names:
        numbers = {name: names.index(name) for name in names}
        # Of several outputs with one name, transformers trains the one that has this name in electra, too.
        numbers |= {name: number for number, name in enumerate(problem.output_names) if name in numbers}
        fields |= {
            "id2label": {str(number): name for number, name in enumerate(names)},
            "label2id": numbers,
        }
    return fields | ({} if problem.problem_type is None else {"problem_type": problem.problem_type})


def _list(problems: list[str]) -> str:
    more = [f"... and {len(problems) - MAX_LISTED} more"] if len(problems) > MAX_LISTED else []
    return "\n".join(f"  {line}" for line in [*problems[:MAX_LISTED], *more])
