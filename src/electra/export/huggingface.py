"""Hugging Face folders, out and in, without transformers: names, configuration and tokenizer files by hand.

Post-norm blocks, learnt positions and tied tables are what transformers' Electra classes compute, so a folder
written here loads there with no weight missing, and one written there loads here.

Shapes: D hidden size, E embedding size, V vocabulary.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra import __version__
from electra.data import tokenizer as tokenizers
from electra.errors import CheckpointError
from electra.modeling.encoder import Encoder, EncoderConfig
from electra.modeling.heads import MaskedLanguageModelHead, ReplacedTokenHead

logger = logging.getLogger(__name__)

Kind = Literal["discriminator", "generator"]
ARCHITECTURES: dict[Kind, str] = {
    "discriminator": "ElectraForPreTraining",
    "generator": "ElectraForMaskedLM",
}
WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
_TOKEN_TABLE = "electra.embeddings.word_embeddings.weight"

_OUTSIDE_BLOCKS = {
    "embeddings.token": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.segment": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "projection": "embeddings_project",
}
_INSIDE_BLOCKS = {
    "attention.query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.inner": ("intermediate.dense",),
    "feed_forward.outer": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}
_HEADS: dict[Kind, dict[str, str]] = {
    "discriminator": {
        "dense": "discriminator_predictions.dense",
        "prediction": "discriminator_predictions.dense_prediction",
    },
    "generator": {
        "dense": "generator_predictions.dense",
        "norm": "generator_predictions.LayerNorm",
        "": "generator_lm_head",  # its weight is the token table, which is stored once
    },
}
# Their name for each field, and what it is where the file leaves it out.
_FIELDS: dict[str, tuple[str, int | float]] = {
    "layers": ("num_hidden_layers", 12),
    "hidden_size": ("hidden_size", 256),
    "embedding_size": ("embedding_size", 128),
    "feed_forward_size": ("intermediate_size", 1024),
    "heads": ("num_attention_heads", 4),
    "vocabulary_size": ("vocab_size", 30522),
    "max_positions": ("max_position_embeddings", 512),
    "type_vocabulary_size": ("type_vocab_size", 2),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "layer_norm_epsilon": ("layer_norm_eps", 1e-12),
    "initializer_range": ("initializer_range", 0.02),
}
# Settings of theirs that change what is computed, with the value that is computed here (and is their default).
_REQUIRED: dict[str, str | bool] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


@dataclass(frozen=True)
class Pretrained:
    """What a folder holds. The networks are in evaluation mode, in fp32, on the CPU."""

    encoder: Encoder
    head: MaskedLanguageModelHead | ReplacedTokenHead | None
    """None where the folder has an encoder alone, or one that was fine-tuned for a task."""
    kind: Kind
    tokenizer: Tokenizer
    max_length: int
    """The longest input, special tokens included: later positions exist, perhaps, but were never trained."""


def save(
    folder: Path,
    *,
    encoder: Encoder,
    head: MaskedLanguageModelHead | ReplacedTokenHead,
    tokenizer_json: Path,
    card: str,
    max_length: int | None = None,
) -> None:
    """Write a folder that transformers' AutoModel, AutoTokenizer and the class of the head load.

    Every file is written beside its place and then renamed, config.json as the last: a folder that has one is
    whole. Files of other names are left alone.

    Args:
        tokenizer_json: the file that the data was prepared with.
        card: the text of README.md.
        max_length: the longest input that the network was trained on; None: as many as it has positions.

    Raises:
        DataError: the tokenizer cannot be read or lacks a special token.
        CheckpointError: the tokenizer has more entries than the network has rows, or the disk refuses.
    """
    config = encoder.config
    kind: Kind = "discriminator" if isinstance(head, ReplacedTokenHead) else "generator"
    tokenizer = tokenizers.load(tokenizer_json)
    _agree(tokenizer, config, tokenizer_json)
    tensors = {name: tensor for module in (encoder, head) for name, tensor in _their_tensors(module, kind)}
    texts = _tokenizer_files(tokenizer, min(max_length or config.max_positions, config.max_positions))
    texts |= {"README.md": card, "config.json": _json(_their_config(config, kind, tokenizer))}

    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, partial := folder / f".{WEIGHTS}.partial", metadata={"format": "pt"})
        partial.replace(folder / WEIGHTS)
        for name, text in texts.items():
            (partial := folder / f".{name}.partial").write_text(text, encoding="utf-8")
            partial.replace(folder / name)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be written: {error}") from error


def load(folder: Path) -> Pretrained:
    """The networks and the tokenizer of a Hugging Face folder of type electra.

    Heads of other kinds (a classifier that was fine-tuned, say) are passed over, and named in the log.

    Raises:
        CheckpointError: a file is missing or damaged, the folder is no ELECTRA as it is computed here, or
            tensors are missing, unknown or of another shape; each one is named.
        DataError: the tokenizer cannot be read or lacks a special token.
    """
    config = _our_config(folder / "config.json")
    tensors = {_with_prefix(name): tensor.float() for name, tensor in _read_weights(folder).items()}
    kind: Kind = "generator" if any(name.startswith("generator_") for name in tensors) else "discriminator"
    has_head = any(name.startswith(f"{kind}_predictions.") for name in tensors)
    with torch.device("meta"):  # no time for weights that are replaced at once
        encoder = Encoder(config)
        head = _head(kind, config) if has_head else None
    problems: list[str] = []
    table_VE = tensors.pop("generator_lm_head.weight", None)
    if table_VE is not None and not torch.equal(table_VE, tensors.get(_TOKEN_TABLE, table_VE)):
        problems.append(f"generator_lm_head.weight: differs from {_TOKEN_TABLE}; here the two are one table")
    modules: list[nn.Module] = [encoder] if head is None else [encoder, head]
    states = [_our_state(module, kind, tensors, problems) for module in modules]
    problems.extend(f"{name}: is not known here" for name in sorted(tensors) if name.startswith("electra."))
    if problems:
        raise CheckpointError(
            f"{folder}: the weights do not fit config.json:\n" + "\n".join(f"  {p}" for p in problems)
        )
    if tensors:
        logger.info("%s: passed over %s, which belong to another head", folder, ", ".join(sorted(tensors)))
    for module, state in zip(modules, states, strict=True):
        module.load_state_dict(state, assign=True)
        module.eval()
    tokenizer, max_length = _read_tokenizer(folder, config)
    return Pretrained(encoder, head, kind, tokenizer, max_length)


def _head(kind: Kind, config: EncoderConfig) -> MaskedLanguageModelHead | ReplacedTokenHead:
    return MaskedLanguageModelHead(config) if kind == "generator" else ReplacedTokenHead(config)


def _their_names(module: nn.Module, kind: Kind, name: str) -> tuple[str, ...]:
    """Their names for one of our parameters, in the order in which they are joined along the first axis."""
    path, _, leaf = name.rpartition(".")
    if not isinstance(module, Encoder):
        return (f"{_HEADS[kind][path]}.{leaf}",)
    if path.startswith("blocks."):
        _, index, inside = path.split(".", 2)
        return tuple(f"electra.encoder.layer.{index}.{part}.{leaf}" for part in _INSIDE_BLOCKS[inside])
    return (f"electra.{_OUTSIDE_BLOCKS[path]}.{leaf}",)


def _their_tensors(module: nn.Module, kind: Kind) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in module.named_parameters():
        names = _their_names(module, kind, name)
        for their_name, part in zip(names, parameter.detach().float().chunk(len(names)), strict=True):
            # A copy each: safetensors refuses tensors that share memory.
            yield their_name, part.cpu().clone(memory_format=torch.contiguous_format)


def _our_state(
    module: nn.Module, kind: Kind, tensors: dict[str, Tensor], problems: list[str]
) -> dict[str, Tensor]:
    """The state of a module, taken out of `tensors`; what is wrong with it is added to `problems`."""
    state: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        names = _their_names(module, kind, name)
        expected = (parameter.shape[0] // len(names), *parameter.shape[1:])
        parts: list[Tensor] = []
        for their_name in names:
            part = tensors.pop(their_name, None)
            if part is None:
                problems.append(f"{their_name}: is missing; expected {expected}")
            elif tuple(part.shape) != expected:
                problems.append(f"{their_name}: expected {expected}, found {tuple(part.shape)}")
            else:
                parts.append(part)
        if len(parts) == len(names):
            state[name] = torch.cat(parts)
    return state


def _with_prefix(name: str) -> str:
    """Names as the classes with a head have them; a bare encoder's lack the prefix."""
    return f"electra.{name}" if name.startswith(("embeddings.", "embeddings_project.", "encoder.")) else name


