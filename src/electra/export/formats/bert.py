"""Folders of type electra, bert, roberta and albert: BERT's encoder with learned positions.

Blocks and embeddings have the same names in electra, bert and roberta; the prefix and the heads differ. An albert
has one block for each group of layers.

Shapes: D hidden size, L positions, V vocabulary.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from electra.config import problems_of
from electra.data.tokenizer import SpecialTokens
from electra.export.formats.base import ACTIVATIONS, HEAD_NAMES, CheckpointFormat, FolderConfig
from electra.export.formats.stored_fields import check_types, read_numbers, refuse, shown
from electra.export.pretrained import HeadKind
from electra.export.without_values import without_values
from electra.modeling.encoders.base import Activation, EncoderConfig, EncoderModule
from electra.modeling.encoders.bert import BertConfig
from electra.modeling.sharing import SHARED_MODULES, layer_group

ARCHITECTURES: dict[tuple[str, HeadKind], str] = {
    ("electra", "discriminator"): "ElectraForPreTraining",
    ("electra", "generator"): "ElectraForMaskedLM",
    ("bert", "generator"): "BertForMaskedLM",
    ("bert", "pair"): "BertForPreTraining",
    ("roberta", "generator"): "RobertaForMaskedLM",
    ("albert", "generator"): "AlbertForMaskedLM",
    ("albert", "pair"): "AlbertForPreTraining",
    ("electra", "text"): "ElectraForSequenceClassification",
    ("electra", "token"): "ElectraForTokenClassification",
    ("electra", "span"): "ElectraForQuestionAnswering",
}
"""transformers' classes. A class for pairs also has the head of a masked language model."""
ENCODER_ALONE = "ElectraModel"
"""The class for heads that transformers does not have: conditional spans, and texts without a hidden layer."""

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
_HEAD_NAMES: dict[str, dict[HeadKind, dict[str, str]]] = {
    "electra": HEAD_NAMES,
    "bert": {
        "generator": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "": "cls.predictions",
        },
        "pair": {"dense": "bert.pooler.dense", "prediction": "cls.seq_relationship"},
    },
    "roberta": {"generator": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"}},
    "albert": {
        "generator": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "": "predictions"},
        "pair": {"dense": "albert.pooler", "prediction": "sop_classifier.classifier"},
    },
}
_PAIR_LOGITS = ("cls.seq_relationship.", "sop_classifier.classifier.")
_TOKEN_TABLE = "embeddings.word_embeddings.weight"
_ROBERTA_POSITIONS = "roberta.embeddings.position_embeddings.weight"

_SHARING = {"share_layers": "electra_share_layers", "layer_groups": "electra_layer_groups"}
"""Keys that only electra reads: the parameters that blocks share, for model types without sharing."""
_TYPES: dict[str, Any] = {
    "hidden_act": str,
    "num_hidden_groups": int,
    _SHARING["share_layers"]: str | None,
    _SHARING["layer_groups"]: int | None,
}
"""Types of fields that are not in `_FIELDS`."""
# transformers' name of each field, and its default for each model type, in the order of `model_types`.
_FIELDS: dict[str, tuple[str, int | float, int | float, int | float, int | float]] = {
    "layers": ("num_hidden_layers", 12, 12, 12, 12),
    "hidden_size": ("hidden_size", 256, 768, 768, 4096),
    "embedding_size": ("embedding_size", 128, 768, 768, 128),
    "feed_forward_size": ("intermediate_size", 1024, 3072, 3072, 16384),
    "heads": ("num_attention_heads", 4, 12, 12, 64),
    "vocabulary_size": ("vocab_size", 30522, 30522, 50265, 30000),
    "max_positions": ("max_position_embeddings", 512, 512, 512, 512),
    "type_vocabulary_size": ("type_vocab_size", 2, 2, 2, 2),
    "dropout": ("hidden_dropout_prob", 0.1, 0.1, 0.1, 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1, 0.1, 0.1, 0.0),
    "layer_norm_epsilon": ("layer_norm_eps", 1e-12, 1e-12, 1e-12, 1e-12),
    "initializer_range": ("initializer_range", 0.02, 0.02, 0.02, 0.02),
}
_DEFAULT_PAD_ID = {"electra": 0, "bert": 0, "roberta": 1, "albert": 0}
# Fields that change the computation, with the only value that electra supports, which is transformers' default.
_REQUIRED: dict[str, str | bool | int] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "inner_group_num": 1,
}


