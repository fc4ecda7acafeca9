"""Folders of type xlnet: encoders with relative positions, of Transformer-XL and XLNet.

transformers stores the projections of attention as (D, H, K); electra's are weights of linear layers. With the
fields of `write_config`, transformers computes the same as electra: distances are not clamped, no half of the
batch is reversed, a query attends to all earlier keys, all tokens of a batch may enter the memory, and each layer
has its own biases (`untie_r`, which transformers' code assumes).

Shapes: D hidden size, H heads, K head size, V vocabulary.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from electra.config import problems_of
from electra.data.tokenizer import SpecialTokens
from electra.export.formats.base import ACTIVATIONS, HEAD_NAMES, CheckpointFormat, FolderConfig
from electra.export.formats.stored_fields import check_types, read_numbers, refuse, shown
from electra.export.pretrained import HeadKind
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.modeling.encoders.relative import RelativeConfig, RelativeEncoder

PREFIX = "transformer."
_SEGMENTS = "electra_segments"
"""A key that only electra reads: whether the network has segments. transformers' XLNet always has segments."""
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
        f"{module}.{leaf}": (f"{stored}.{leaf}",)
        for module, stored in {
            "attention_norm": "rel_attn.layer_norm",
            "feed_forward.inner": "ff.layer_1",
            "feed_forward.outer": "ff.layer_2",
            "feed_forward_norm": "ff.layer_norm",
        }.items()
        for leaf in ("weight", "bias")
    },
}
_TRANSPOSED = ("rel_attn.q", "rel_attn.k", "rel_attn.v", "rel_attn.r")
_BY_HEAD = (
    *_TRANSPOSED,
    *(f"rel_attn.{name}" for name in ("o", "r_w_bias", "r_r_bias", "r_s_bias", "seg_embed")),
)
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
_DEFAULTS: dict[str, Any] = {
    "n_layer": 24, "d_model": 1024, "d_inner": 4096, "n_head": 16, "vocab_size": 32000, "layer_norm_eps": 1e-12,
    "initializer_range": 0.02, "dropout": 0.1,
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "clamp_len": int,
    "ff_activation": str,
    "attn_type": str,
    "mem_len": int | None,
    _SEGMENTS: bool,
}
"""Types of fields that are not in `_FIELDS`."""
# Fields that change the computation, with the only value that electra supports, which is transformers' default.
_REQUIRED: dict[str, Any] = {"clamp_len": -1, "bi_data": False, "same_length": False, "untie_r": True}


