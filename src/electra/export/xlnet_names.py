"""XLNet's tensors by the names that transformers gives them, for a `RelativeEncoder`, out and in.

Their projections lie as (D, H, K), so that a state times one gives the heads; ours are weights of linear layers.
transformers computes what we compute with the fields of `config_fields`: a distance is not clamped, the batch is
not half reversed, a query sees as far back as there are keys, all of a batch may enter the memory, and each layer
has biases of its own (`untie_r`, which transformers' code takes for granted).

Shapes: D hidden size, H heads, K head size, V vocabulary.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from electra.config import problems_of
from electra.errors import CheckpointError
from electra.export.names import ACTIVATIONS
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.relative import RelativeConfig

PREFIX = "transformer."
WORD_BIAS, WORD_TABLE = "lm_loss.bias", "lm_loss.weight"
_OUTSIDE_BLOCKS = {"embeddings.token.weight": "word_embedding.weight", "query_stream.weight": "mask_emb"}
_INSIDE_BLOCKS = {
    "attention.query.weight": ("rel_attn.q",),
    "attention.key_value.weight": ("rel_attn.k", "rel_attn.v"),
    "attention.position.weight": ("rel_attn.r",),
    "attention.output.weight": ("rel_attn.o",),
    "attention.content_bias": ("rel_attn.r_w_bias",),
    "attention.position_bias": ("rel_attn.r_r_bias",),
    "attention.segment_bias": ("rel_attn.r_s_bias",),
    "attention.segments.weight": ("rel_attn.seg_embed",),
    **{
        f"{ours}.{leaf}": (f"{theirs}.{leaf}",)
        for ours, theirs in {
            "attention_norm": "rel_attn.layer_norm",
            "feed_forward.inner": "ff.layer_1",
            "feed_forward.outer": "ff.layer_2",
            "feed_forward_norm": "ff.layer_norm",
        }.items()
        for leaf in ("weight", "bias")
    },
}
_PROJECTIONS = ("rel_attn.q", "rel_attn.k", "rel_attn.v", "rel_attn.r")
_BY_HEAD = (
    *_PROJECTIONS,
    *(f"rel_attn.{name}" for name in ("o", "r_w_bias", "r_r_bias", "r_s_bias", "seg_embed")),
)
_SEGMENTS = ("attention.segment_bias", "attention.segments.weight")
_FIELDS = {
    "layers": "n_layer",
    "hidden_size": "d_model",
    "feed_forward_size": "d_inner",
    "heads": "n_head",
    "vocabulary_size": "vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "dropout": "dropout",
}
# Settings of theirs that change what is computed, with the value that is computed here (and is their default).
_REQUIRED: dict[str, Any] = {"clamp_len": -1, "bi_data": False, "same_length": False, "untie_r": True}


def to_xlnet(state: Mapping[str, Tensor], *, heads: int, word_bias_V: Tensor | None = None) -> dict[str, Tensor]:
    """The tensors of XLNetLMHeadModel for the state of a `RelativeEncoder`.

    Where ours has no segments or no query stream, theirs are 0. The logits' table is that of the embeddings, which
    `tie_word_embeddings` says, so it is not held a second time.

    Args:
        state: of `RelativeEncoder.state_dict`.
        heads: of the network.
        word_bias_V: what is added to the logits of words; None: nothing.
    """
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
    table_VD = state["embeddings.token.weight"]
    D = table_VD.shape[1]
    found = {PREFIX + "word_embedding.weight": table_VD}
    found[PREFIX + "mask_emb"] = state.get("query_stream.weight", table_VD.new_zeros(1, D)).view(1, 1, -1)
    found[WORD_BIAS] = table_VD.new_zeros(len(table_VD)) if word_bias_V is None else word_bias_V
    absent = {"attention.segment_bias": (D,), "attention.segments.weight": (2, D)}
    for layer in range(layers):
        for ours, theirs in _INSIDE_BLOCKS.items():
            tensor = state.get(f"blocks.{layer}.{ours}")
            if tensor is None:
                tensor = table_VD.new_zeros(absent[ours])
            for name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
                found[f"{PREFIX}layer.{layer}.{name}"] = _their_layout(name, part, (heads, D // heads))
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in found.items()}


def from_xlnet(
    tensors: Mapping[str, Tensor], *, segments: bool = True, query_stream: bool = True
) -> tuple[dict[str, Tensor], Tensor | None]:
    """The state of a `RelativeEncoder` for XLNet's tensors, and the bias of the words' logits if there is one.

    Heads of other tasks are left out. A bare XLNetModel's names lack the prefix.

    Args:
        segments, query_stream: whether the network is to have them; without, theirs are left out.

    Raises:
        CheckpointError: tensors are missing, belong to no place, or the table of the logits is another one.
    """
    prefix = PREFIX if any(name.startswith(PREFIX) for name in tensors) else ""
    inner = {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    heads = ("lm_loss.", "sequence_summary.", "logits_proj.", "qa_outputs.", "classifier.")
    inner = {name: tensor for name, tensor in inner.items() if prefix or not name.startswith(heads)}
    layers = {int(name.split(".")[1]) for name in inner if name.startswith("layer.")}
    wanted: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in _OUTSIDE_BLOCKS.items()}
    for layer in sorted(layers):
        for ours, names in _INSIDE_BLOCKS.items():
            wanted[f"blocks.{layer}.{ours}"] = tuple(f"layer.{layer}.{name}" for name in names)
    problems = [f"{name}: is missing" for names in wanted.values() for name in names if name not in inner]
    known = {name for names in wanted.values() for name in names}
    problems += [f"{name}: belongs to no place" for name in inner if name not in known]
    table = tensors.get(WORD_TABLE)
    if table is not None and "word_embedding.weight" in inner and not table.equal(inner["word_embedding.weight"]):
        problems.append(f"{WORD_TABLE}: differs from word_embedding.weight; here the two are one")
    if problems:
        raise CheckpointError("these are not the tensors of an XLNet:\n" + "\n".join(f"  {p}" for p in problems))
    left_out = (() if segments else _SEGMENTS) + (() if query_stream else ("query_stream.weight",))
    state = {
        ours: torch.cat([_our_layout(name, inner[name]) for name in names])
        for ours, names in wanted.items()
        if not ours.endswith(left_out)
    }
    return state, tensors.get(WORD_BIAS)


def config_fields(config: EncoderConfig) -> dict[str, Any]:
    """The fields of config.json with which transformers' XLNet computes what ours does.

    Its one dropout is that of states; it has none of its own for attention. With `use_mems_train` a training step
    takes and gives memories too, as ours does; without a `memory_length` it is to keep none, since for it a
    `mem_len` of 0 means to keep everything.
    """
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    remembers = config.memory_length > 0
    return {
        "architectures": ["XLNetLMHeadModel"],
        "model_type": "xlnet",
        **{theirs: getattr(config, ours) for ours, theirs in _FIELDS.items()},
        "d_head": config.hidden_size // config.heads,
        "ff_activation": activation,
        "attn_type": "uni" if config.direction == "left" else "bi",
        "mem_len": config.memory_length or None,
        "reuse_len": None,
        "use_mems_eval": remembers,
        "use_mems_train": remembers,
        **_REQUIRED,
        "tie_word_embeddings": True,
    }


def config_of(fields: Mapping[str, Any], source: str | Path = "this XLNet") -> EncoderConfig:
    """The network that a config.json of an XLNet describes.

    `reuse_len` is not read: it decides how many tokens of a batch enter the memory, not what is computed of them.

    Raises:
        CheckpointError: it describes one that is not computed here; every reason is named.
    """
    defaults: dict[str, Any] = {
        "n_layer": 24, "d_model": 1024, "d_inner": 4096, "n_head": 16, "vocab_size": 32000,
        "layer_norm_eps": 1e-12, "initializer_range": 0.02, "dropout": 0.1,
    }  # fmt: skip
    problems = [
        f"{name} is {found!r}; only {value!r} is computed here"
        for name, value in _REQUIRED.items()
        if (found := fields.get(name, value)) != value and not (name == "clamp_len" and found <= 0)
    ]
    values = {ours: fields.get(theirs, defaults[theirs]) for ours, theirs in _FIELDS.items()}
    activation, direction = fields.get("ff_activation", "gelu"), fields.get("attn_type", "bi")
    if activation not in ACTIVATIONS:
        problems.append(f"ff_activation is {activation!r}; computed here are {', '.join(ACTIVATIONS)}")
    if direction not in ("bi", "uni"):
        problems.append(f"attn_type is {direction!r}; computed here are bi, uni")
    if not problems:
        config = RelativeConfig(
            **values,
            embedding_size=values["hidden_size"],
            attention_dropout=values["dropout"],
            activation=ACTIVATIONS[activation],
            direction="left" if direction == "uni" else "both",
            memory_length=fields.get("mem_len") or 0,
        )
        problems.extend(problems_of(config))
    if problems:
        raise CheckpointError(f"{source} cannot be loaded:\n" + "\n".join(f"  {p}" for p in problems))
    return config


def _their_layout(name: str, tensor: Tensor, heads: tuple[int, int]) -> Tensor:
    if name in _PROJECTIONS:
        tensor = tensor.T
    return tensor.unflatten(-1, heads) if name in _BY_HEAD else tensor


def _our_layout(name: str, tensor: Tensor) -> Tensor:
    if name == "mask_emb":
        return tensor.view(1, -1)
    name = name.split(".", 2)[-1]
    if name in _BY_HEAD:
        tensor = tensor.flatten(-2)
    return tensor.T if name in _PROJECTIONS else tensor
