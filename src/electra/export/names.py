"""The names of tensors in Hugging Face folders of type electra and bert, for the parameters of our networks.

Blocks and embeddings are laid out alike in both; the prefix and the heads differ.

Shapes: D hidden size, V vocabulary.
"""

import re
from typing import Literal

from torch import Tensor, nn

from electra.modeling.encoder import Encoder

Family = Literal["electra", "bert"]
FAMILIES: tuple[Family, ...] = ("electra", "bert")
HeadKind = Literal["discriminator", "generator", "text", "linear-text", "token", "span", "conditional-span"]
"""A logit a token of its having been replaced, or a logit a word of the vocabulary; and those of fine-tuned
networks (modeling/task_heads.py)."""

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
_HEADS: dict[tuple[Family, HeadKind], dict[str, str]] = {
    ("electra", "discriminator"): {
        "dense": "discriminator_predictions.dense",
        "prediction": "discriminator_predictions.dense_prediction",
    },
    ("electra", "generator"): {
        "dense": "generator_predictions.dense",
        "norm": "generator_predictions.LayerNorm",
        "": "generator_lm_head",
    },
    ("electra", "text"): {"dense": "classifier.dense", "prediction": "classifier.out_proj"},
    ("electra", "linear-text"): {"prediction": "linear_classifier"},
    ("electra", "token"): {"prediction": "classifier"},
    ("electra", "span"): {"prediction": "qa_outputs"},
    ("electra", "conditional-span"): {
        part: f"conditional_span.{part}"
        for part in ("start", "end_dense", "end", "answerable_dense", "answerable")
    },
    ("bert", "generator"): {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "": "cls.predictions",
    },
}
TOKEN_TABLE = "embeddings.word_embeddings.weight"
_COPIES: dict[str, str] = {
    "generator_lm_head.weight": f"electra.{TOKEN_TABLE}",
    "cls.predictions.decoder.weight": f"bert.{TOKEN_TABLE}",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Tensors that a folder may hold a second time, with the name of the first; here they are one parameter."""


def their_names(module: nn.Module, name: str, *, family: Family, kind: HeadKind) -> tuple[str, ...]:
    """Their names for one of our parameters, in the order in which they are joined along the first axis."""
    path, _, leaf = name.rpartition(".")
    if not isinstance(module, Encoder):
        return (f"{_HEADS[family, kind][path]}.{leaf}",)
    if path.startswith("blocks."):
        _, index, inside = path.split(".", 2)
        return tuple(f"{family}.encoder.layer.{index}.{part}.{leaf}" for part in _INSIDE_BLOCKS[inside])
    return (f"{family}.{_OUTSIDE_BLOCKS[path]}.{leaf}",)


def renamed(tensors: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Tensors by the names that the classes with a head have today.

    A bare encoder's names lack the prefix, old files call weight and bias of a LayerNorm gamma and beta, and some
    hold what can be computed.
    """
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(("position_ids", "embeddings.token_type_ids")):
            continue
        prefixed = re.sub(r"^(?=embeddings\.|embeddings_project\.|encoder\.|pooler\.)", f"{family}.", name)
        today = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", prefixed)
        found[re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", today)] = tensor
    return found


def take_copies(tensors: dict[str, Tensor], problems: list[str]) -> None:
    """Take what is held a second time out of `tensors`; one that differs is added to `problems`."""
    for copy, name in _COPIES.items():
        tensor = tensors.pop(copy, None)
        if tensor is None:
            continue
        first = tensors.setdefault(name, tensor)
        if first.shape != tensor.shape or not bool((first == tensor).all()):
            problems.append(f"{copy}: differs from {name}; here the two are one")


def head_kind(tensors: dict[str, Tensor], family: Family) -> HeadKind | None:
    """The head that belongs to these tensors, if there is one."""
    for (of, kind), names in _HEADS.items():
        prefixes = tuple(f"{their_name}." for their_name in names.values())
        if of == family and any(name.startswith(prefixes) for name in tensors):
            return kind
    return None