class XLNetFormat(CheckpointFormat):
    """Encoders of kind relative."""

    model_types: ClassVar[tuple[str, ...]] = ("xlnet",)
    copies: ClassVar[Mapping[str, str]] = {"lm_loss.weight": f"{PREFIX}word_embedding.weight"}

    def architecture(self, model_type: str, kind: HeadKind) -> str | None:
        return "XLNetLMHeadModel" if self.has_head_class(kind) else "XLNetModel"

    def has_head_class(self, kind: HeadKind) -> bool:
        return kind == "language-model"

    def write_config(
        self, config: EncoderConfig, model_type: str, kind: HeadKind, special: SpecialTokens
    ) -> dict[str, Any]:
        """XLNet has one dropout for states and none for attention. With `use_mems_train`, a training step reads
        and returns memories, as in electra. Without a memory `mem_len` is None, because 0 would keep all."""
        has_memory = config.memory_length > 0
        return {
            **{stored: getattr(config, name) for name, stored in _FIELDS.items()},
            "d_head": config.hidden_size // config.heads,
            "ff_activation": next(stored for stored, name in ACTIVATIONS.items() if name == config.activation),
            "attn_type": "uni" if config.direction == "left" else "bi",
            "mem_len": config.memory_length or None,
            "reuse_len": None,
            "use_mems_eval": has_memory,
            "use_mems_train": has_memory,
            **_REQUIRED,
            "tie_word_embeddings": True,
            _SEGMENTS: config.type_vocabulary_size > 1,
            "bos_token_id": special.classify,
            "eos_token_id": special.separate,
        }

    def read_config(self, fields: dict[str, Any], source: object) -> FolderConfig:
        """`reuse_len` is ignored: it decides which tokens enter the memory, but not what is computed."""
        problems: list[str] = []
        fields = check_types(fields, _TYPES, problems)
        problems += [
            f"{name} is {shown(value)}; electra supports only {required!r}"
            for name, required in _REQUIRED.items()
            if (value := fields.get(name, required)) != required and not (name == "clamp_len" and value <= 0)
        ]
        names = {name: (stored, _DEFAULTS[stored]) for name, stored in _FIELDS.items()}
        values = read_numbers(fields, names, problems)
        activation, direction = fields.get("ff_activation", "gelu"), fields.get("attn_type", "bi")
        if activation not in ACTIVATIONS:
            problems.append(f"ff_activation is {shown(activation)}; electra supports {', '.join(ACTIVATIONS)}")
        if direction not in ("bi", "uni"):
            problems.append(f"attn_type is {shown(direction)}; electra supports bi, uni")
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
        refuse(problems, source)
        if fields.get(_SEGMENTS) is False:
            config = replace(config, type_vocabulary_size=1)
        return FolderConfig("xlnet", config, fields.get("pad_token_id", 5))

    def prefix(self, model_type: str) -> str:
        return PREFIX

    def encoder_names(self, encoder: EncoderModule, name: str, model_type: str) -> tuple[str, ...]:
        if not name.startswith("blocks."):
            return (_OUTSIDE_BLOCKS[name],)
        _, index, inside = name.split(".", 2)
        return tuple(f"layer.{index}.{stored}" for stored in _INSIDE_BLOCKS[inside])

    def head_names(self, model_type: str) -> Mapping[HeadKind, Mapping[str, str]]:
        return {"language-model": {"": "lm_loss"}, **HEAD_NAMES}

    def additional_tensors(self, encoder: EncoderModule) -> dict[str, Tensor]:
        """Zeros for the query stream and the segments, which electra's network may lack."""
        assert isinstance(encoder, RelativeEncoder)
        config = encoder.config
        heads, D = (config.heads, config.hidden_size // config.heads), config.hidden_size
        tensors = {f"{PREFIX}mask_emb": torch.zeros(1, 1, D)}
        for layer in range(config.layers):
            tensors[f"{PREFIX}layer.{layer}.rel_attn.r_s_bias"] = torch.zeros(heads)
            tensors[f"{PREFIX}layer.{layer}.rel_attn.seg_embed"] = torch.zeros(2, *heads)
        return tensors

    def to_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        if name == f"{PREFIX}mask_emb":
            return tensor.view(1, 1, -1)
        if name.endswith(_TRANSPOSED):
            tensor = tensor.T
        heads = config.encoder.heads
        head_size = config.encoder.hidden_size // heads
        return tensor.unflatten(-1, (heads, head_size)) if name.endswith(_BY_HEAD) else tensor

    def from_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        if name == f"{PREFIX}mask_emb":
            return tensor.reshape(1, -1)
        if name.endswith(_BY_HEAD) and tensor.ndim > 1:
            tensor = tensor.flatten(-2)
        return tensor.T if name.endswith(_TRANSPOSED) and tensor.ndim == 2 else tensor

    def rename(self, tensors: dict[str, Tensor], model_type: str) -> dict[str, Tensor]:
        """Add the prefix to the names of a bare XLNetModel."""
        return {
            re.sub(r"^(?=word_embedding\.|mask_emb$|layer\.\d)", PREFIX, name): tensor
            for name, tensor in tensors.items()
        }

    def transformers_inputs(
        self, model: Any, encoder: EncoderModule, ids_BL: Tensor, segment_ids_BL: Tensor | None, mask_BL: Tensor
    ) -> dict[str, Tensor]:
        inputs = super().transformers_inputs(model, encoder, ids_BL, segment_ids_BL, mask_BL)
        if encoder.config.direction == "left":
            # A left-to-right XLNet takes no mask. Padding at the end does not change the states of tokens.
            del inputs["attention_mask"]
        return inputs

    def prepare_float64(self, model: Any) -> Any:
        """transformers computes the encodings of distances in float32; they cannot be multiplied with float64."""
        xlnet = getattr(model, "transformer", model)
        encoding = xlnet.relative_positional_encoding
        xlnet.relative_positional_encoding = lambda *args, **kwargs: encoding(*args, **kwargs).double()
        return model
