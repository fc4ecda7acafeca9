"""Folders of type deberta-v2: DeBERTa-v2, DeBERTaV3 and mDeBERTaV3.

A discriminator is stored as `DebertaV2ForTokenClassification` with the labels `original` and `replaced`, so that
transformers' pipeline marks replaced tokens. Its head is one linear layer. The head of released DeBERTaV3
discriminators (`mask_predictions`) is neither read nor written: it adds the state of [CLS] to each state before a
LayerNorm, a dense layer and the logit, and transformers has no class for that.

A masked language model is written with the head that every version of transformers has (`legacy`); both are read.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from electra.config import problems_of
from electra.data.tokenizer import SpecialTokens
from electra.export.formats.base import HEAD_NAMES, CheckpointFormat, FolderConfig
from electra.export.formats.detection_labels import LABEL_FIELDS, DetectionAsTokenClassification, find_head
from electra.export.formats.stored_fields import check_types, read_numbers, refuse, shown
from electra.export.pretrained import HeadKind
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.modeling.encoders.deberta import DebertaConfig

_CLASSES: dict[str, HeadKind] = {
    "DebertaV2ForMaskedLM": "generator",
    "DebertaV2ForTokenClassification": "token",
    "DebertaV2ForSequenceClassification": "text",
    "DebertaV2ForQuestionAnswering": "span",
}
ENCODER_ALONE = "DebertaV2Model"
"""The class where transformers has none for the head."""
_HEAD_NAMES: dict[HeadKind, dict[str, str]] = {
    "generator": {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "": "cls.predictions",
    },
    "discriminator": {"prediction": "classifier"},
    "text": {"dense": "pooler.dense", "prediction": "classifier"},
    "linear-text": HEAD_NAMES["linear-text"],
    "token": {"prediction": "classifier"},
    "span": {"prediction": "qa_outputs"},
    "conditional-span": HEAD_NAMES["conditional-span"],
}
_NEW_HEAD = {
    "lm_predictions.lm_head.dense.": "cls.predictions.transform.dense.",
    "lm_predictions.lm_head.LayerNorm.": "cls.predictions.transform.LayerNorm.",
    "lm_predictions.lm_head.bias": "cls.predictions.bias",
}
"""Names of the head with `legacy: false`, and of the same in the legacy head."""
_RELEASED_DETECTION_HEAD = "mask_predictions."
_DECODER_POSITIONS = "embeddings.position_embeddings."
"""A table of the decoder that DeBERTa-v2 was trained with; the encoder does not use it."""
_TABLE, _TABLE_DIFFERENCE = "embeddings.word_embeddings.weight", "embeddings.word_embeddings._weight"
"""The token table, and in some files also what Microsoft's code trained: its difference from the generator's."""
_OUTSIDE_BLOCKS = {
    "embeddings.token": "embeddings.word_embeddings",
    "embeddings.segment": "embeddings.token_type_embeddings",
    "embeddings.projection": "embeddings.embed_proj",
    "embeddings.norm": "embeddings.LayerNorm",
    "relative_positions.table": "encoder.rel_embeddings",
    "relative_positions.norm": "encoder.LayerNorm",
    "convolution.convolution": "encoder.conv.conv",
    "convolution.norm": "encoder.conv.LayerNorm",
}
_INSIDE_BLOCKS = {
    "attention.query_key_value": (
        "attention.self.query_proj",
        "attention.self.key_proj",
        "attention.self.value_proj",
    ),
    "attention.position_key": ("attention.self.pos_key_proj",),
    "attention.position_query": ("attention.self.pos_query_proj",),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.inner": ("intermediate.dense",),
    "feed_forward.outer": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}
# transformers' name for each field, and its default.
_FIELDS: dict[str, tuple[str, int | float]] = {
    "layers": ("num_hidden_layers", 24),
    "hidden_size": ("hidden_size", 1536),
    "feed_forward_size": ("intermediate_size", 6144),
    "heads": ("num_attention_heads", 24),
    "vocabulary_size": ("vocab_size", 128100),
    "max_positions": ("max_position_embeddings", 512),
    "type_vocabulary_size": ("type_vocab_size", 0),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "layer_norm_epsilon": ("layer_norm_eps", 1e-7),
    "initializer_range": ("initializer_range", 0.02),
    "position_buckets": ("position_buckets", -1),
    "convolution_width": ("conv_kernel_size", 0),
    "convolution_groups": ("conv_groups", 1),
}
# Fields that change what is computed, with the one value that electra computes, and transformers' default.
_REQUIRED: dict[str, tuple[Any, Any]] = {
    "relative_attention": (True, False),
    "position_biased_input": (False, True),
    "hidden_act": ("gelu", "gelu"),
    "pooler_hidden_act": ("gelu", "gelu"),
}
_TYPES: dict[str, Any] = {
    "pos_att_type": str | list | None,
    "norm_rel_ebd": str,
    "share_att_key": bool,
    "conv_act": str,
    "attention_head_size": int,
    "max_relative_positions": int,
    "embedding_size": int,
}
"""Types of fields that are not in `_FIELDS`."""
_CONVOLUTION_ACTIVATIONS = ("tanh", "gelu", "relu")
_NORMS = {"layer_norm": True, "none": False}


class DebertaFormat(DetectionAsTokenClassification, CheckpointFormat):
    """Encoders of kind deberta."""

    model_types: ClassVar[tuple[str, ...]] = ("deberta-v2",)
    refused_types: ClassVar[Mapping[str, str]] = {
        "deberta": "the first DeBERTa has another attention; electra reads DeBERTa-v2 and DeBERTaV3 (deberta-v2)"
    }
    copies: ClassVar[Mapping[str, str]] = {
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def architecture(self, model_type: str, kind: HeadKind) -> str | None:
        stored_kind = "token" if kind == "discriminator" else kind
        return next((name for name, known in _CLASSES.items() if known == stored_kind), ENCODER_ALONE)

    def has_head_class(self, kind: HeadKind) -> bool:
        return kind == "discriminator" or kind in _CLASSES.values()

    def write_config(
        self, config: EncoderConfig, model_type: str, kind: HeadKind, special: SpecialTokens
    ) -> dict[str, Any]:
        assert isinstance(config, DebertaConfig)
        terms = {"p2c": config.position_to_content, "c2p": config.content_to_position}
        return {
            **{stored: getattr(config, name) for name, (stored, _) in _FIELDS.items()},
            **{name: value for name, (value, _) in _REQUIRED.items()},
            "position_buckets": config.position_buckets or -1,
            "max_relative_positions": -1,
            "pos_att_type": [name for name, has_term in terms.items() if has_term],
            "share_att_key": config.share_position_projections,
            "norm_rel_ebd": "layer_norm" if config.relative_norm else "none",
            "conv_act": config.convolution_activation,
            "embedding_size": config.embedding_size,
            "pooler_hidden_size": config.hidden_size,
            "pooler_dropout": config.dropout,
            "legacy": True,
            **(LABEL_FIELDS if kind == "discriminator" else {}),
        }

    def read_config(self, fields: dict[str, Any], source: object) -> FolderConfig:
        problems: list[str] = []
        fields = check_types(fields, _TYPES, problems)
        problems += [
            f"{name} is {shown(value)}; electra computes only {required!r}"
            for name, (required, default) in _REQUIRED.items()
            if (value := fields.get(name, default)) != required
        ]
        values = read_numbers(fields, _FIELDS, problems)
        values |= _read_attention(fields, problems)
        activation = fields.get("conv_act", "tanh")
        if activation not in _CONVOLUTION_ACTIVATIONS:
            allowed_names = ", ".join(_CONVOLUTION_ACTIVATIONS)
            problems.append(f"conv_act is {shown(activation)}; electra computes {allowed_names}")
        if not problems:
            head_size = values["hidden_size"] // values["heads"]
            if fields.get("attention_head_size", head_size) != head_size:
                problems.append("attention_head_size: in electra it is hidden_size / num_attention_heads")
            longest = fields.get("max_relative_positions", -1)
            values |= {
                "embedding_size": fields.get("embedding_size", values["hidden_size"]),
                "max_positions": longest if longest > 0 else values["max_positions"],
                "position_buckets": max(values["position_buckets"], 0),
                "convolution_activation": activation,
            }
            problems.extend(problems_of(DebertaConfig(**values)))
        refuse(problems, source)
        return FolderConfig(
            "deberta-v2", DebertaConfig(**values), fields.get("pad_token_id") or 0, find_head(fields, _CLASSES)
        )

    def prefix(self, model_type: str) -> str:
        return "deberta."

    def encoder_names(self, encoder: EncoderModule, name: str, model_type: str) -> tuple[str, ...]:
        path, _, leaf = name.rpartition(".")
        if not path.startswith("blocks."):
            return (f"{_OUTSIDE_BLOCKS[path]}.{leaf}",)
        _, index, inside = path.split(".", 2)
        return tuple(f"encoder.layer.{index}.{part}.{leaf}" for part in _INSIDE_BLOCKS[inside])

    def head_names(self, model_type: str) -> Mapping[HeadKind, Mapping[str, str]]:
        return _HEAD_NAMES

    def rename(self, tensors: dict[str, Tensor], model_type: str) -> dict[str, Tensor]:
        """The names of a bare DebertaV2Model have no prefix, and one of two masked-LM heads has other names.

        A released discriminator has a masked-LM head, too, but none that is its own.
        """
        bare = ("embeddings.", "encoder.")
        named = {f"deberta.{name}" if name.startswith(bare) else name: value for name, value in tensors.items()}
        named.pop("deberta.embeddings.position_ids", None)
        other = [name for name in named if name.startswith(f"deberta.{_DECODER_POSITIONS}")]
        if f"deberta.{_TABLE}" in named and f"deberta.{_TABLE_DIFFERENCE}" in named:
            other.append(f"deberta.{_TABLE_DIFFERENCE}")
        for name in other:
            named[name.removeprefix("deberta.")] = named.pop(name)  # reported as ignored
        if any(name.startswith(_RELEASED_DETECTION_HEAD) for name in named):
            return named
        for new, legacy in _NEW_HEAD.items():
            for name in [name for name in named if name.startswith(new)]:
                named[legacy + name.removeprefix(new)] = named.pop(name)
        return named


def _read_attention(fields: dict[str, Any], problems: list[str]) -> dict[str, bool]:
    """Return which terms scores have, and how the table of relative positions is used."""
    terms = fields.get("pos_att_type") or []
    if isinstance(terms, str):
        terms = [term.strip() for term in terms.lower().split("|")]
    if unknown := sorted(set(map(str, terms)) - {"c2p", "p2c"}):
        problems.append(f"pos_att_type has {', '.join(unknown):.60}; electra computes c2p and p2c")
    norm = fields.get("norm_rel_ebd", "none").strip().lower()
    if norm not in _NORMS:
        problems.append(f"norm_rel_ebd is {shown(norm)}; electra computes {', '.join(_NORMS)}")
    return {
        "content_to_position": "c2p" in terms,
        "position_to_content": "p2c" in terms,
        "share_position_projections": fields.get("share_att_key", False),
        "relative_norm": _NORMS.get(norm, True),
    }