class BertFormat(CheckpointFormat):
    """Encoders of kind bert."""

    model_types: ClassVar[tuple[str, ...]] = ("electra", "bert", "roberta", "albert")
    copies: ClassVar[Mapping[str, str]] = {
        "generator_lm_head.weight": f"electra.{_TOKEN_TABLE}",
        "cls.predictions.decoder.weight": f"bert.{_TOKEN_TABLE}",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "lm_head.decoder.weight": f"roberta.{_TOKEN_TABLE}",
        "lm_head.decoder.bias": "lm_head.bias",
        "predictions.decoder.weight": f"albert.{_TOKEN_TABLE}",
        "predictions.decoder.bias": "predictions.bias",
    }

    def language_model_type(self, config: EncoderConfig) -> str:
        if config.square:
            return "roberta" if config.type_vocabulary_size == 1 else "bert"
        return "albert" if config.share_layers == "all" else "electra"

    def architecture(self, model_type: str, kind: HeadKind) -> str | None:
        return ARCHITECTURES.get((model_type, kind), ENCODER_ALONE)

    def has_head_class(self, kind: HeadKind) -> bool:
        return kind in {head for _, head in ARCHITECTURES}

    def stores_pairs(self, model_type: str) -> bool:
        return (model_type, "pair") in ARCHITECTURES

    def write_config(
        self, config: EncoderConfig, model_type: str, kind: HeadKind, special: SpecialTokens
    ) -> dict[str, Any]:
        assert isinstance(config, BertConfig)
        values = asdict(config)
        fields = {stored: values[name] for name, (stored, *_) in _FIELDS.items()}
        if model_type in ("bert", "roberta"):
            del fields["embedding_size"]
        if model_type == "roberta":
            fields["max_position_embeddings"] += special.pad + 1  # RoBERTa's first position has this number
        if model_type in ("roberta", "albert"):  # the defaults are ids of the released vocabularies
            fields |= {"bos_token_id": special.classify, "eos_token_id": special.separate}
        if model_type == "albert":
            fields |= {"num_hidden_groups": config.layer_groups, "inner_group_num": 1}
            fields["classifier_dropout_prob"] = config.dropout
        elif config.share_layers != "none":
            fields |= {stored: values[name] for name, stored in _SHARING.items()}
        fields["hidden_act"] = next(stored for stored, name in ACTIVATIONS.items() if name == config.activation)
        return fields

    def read_config(self, fields: dict[str, Any], source: object) -> FolderConfig:
        model_type: str = fields["model_type"]
        problems: list[str] = []
        fields = check_types(fields, _TYPES, problems)
        values = _read_numbers(fields, model_type, problems)
        pad_id = fields.get("pad_token_id", _DEFAULT_PAD_ID[model_type])
        if model_type != "roberta" and pad_id is None:
            pad_id = _DEFAULT_PAD_ID[model_type]
        if not isinstance(pad_id, int) or pad_id < 0:
            problems.append(f"pad_token_id must be an id, found {shown(pad_id)}")
        elif model_type == "roberta" and not problems:
            values["max_positions"] -= pad_id + 1
        if model_type in ("bert", "roberta"):
            values["embedding_size"] = values["hidden_size"]
        if model_type == "albert":
            values["share_layers"], values["layer_groups"] = "all", fields.get("num_hidden_groups", 1)
            if values["embedding_size"] == values["hidden_size"]:
                problems.append(
                    "embedding_size is hidden_size; electra does not support a projection between equal sizes"
                )
        elif fields.get(_SHARING["share_layers"]) in SHARED_MODULES and isinstance(
            fields.get(_SHARING["layer_groups"]), int
        ):
            values |= {name: fields[stored] for name, stored in _SHARING.items()}
        activation = fields.get("hidden_act", "gelu_new" if model_type == "albert" else "gelu")
        if activation not in ACTIVATIONS:
            problems.append(f"hidden_act is {shown(activation)}; electra supports {', '.join(ACTIVATIONS)}")
        if not problems and values["vocabulary_size"] < 1:
            problems.append(f"vocab_size must be at least 1, found {values['vocabulary_size']}")
        if not problems:
            values["activation"] = ACTIVATIONS[activation]
            problems.extend(problems_of(BertConfig(**values)))
        refuse(problems, source)
        return FolderConfig(model_type, BertConfig(**values), pad_id)

    def prefix(self, model_type: str) -> str:
        return f"{model_type}."

    def _encoder_prefixes(self, model_type: str) -> tuple[str, ...]:
        return (f"{model_type}.embeddings", f"{model_type}.encoder.")  # without the pooler, which may be unused

    def encoder_names(self, encoder: EncoderModule, name: str, model_type: str) -> tuple[str, ...]:
        path, _, leaf = name.rpartition(".")
        if not path.startswith("blocks."):
            if model_type == "albert" and path == "projection":
                return (f"encoder.embedding_hidden_mapping_in.{leaf}",)
            return (f"{_OUTSIDE_BLOCKS[path]}.{leaf}",)
        _, index, inside = path.split(".", 2)
        if model_type == "albert":
            config = encoder.config
            assert isinstance(config, BertConfig)
            group = layer_group(int(index), layers=config.layers, groups=config.layer_groups)
            block = f"encoder.albert_layer_groups.{group}.albert_layers.0"
            return tuple(f"{block}.{part}.{leaf}" for part in _INSIDE_ALBERT[inside])
        return tuple(f"encoder.layer.{index}.{part}.{leaf}" for part in _INSIDE_BLOCKS[inside])

    def head_names(self, model_type: str) -> Mapping[HeadKind, Mapping[str, str]]:
        return _HEAD_NAMES[model_type]

    def head_activation(self, config: EncoderConfig, model_type: str) -> Activation:
        return config.activation if model_type in ("bert", "albert") else "gelu"

    def to_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        if name.startswith(_PAIR_LOGITS):  # two logits instead of one: they belong together, they do not
            return torch.cat([torch.zeros_like(tensor), tensor])
        if name == _ROBERTA_POSITIONS:  # the first position is the id of padding + 1
            return torch.cat([tensor.new_zeros(config.pad_id + 1, tensor.shape[1]), tensor])
        return tensor

    def from_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        if name.startswith(_PAIR_LOGITS) and len(tensor) == 2:
            return tensor[1:] - tensor[:1]
        if name == _ROBERTA_POSITIONS:
            return tensor[config.pad_id + 1 :]
        return tensor

    def rename(self, tensors: dict[str, Tensor], model_type: str) -> dict[str, Tensor]:
        """Add the prefix to the names of a bare encoder, rename gamma and beta of old files, and leave out
        buffers."""
        renamed = {}
        for name, tensor in tensors.items():
            if name.endswith(("position_ids", "embeddings.token_type_ids")):
                continue
            prefixed = re.sub(r"^(?=embeddings\.|embeddings_project\.|encoder\.|pooler\.)", f"{model_type}.", name)
            new_weight = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", prefixed)
            renamed[re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", new_weight)] = tensor
        return renamed

    def match_sharing(self, config: EncoderConfig, tensors: dict[str, Tensor], model_type: str) -> EncoderConfig:
        """transformers may have fine-tuned copies of shared weights separately. If copies differ, all are kept,
        and the returned config shares nothing."""
        if config.share_layers == "none" or model_type == "albert":
            return config
        with without_values():
            encoder = config.build()
        first_names: dict[int, tuple[str, ...]] = {}
        copies: dict[str, str] = {}
        for name, parameter in encoder.named_parameters(remove_duplicate=False):
            names = self._names(encoder, name, None, model_type)
            copies |= dict(zip(names, first_names.setdefault(id(parameter), names), strict=True))
        for copy, name in copies.items():
            copied, first = tensors.get(copy), tensors.get(name)
            if copied is None or first is None or not torch.equal(copied, first):
                assert isinstance(config, BertConfig)
                return replace(config, share_layers="none", layer_groups=1)
        for copy, name in copies.items():
            if copy != name:
                del tensors[copy]
        return config

    def transformers_inputs(
        self, model: Any, encoder: EncoderModule, ids_BL: Tensor, segment_ids_BL: Tensor | None, mask_BL: Tensor
    ) -> dict[str, Tensor]:
        inputs = super().transformers_inputs(model, encoder, ids_BL, segment_ids_BL, mask_BL)
        if model.config.model_type == "roberta":  # it would derive positions from the ids of padding
            inputs["position_ids"] = model.config.pad_token_id + 1 + torch.arange(ids_BL.shape[1])[None]
        return inputs


def _read_numbers(fields: dict[str, Any], model_type: str, problems: list[str]) -> dict[str, Any]:
    """Return the numeric settings of a `BertConfig`; add problems of these and of fields with only one value."""
    problems += [
        f"{name} is {shown(value)}; electra supports only {required!r}"
        for name, required in _REQUIRED.items()
        if (value := fields.get(name, required)) != required
    ]
    number = BertFormat.model_types.index(model_type)
    names = {name: (stored, defaults[number]) for name, (stored, *defaults) in _FIELDS.items()}
    return read_numbers(fields, names, problems)
