"""Hugging Face folders, written and read without transformers.

transformers' classes compute the same as our networks, so a folder that is written here loads there with no weight
missing, and a folder that was written there loads here. formats/ has one file for each kind of encoder.
"""

import logging
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from electra import __version__, durable
from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export.formats.base import FolderConfig, Networks, format_of_encoder, format_of_folder
from electra.export.onnx.graph import is_onnx
from electra.export.pretrained import Head, Pretrained, head_kind
from electra.export.tokenizer_files import agree, read_tokenizer, tokenizer_files
from electra.export.weights import WEIGHTS, read_weights
from electra.json_files import json_text, read_json
from electra.modeling.encoders.base import EncoderModule
from electra.modeling.heads import SentencePairHead
from electra.tasks.catalog import load_problem

logger = logging.getLogger(__name__)

OBJECTIVE, TASK = "electra_objective", "electra_task"
"""Our keys in config.json: the objective that trained the network, and the description of its task."""
MAX_LISTED = 20
"""Tensors that a message names; a folder may have hundreds that do not fit."""


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
) -> None:
    """Write a folder that transformers' AutoModel, AutoTokenizer and the class of the head load.

    Each file is written under another name and then renamed, config.json last, so a folder with a config.json is
    complete. Files of other names are left alone.

    Args:
        tokenizer_json: the file that the data was prepared with.
        card: the text of README.md.
        max_length: the longest input that the network was trained on; None: the number of its positions.
        model_type: `model_type` of config.json; None: the default of the encoder's format. For a full-size masked
            language model it is `CheckpointFormat.language_model_type`.
        objective, task: what the network was trained by, and for; electra reads them again.
        pairs: a head for pairs of segments; it is left out if the model type has none.

    Raises:
        DataError: the tokenizer cannot be read or lacks a special token.
        CheckpointError: the tokenizer has more entries than the token table has rows, or the disk refuses.
    """
    config = encoder.config
    checkpoint_format = format_of_encoder(config)
    model_type = model_type or checkpoint_format.model_types[0]
    tokenizer = load_tokenizer(tokenizer_json)
    agree(tokenizer, config, tokenizer_json)
    special = tokenizers.special_tokens(tokenizer)
    kind = head_kind(head)
    networks = Networks(encoder, head, pairs if checkpoint_format.stores_pairs(model_type) else None)
    architecture = checkpoint_format.architecture(model_type, kind if networks.pairs is None else "pair")
    description = {
        **({} if architecture is None else {"architectures": [architecture]}),
        "model_type": model_type,
        **checkpoint_format.write_config(config, model_type, kind, special),
        "pad_token_id": special.pad,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "electra_version": __version__,
        OBJECTIVE: objective,
        **({} if task is None else _task_fields(task)),
    }
    longest = max_length or config.max_positions
    texts = tokenizer_files(
        tokenizer,
        min(longest, config.max_positions) if config.position_table else longest,
        segments=config.type_vocabulary_size > 1,
    )
    texts |= {"README.md": card, "config.json": json_text(description)}
    tensors = checkpoint_format.write_tensors(networks, FolderConfig(model_type, config, special.pad))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        durable.write(folder / WEIGHTS, lambda partial: save_file(tensors, partial, metadata={"format": "pt"}))
        for name, text in texts.items():
            durable.write_text(folder / name, text)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be written: {error}") from error


def load(folder: Path) -> Pretrained:
    """Return the networks and the tokenizer of a Hugging Face folder.

    Heads that electra does not know (a classifier that was fine-tuned elsewhere) are left out and logged.

    Raises:
        CheckpointError: a file is missing or damaged, electra does not compute such a network, or tensors are
            missing, unknown or of another shape; each one is named.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    if is_onnx(folder):
        raise CheckpointError(
            f"{folder} is an ONNX folder, for score, predict and serve; give the model that it was made from"
        )
    path = folder / "config.json"
    fields = read_json(path)
    checkpoint_format = format_of_folder(fields, path)
    config = checkpoint_format.read_config(fields, path)
    task = fields.get(TASK)
    tensors = read_weights(folder)
    problems: list[str] = []
    networks = checkpoint_format.load_networks(config, tensors, task=task is not None, problems=problems)
    if problems:
        raise CheckpointError(f"{folder}: the weights do not fit config.json:\n" + _list(problems))
    if tensors:
        logger.info("%s: left out %s, which belong to another head", folder, ", ".join(sorted(tensors)))
    tokenizer, max_length = read_tokenizer(folder, networks.encoder.config)
    return Pretrained(
        networks.encoder, networks.head, tokenizer, fields.get(OBJECTIVE), max_length, task, networks.pairs
    )


def _task_fields(task: dict[str, Any]) -> dict[str, Any]:
    """Return the task of a fine-tuned model, and its labels as transformers stores them."""
    problem = load_problem(task)
    fields: dict[str, Any] = {TASK: task}
    if names := problem.output_names:
        fields |= {
            "id2label": {str(number): name for number, name in enumerate(names)},
            "label2id": {name: number for number, name in enumerate(names)},
        }
    return fields | ({} if problem.problem_type is None else {"problem_type": problem.problem_type})


def _list(problems: list[str]) -> str:
    more = [f"... and {len(problems) - MAX_LISTED} more"] if len(problems) > MAX_LISTED else []
    return "\n".join(f"  {line}" for line in [*problems[:MAX_LISTED], *more])
