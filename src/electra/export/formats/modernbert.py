"""Folders of type modernbert: ModernBERT and the models that have its network, such as Ettin and mmBERT.

A discriminator is stored as `ModernBertForTokenClassification` with the labels `original` and `replaced`, so that
transformers' pipeline marks replaced tokens. If the token table has another width than the states (small
generators), the product of table and projection is stored, which is what transformers can compute. A second file
has the factors, so that electra can continue the network.

Shapes: V vocabulary, E embedding size, D hidden size.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from electra.config import problems_of
from electra.data.tokenizer import SpecialTokens
from electra.export.formats.base import ACTIVATIONS, HEAD_NAMES, CheckpointFormat, FolderConfig
from electra.export.formats.detection_labels import LABEL_FIELDS, DetectionAsTokenClassification, find_head
from electra.export.formats.stored_fields import check_types, read_numbers, refuse, shown
from electra.export.pretrained import HeadKind
from electra.modeling.encoders.base import MAX_LAYERS, EncoderConfig, EncoderModule
from electra.modeling.encoders.modernbert import ModernBertConfig

_CLASSES: dict[str, HeadKind] = {
    "ModernBertForMaskedLM": "generator",
    "ModernBertForTokenClassification": "token",
    "ModernBertForSequenceClassification": "text",
    "ModernBertForQuestionAnswering": "span",
}
ENCODER_ALONE = "ModernBertModel"
"""The class where transformers has none for the head: conditional spans."""
_PREDICTION_HEAD = {"hidden.dense": "head.dense", "hidden.norm": "head.norm", "prediction": "classifier"}
_HEAD_NAMES: dict[HeadKind, dict[str, str]] = {
    "generator": {"dense": "head.dense", "norm": "head.norm", "projection": "head.projection", "": "decoder"},
    "discriminator": {"dense": "head.dense", "norm": "head.norm", "prediction": "classifier"},
    "text": _PREDICTION_HEAD,
    "token": _PREDICTION_HEAD,
    "span": _PREDICTION_HEAD,
    "conditional-span": HEAD_NAMES["conditional-span"],
}
_TOKEN_TABLE, _DECODER = "model.embeddings.tok_embeddings.weight", "decoder.weight"
_PROJECTION, _HEAD_PROJECTION = "model.embeddings.projection.weight", "head.projection.weight"
_OUTSIDE_BLOCKS = {
    "embeddings.token": "embeddings.tok_embeddings",
    "embeddings.projection": "embeddings.projection",
    "embeddings.norm": "embeddings.norm",
    "final_norm": "final_norm",
}
_INSIDE_BLOCKS = {
    "attention_norm": "attn_norm",
    "attention.query_key_value": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "feed_forward_norm": "mlp_norm",
    "feed_forward.inner": "mlp.Wi",
    "feed_forward.outer": "mlp.Wo",
}
# transformers' name for each field, and its default.
_FIELDS: dict[str, tuple[str, int | float]] = {
    "layers": ("num_hidden_layers", 22),
    "hidden_size": ("hidden_size", 768),
    "feed_forward_size": ("intermediate_size", 1152),
    "heads": ("num_attention_heads", 12),
    "vocabulary_size": ("vocab_size", 50368),
    "max_positions": ("max_position_embeddings", 8192),
    "dropout": ("embedding_dropout", 0.0),
    "attention_dropout": ("attention_dropout", 0.0),
    "layer_norm_epsilon": ("norm_eps", 1e-5),
    "initializer_range": ("initializer_range", 0.02),
    "local_window": ("local_attention", 128),
}
_BIASES = ("attention_bias", "mlp_bias", "classifier_bias")
_EMBEDDING_SIZE = "electra_embedding_size"
"""Our key for the width of the token table, where it is not the hidden size."""
_TYPES: dict[str, Any] = {
    **dict.fromkeys((*_BIASES, "norm_bias"), bool),
    "hidden_activation": str,
    "global_rope_theta": float,
    "local_rope_theta": float | None,
    "rope_parameters": dict | None,
    "global_attn_every_n_layers": int,
    "layer_types": list | None,
    _EMBEDDING_SIZE: int,
}
"""Types of fields that are not in `_FIELDS`."""
# Fields that change what is computed, with the one value that electra computes (which is transformers' default).
_REQUIRED: dict[str, Any] = {"classifier_activation": "gelu", "decoder_bias": True}
_TEXT_POOLING = ("classifier_pooling", "cls")
"""The one pooling of heads for texts that electra computes. Released models, without such a head, have another."""


class ModernBertFormat(DetectionAsTokenClassification, CheckpointFormat):
    """Encoders of kind modernbert that transformers' class can compute."""

    model_types: ClassVar[tuple[str, ...]] = ("modernbert",)
    copies: ClassVar[Mapping[str, str]] = {_DECODER: _TOKEN_TABLE}

    def architecture(self, model_type: str, kind: HeadKind) -> str | None:
        stored_kind = "token" if kind == "discriminator" else kind
        return next((name for name, known in _CLASSES.items() if known == stored_kind), ENCODER_ALONE)

    def has_head_class(self, kind: HeadKind) -> bool:
        return kind == "discriminator" or kind in _CLASSES.values()

    def write_config(
        self, config: EncoderConfig, model_type: str, kind: HeadKind, special: SpecialTokens
    ) -> dict[str, Any]:
        assert isinstance(config, ModernBertConfig)
        fields: dict[str, Any] = {stored: getattr(config, name) for name, (stored, _) in _FIELDS.items()}
        fields["local_attention"] = config.local_window or 2 * config.max_positions
        fields |= {
            "mlp_dropout": config.dropout,
            "norm_bias": config.norm_bias,
            **dict.fromkeys(_BIASES, config.bias),
            **_REQUIRED,
            _TEXT_POOLING[0]: _TEXT_POOLING[1],
            "hidden_activation": next(s for s, name in ACTIVATIONS.items() if name == config.activation),
            "layer_types": [
                "sliding_attention" if config.is_local(layer) else "full_attention"
                for layer in range(config.layers)
            ],
            "global_attn_every_n_layers": config.global_every if config.local_window else 1,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": config.rope_theta},
                "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_theta},
            },
            "bos_token_id": special.classify,
            "eos_token_id": special.separate,
            "cls_token_id": special.classify,
            "sep_token_id": special.separate,
        }
        if kind == "discriminator":
            fields |= LABEL_FIELDS
        if not config.square:
            fields |= {"tie_word_embeddings": False, _EMBEDDING_SIZE: config.embedding_size}
        return fields

    def read_config(self, fields: dict[str, Any], source: object) -> FolderConfig:
        head = find_head(fields, _CLASSES)
        problems: list[str] = []
        fields = check_types(fields, _TYPES, problems)
        problems += [
            f"{name} is {shown(value)}; electra computes only {required!r}"
            for name, required in [*_REQUIRED.items(), *([_TEXT_POOLING] if head == "text" else [])]
            if (value := fields.get(name, required)) != required
        ]
        values = read_numbers(fields, _FIELDS, problems)
        biases = {name: fields.get(name, False) for name in _BIASES}
        if len(set(biases.values())) > 1:
            problems.append(f"{', '.join(_BIASES)} are {list(biases.values())}; electra computes only equal ones")
        activation = fields.get("hidden_activation", "gelu")
        if activation not in ACTIVATIONS:
            problems.append(f"hidden_activation is {shown(activation)}; electra computes {', '.join(ACTIVATIONS)}")
        values |= _read_rotary(fields, problems)
        if not problems:
            values |= _read_layers(fields, values["layers"], problems)
        if not problems:
            values |= {
                "bias": biases["attention_bias"],
                "norm_bias": fields.get("norm_bias", False),
                "activation": ACTIVATIONS[activation],
                "embedding_size": fields.get(_EMBEDDING_SIZE, values["hidden_size"]),
            }
            problems.extend(problems_of(ModernBertConfig(**values)))
        refuse(problems, source)
        return FolderConfig("modernbert", ModernBertConfig(**values), fields.get("pad_token_id") or 0, head)

    def prefix(self, model_type: str) -> str:
        return "model."

    def encoder_names(self, encoder: EncoderModule, name: str, model_type: str) -> tuple[str, ...]:
        path, _, leaf = name.rpartition(".")
        if not path.startswith("blocks."):
            return (f"{_OUTSIDE_BLOCKS[path]}.{leaf}",)
        _, index, inside = path.split(".", 2)
        return (f"layers.{index}.{_INSIDE_BLOCKS[inside]}.{leaf}",)

    def head_names(self, model_type: str) -> Mapping[HeadKind, Mapping[str, str]]:
        return _HEAD_NAMES

    def rename(self, tensors: dict[str, Tensor], model_type: str) -> dict[str, Tensor]:
        """The names of a bare ModernBertModel have no prefix."""
        bare = ("embeddings.", "layers.", "final_norm.")
        renamed = {f"model.{name}" if name.startswith(bare) else name: tensor for name, tensor in tensors.items()}
        if _PROJECTION in renamed:  # the decoder is a product of factors, which are there
            renamed.pop(_DECODER, None)
        return renamed

    def fold(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if _PROJECTION not in tensors:
            return {}
        names = [name for name in (_TOKEN_TABLE, _PROJECTION, _HEAD_PROJECTION) if name in tensors]
        factors = {name: tensors.pop(name) for name in names}
        table_VE = factors[_TOKEN_TABLE].double()
        tensors[_TOKEN_TABLE] = (table_VE @ factors[_PROJECTION].double().T).float()
        if _HEAD_PROJECTION in factors:
            tensors[_DECODER] = (table_VE @ factors[_HEAD_PROJECTION].double()).float()
        return factors


def _read_rotary(fields: dict[str, Any], problems: list[str]) -> dict[str, float]:
    """Return the bases of the rotary frequencies, in the form of today's files or of older ones."""
    thetas = {
        "rope_theta": fields.get("global_rope_theta", 160_000.0),
        "local_rope_theta": fields.get("local_rope_theta") or 10_000.0,
    }
    layer_types = ("full_attention", "sliding_attention")
    parameters = check_types(
        fields.get("rope_parameters") or {},
        dict.fromkeys(layer_types, dict | None),
        problems,
        inside="rope_parameters.",
    )
    for name, layers in zip(("rope_theta", "local_rope_theta"), layer_types, strict=True):
        types = {"rope_type": str, "rope_theta": float}
        own = check_types(parameters.get(layers) or {}, types, problems, inside=f"rope_parameters.{layers}.")
        if own.get("rope_type", "default") != "default":
            problems.append(
                f"rope_parameters: rope_type is {shown(own['rope_type'])}; electra computes only 'default'"
            )
        thetas[name] = float(own.get("rope_theta", thetas[name]))
    return thetas


def _read_layers(fields: dict[str, Any], layers: int, problems: list[str]) -> dict[str, int]:
    """Return which blocks are local."""
    stored = fields.get("global_attn_every_n_layers", 3)
    if stored < 1:
        problems.append(f"global_attn_every_n_layers must be at least 1, found {stored}")
        return {}
    types = fields.get("layer_types")
    if types is None or layers > MAX_LAYERS:  # the latter is refused later
        return {"global_every": stored}
    # The number in the file comes first, because other numbers give the same types if there are few layers.
    for every in (stored, *range(1, layers + 1)):
        if types == ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]:
            return {"global_every": every} | ({"local_window": 0} if every == 1 else {})
    problems.append("layer_types: in electra the first layer and every n-th one after it are full_attention")
    return {}
