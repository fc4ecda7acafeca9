"""The names of tensors in Hugging Face folders, for the parameters of our networks.

Blocks and embeddings are laid out alike in electra, bert and roberta; the prefix and the heads differ. An albert
has one block for each group of layers.

Shapes: D hidden size, L positions, V vocabulary.
"""

import re
from typing import Literal

import torch
from torch import Tensor, nn

from electra.modeling.encoders.base import Activation, EncoderConfig
from electra.modeling.encoders.bert import BertEncoder
from electra.modeling.sharing import group_of

Family = Literal["electra", "bert", "roberta", "albert", "xlnet"]
FAMILIES: tuple[Family, ...] = ("electra", "bert", "roberta", "albert")
"""Those with learnt positions."""
HeadKind = Literal[
    "discriminator", "generator", "language-model", "pair", "text", "linear-text", "token", "span",
    "conditional-span",
]  # fmt: skip
"""A logit a token of its having been replaced, a logit a word of the vocabulary, with a hidden layer before and
without, one of two segments not belonging together; and those of fine-tuned networks (modeling/task_heads.py)."""
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

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
_INSIDE_ALBERT = {
    "attention.query_key_value": ("attention.query", "attention.key", "attention.value"),
    "attention.output": ("attention.dense",),
    "attention_norm": ("attention.LayerNorm",),
    "feed_forward.inner": ("ffn",),
    "feed_forward.outer": ("ffn_output",),
    "feed_forward_norm": ("full_layer_layer_norm",),
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
    ("bert", "pair"): {"dense": "bert.pooler.dense", "prediction": "cls.seq_relationship"},
    ("xlnet", "language-model"): {"": "lm_loss"},
    ("roberta", "generator"): {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"},
    ("albert", "generator"): {
        "dense": "predictions.dense",
        "norm": "predictions.LayerNorm",
        "": "predictions",
    },
    ("albert", "pair"): {"dense": "albert.pooler", "prediction": "sop_classifier.classifier"},
}
POSITION_TABLE = "roberta.embeddings.position_embeddings.weight"
TOKEN_TABLE = "embeddings.word_embeddings.weight"
_COPIES: dict[str, str] = {
    "generator_lm_head.weight": f"electra.{TOKEN_TABLE}",
    "cls.predictions.decoder.weight": f"bert.{TOKEN_TABLE}",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "lm_head.decoder.weight": f"roberta.{TOKEN_TABLE}",
    "lm_head.decoder.bias": "lm_head.bias",
    "predictions.decoder.weight": f"albert.{TOKEN_TABLE}",
    "predictions.decoder.bias": "predictions.bias",
}
"""Tensors that a folder may hold a second time, with the name of the first; here they are one parameter."""


def family_of(config: EncoderConfig) -> Family:
    """The type whose classes compute what a masked language model of this shape does."""
    if config.checkpoint_format == "xlnet":
        return "xlnet"
    if config.square:
        return "roberta" if config.type_vocabulary_size == 1 else "bert"
    return "albert" if config.share_layers == "all" else "electra"


def heads(family: Family, kind: HeadKind) -> dict[str, str]:
    """Their names for the parts of a head. An xlnet has a class for words alone; others go as an electra's."""
    return _HEADS.get((family, kind)) or _HEADS["electra", kind]


def their_names(module: nn.Module, name: str, *, family: Family, kind: HeadKind) -> tuple[str, ...]:
    """Their names for one of our parameters, in the order in which they are joined along the first axis."""
    path, _, leaf = name.rpartition(".")
    if not isinstance(module, BertEncoder):
        return (f"{heads(family, kind)[path]}.{leaf}",)
    if path.startswith("blocks."):
        _, index, inside = path.split(".", 2)
        if family == "albert":
            config = module.config
            group = group_of(int(index), layers=config.layers, groups=config.layer_groups)
            block = f"albert.encoder.albert_layer_groups.{group}.albert_layers.0"
            return tuple(f"{block}.{part}.{leaf}" for part in _INSIDE_ALBERT[inside])
        return tuple(f"{family}.encoder.layer.{index}.{part}.{leaf}" for part in _INSIDE_BLOCKS[inside])
    if family == "albert" and path == "projection":
        return (f"albert.encoder.embedding_hidden_mapping_in.{leaf}",)
    return (f"{family}.{_OUTSIDE_BLOCKS[path]}.{leaf}",)


def their_shape(name: str, tensor: Tensor, family: Family, padding: int) -> Tensor:
    """One of our tensors as they have it, under their name.

    Two logits stand for one of a pair, of belonging and of not; and a roberta counts positions from behind the id
    of its padding.
    """
    if name.startswith(("cls.seq_relationship.", "sop_classifier.classifier.")):
        return torch.cat([torch.zeros_like(tensor), tensor])
    if family == "roberta" and name == POSITION_TABLE:
        return torch.cat([tensor.new_zeros(padding + 1, tensor.shape[1]), tensor])
    return tensor


def our_shape(name: str, tensor: Tensor, family: Family, padding: int) -> Tensor:
    """The other way round; tensors of another shape than can be are left as they are."""
    if name.startswith(("cls.seq_relationship.", "sop_classifier.classifier.")) and len(tensor) == 2:
        return tensor[1:] - tensor[:1]
    if family == "roberta" and name == POSITION_TABLE:
        return tensor[padding + 1 :]
    return tensor


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


def has_pairs(tensors: dict[str, Tensor], family: Family) -> bool:
    """Whether there is a head of pairs among these tensors."""
    names = _HEADS.get((family, "pair"), {}).values()
    return bool(names) and all(f"{name}.weight" in tensors for name in names)


def head_kind(tensors: dict[str, Tensor], family: Family) -> HeadKind | None:
    """The head that belongs to these tensors, if there is one."""
    known = (family, "electra") if family == "xlnet" else (family,)
    for (of, kind), names in _HEADS.items():
        prefixes = tuple(f"{their_name}." for their_name in names.values())
        if of in known and kind != "pair" and any(name.startswith(prefixes) for name in tensors):
            return kind
    return None