def _read_weights(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    try:
        if path.is_file():
            tensors = load_file(path)
        elif (path := folder / OLD_WEIGHTS).is_file():
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        else:
            raise CheckpointError(f"{folder} has neither {WEIGHTS} nor {OLD_WEIGHTS}")
    except (SafetensorError, OSError, RuntimeError, UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is damaged or cut short: {reason}") from error
    return {
        name: tensor for name, tensor in tensors.items() if not name.endswith(("position_ids", "token_type_ids"))
    }


def _their_config(config: EncoderConfig, kind: Kind, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": "electra",
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _FIELDS.items()},
        "hidden_act": "gelu",
        "pad_token_id": tokenizers.special_tokens(tokenizer).pad,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "electra_version": __version__,
    }


def _our_config(path: Path) -> EncoderConfig:
    theirs = _read_json(path)
    required = {"model_type": "electra"} | _REQUIRED
    problems = [
        f"{name} is {found!r}; only {value!r} is computed here"
        for name, value in required.items()
        if (found := theirs.get(name, _REQUIRED.get(name))) != value
    ]
    values = {ours: theirs.get(name, default) for ours, (name, default) in _FIELDS.items()}
    for ours, (name, default) in _FIELDS.items():
        allowed = int if isinstance(default, int) else int | float
        if not isinstance(values[ours], allowed) or isinstance(values[ours], bool):
            problems.append(f"{name} must be a number, found {values[ours]!r}")
    if not problems:
        problems.extend(EncoderConfig(**values).problems())
    if problems:
        raise CheckpointError(f"{path}: this model cannot be loaded:\n" + "\n".join(f"  {p}" for p in problems))
    return EncoderConfig(**values)


def _tokenizer_files(tokenizer: Tokenizer, max_length: int) -> dict[str, str]:
    """The texts of the tokenizer's files by name."""
    special = tokenizers.special_tokens(tokenizer)
    names = {
        role: tokenizer.id_to_token(token)
        for role, token in (
            ("cls_token", special.classify),
            ("mask_token", special.mask),
            ("pad_token", special.pad),
            ("sep_token", special.separate),
            ("unk_token", special.unknown),
        )
    }
    facts = tokenizers.describe(tokenizer)
    settings: dict[str, Any] = {
        # Bert's class rebuilds the tokenizer from its vocabulary; this one takes tokenizer.json as it is.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **names,
    }
    files = {"tokenizer.json": tokenizer.to_str(pretty=True), "special_tokens_map.json": _json(names)}
    if facts["kind"] == "wordpiece":
        settings |= {"do_lower_case": facts["lowercase"], "strip_accents": facts["strip_accents"]}
        entries = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        if [i for _, i in entries] == list(range(len(entries))):  # a line is an id
            files["vocab.txt"] = "".join(f"{entry}\n" for entry, _ in entries)
    return files | {"tokenizer_config.json": _json(settings)}


def _read_tokenizer(folder: Path, config: EncoderConfig) -> tuple[Tokenizer, int]:
    """The tokenizer and the longest input."""
    tokenizer = tokenizers.load(folder)
    _agree(tokenizer, config, folder)
    length = _read_json(folder / "tokenizer_config.json", optional=True).get("model_max_length")
    # Where transformers knows no limit, it writes 1e30.
    return tokenizer, min(int(length), config.max_positions) if length else config.max_positions


def _agree(tokenizer: Tokenizer, config: EncoderConfig, source: Path) -> None:
    entries = tokenizers.vocabulary_size(tokenizer)
    if entries > config.vocabulary_size:
        raise CheckpointError(
            f"{source}: the tokenizer has {entries} entries, the token table only {config.vocabulary_size} rows; "
            "one of the two belongs to another model"
        )


def _read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, found {type(value).__name__}")
    return value


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
