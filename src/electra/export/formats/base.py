"""The base class for formats of model folders: the fields of config.json and the stored names of tensors.

A format is one file with a subclass of `CheckpointFormat`. It is registered under the name that encoders have as
`checkpoint_format`. See bert.py for an example.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError
from electra.export.formats.stored_fields import shown
from electra.export.pretrained import Head, HeadKind, head_kind
from electra.export.without_values import without_values
from electra.modeling.encoders.base import Activation, EncoderConfig, EncoderModule
from electra.modeling.heads import (
    LanguageModelHead,
    MaskedLanguageModelHead,
    ReplacedTokenHead,
    SentencePairHead,
)
from electra.modeling.sharing import standalone_parameters
from electra.modeling.task_heads import ConditionalSpanHead, SpanHead, TextHead, TokenHead
from electra.registry import checkpoint_formats

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""electra's name for each of transformers' activations."""
HEAD_NAMES: dict[HeadKind, dict[str, str]] = {
    "discriminator": {
        "dense": "discriminator_predictions.dense",
        "prediction": "discriminator_predictions.dense_prediction",
    },
    "generator": {
        "dense": "generator_predictions.dense",
        "norm": "generator_predictions.LayerNorm",
        "": "generator_lm_head",
    },
    "text": {"dense": "classifier.dense", "prediction": "classifier.out_proj"},
    "linear-text": {"prediction": "linear_classifier"},
    "token": {"prediction": "classifier"},
    "span": {"prediction": "qa_outputs"},
    "conditional-span": {
        part: f"conditional_span.{part}"
        for part in ("start", "end_dense", "end", "answerable_dense", "answerable")
    },
}
"""Stored names of the modules of each head, as in transformers' Electra classes; the default for all formats."""


@dataclass(frozen=True)
class FolderConfig:
    """The description of an encoder in config.json.

    Attributes:
        pad_id: the id of [PAD].
        head: the kind of head; None: not in config.json, so the names of the tensors decide.
    """

    model_type: str
    encoder: EncoderConfig
    pad_id: int
    head: HeadKind | None = None


@dataclass(frozen=True)
class Networks:
    """The networks of a folder."""

    encoder: EncoderModule
    head: Head | None
    pairs: SentencePairHead | None = None

    def modules(self) -> Iterator[tuple[HeadKind | None, nn.Module]]:
        """All modules with their kind of head; None for the encoder."""
        yield None, self.encoder
        for head in (self.head, self.pairs):
            if head is not None:
                yield head_kind(head), head


class CheckpointFormat(ABC):
    """A format of model folders.

    Attributes:
        model_types: values of `model_type` in config.json; the first one is the default for exports.
        refused_types: types of similar networks that electra does not have, and why not. copies: for tensors that
        a folder may store twice: the name of the copy, and the name of the first. builds_on_meta: whether an
        encoder that was built on the meta device can be used: folders store all that it computes with.
    """

    model_types: ClassVar[tuple[str, ...]]
    refused_types: ClassVar[Mapping[str, str]] = {}
    copies: ClassVar[Mapping[str, str]] = {}
    builds_on_meta: ClassVar[bool] = True

    def language_model_type(self, config: EncoderConfig) -> str:
        """Return the model type of a full-size masked language model of this shape."""
        return self.model_types[0]

    @abstractmethod
    def architecture(self, model_type: str, kind: HeadKind) -> str | None:
        """Return the name of transformers' class for an encoder with this head.

        If transformers has no class for the head, it is the class of the bare encoder; None: there is no class for
        the encoder.
        """

    @abstractmethod
    def has_head_class(self, kind: HeadKind) -> bool:
        """Whether transformers has a class with this head."""

    def stores_pairs(self, model_type: str) -> bool:
        """Whether folders of this type may have a head for pairs of segments."""
        return False

    @abstractmethod
    def write_config(
        self, config: EncoderConfig, model_type: str, kind: HeadKind, special: SpecialTokens
    ) -> dict[str, Any]:
        """Return the fields of config.json that describe an encoder, with a head of this kind."""

    @abstractmethod
    def read_config(self, fields: dict[str, Any], source: object) -> FolderConfig:
        """Return the config of the encoder that the fields of a config.json describe.

        Args:
            source: the file, for messages.

        Raises:
            CheckpointError: electra has no such encoder; the message names every reason.
        """

    @abstractmethod
    def encoder_names(self, encoder: EncoderModule, name: str, model_type: str) -> tuple[str, ...]:
        """Return the stored names of a parameter, without prefix. Several names: parts along the first axis."""

    @abstractmethod
    def prefix(self, model_type: str) -> str:
        """Return the prefix of the encoder's stored names."""

    def head_names(self, model_type: str) -> Mapping[HeadKind, Mapping[str, str]]:
        """Return the stored names of the modules of each head."""
        return HEAD_NAMES

    def to_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        """Convert a tensor to the layout of the folder.

        Args:
            name: the stored name.
        """
        return tensor

    def from_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        """Convert a stored tensor to electra's layout. A tensor of a wrong shape may be returned unchanged."""
        return tensor

    def additional_tensors(self, encoder: EncoderModule) -> dict[str, Tensor]:
        """Return tensors that only transformers' class has, by stored name."""
        return {}

    def rename(self, tensors: dict[str, Tensor], model_type: str) -> dict[str, Tensor]:
        """Return stored tensors by the names that transformers' current classes with a head use."""
        return tensors

    def match_sharing(self, config: EncoderConfig, tensors: dict[str, Tensor], model_type: str) -> EncoderConfig:
        """Remove copies of weights that blocks share from `tensors`; return the config that fits the others."""
        return config

    def head_activation(self, config: EncoderConfig, model_type: str) -> Activation:
        """Return the activation in the head of a masked language model."""
        return "gelu"

    def fold(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Replace matrices of `write_tensors` by their products, where transformers' class has only those.

        Returns:
            The matrices, which are stored in a file of their own; empty: nothing was replaced.
        """
        return {}

    def write_tensors(self, networks: Networks, config: FolderConfig) -> dict[str, Tensor]:
        """Return the tensors of networks by stored name, each a copy in float32 on the CPU."""
        stored: dict[str, Tensor] = self.additional_tensors(networks.encoder)
        for kind, module in networks.modules():
            for name, parameter in standalone_parameters(module):
                names = self._names(module, name, kind, config.model_type)
                parts = parameter.detach().float().chunk(len(names))
                for stored_name, part in zip(names, parts, strict=True):
                    tensor = self.to_stored(stored_name, part, config).cpu()
                    # A copy for each name: safetensors refuses tensors that share memory.
                    stored[stored_name] = tensor.clone(memory_format=torch.contiguous_format)
        return stored

    def load_networks(
        self, config: FolderConfig, tensors: dict[str, Tensor], *, task: bool, problems: list[str]
    ) -> Networks:
        """Return networks with these weights, and remove the weights from `tensors`.

        Args:
            task: whether config.json describes a fine-tuning task; if not, heads for tasks are not loaded.
            problems: a list to which problems are added: tensors that are missing, unknown or of a wrong shape.
        """
        model_type = config.model_type
        renamed = self.rename(dict(tensors), model_type)
        tensors.clear()
        tensors |= renamed
        config = replace(config, encoder=self.match_sharing(config.encoder, tensors, model_type))
        stored = dict(tensors)
        networks = self._build(config, stored, task=task, on_meta=True)
        _remove_copies(tensors, self.copies, problems)
        state_dicts = [
            self.read_state_dict(module, kind, tensors, config, problems) for kind, module in networks.modules()
        ]
        with without_values():
            for name in self.additional_tensors(networks.encoder):
                tensors.pop(name, None)
        unknown = [name for name in tensors if name.startswith(self._encoder_prefixes(model_type))]
        problems += [f"{name}: is unknown" for name in sorted(unknown)]
        if not problems:
            if not self.builds_on_meta:  # only now, because shapes in config.json may be absurd
                networks = self._build(config, stored, task=task, on_meta=False)
            for (_, module), state_dict in zip(networks.modules(), state_dicts, strict=True):
                module.load_state_dict(state_dict, assign=True, strict=False)  # shared weights appear once
                module.eval()
        return networks

    def _encoder_prefixes(self, model_type: str) -> tuple[str, ...]:
        return (self.prefix(model_type),)

    def _build(
        self, config: FolderConfig, tensors: Mapping[str, Tensor], *, task: bool, on_meta: bool
    ) -> Networks:
        """Return networks for these tensors, maybe on the meta device."""
        kind = config.head or self._head_kind(tensors, config.model_type)
        if not task and kind not in ("discriminator", "generator", "language-model"):
            kind = None  # a head that was fine-tuned elsewhere, for an unknown task
        with without_values() if on_meta else nullcontext():
            encoder = config.encoder.build(query_stream="two-streams" in config.encoder.capabilities)
            pair_names = self.head_names(config.model_type).get("pair", {})
            has_pairs = bool(pair_names) and all(f"{name}.weight" in tensors for name in pair_names.values())
            pairs = SentencePairHead(config.encoder) if kind == "generator" and has_pairs else None
            if kind is None:
                return Networks(encoder, None, pairs)
            names = self.head_names(config.model_type)[kind]
            head = build_head(
                kind,
                config.encoder,
                num_outputs=len(tensors.get(f"{names.get('prediction')}.bias", ())),
                answerable=f"{names.get('answerable')}.bias" in tensors,
                activation=self.head_activation(config.encoder, config.model_type),
            )
        return Networks(encoder, head, pairs)

    def _head_kind(self, tensors: Mapping[str, Tensor], model_type: str) -> HeadKind | None:
        """Return the kind of head that these tensors belong to; None: no known head."""
        for kind, names in self.head_names(model_type).items():
            prefixes = tuple(f"{name}." for name in names.values())
            if kind != "pair" and any(name.startswith(prefixes) for name in tensors):
                return kind
        return None

    def _names(self, module: nn.Module, name: str, kind: HeadKind | None, model_type: str) -> tuple[str, ...]:
        """Return the stored names of a parameter. Several names: parts along the first axis."""
        if isinstance(module, EncoderModule):
            prefix = self.prefix(model_type)
            return tuple(prefix + stored for stored in self.encoder_names(module, name, model_type))
        assert kind is not None
        path, _, leaf = name.rpartition(".")
        return (f"{self.head_names(model_type)[kind][path]}.{leaf}",)

    def read_state_dict(
        self,
        module: nn.Module,
        kind: HeadKind | None,
        tensors: dict[str, Tensor],
        config: FolderConfig,
        problems: list[str],
    ) -> dict[str, Tensor]:
        """Remove the tensors of a module from `tensors`; return them as a state dict of the module."""
        state_dict: dict[str, Tensor] = {}
        for name, parameter in module.named_parameters():
            names = self._names(module, name, kind, config.model_type)
            expected = (parameter.shape[0] // len(names), *parameter.shape[1:])
            parts: list[Tensor] = []
            for stored_name in names:
                tensor = tensors.pop(stored_name, None)
                part = None if tensor is None else self.from_stored(stored_name, tensor, config)
                if part is None:
                    problems.append(f"{stored_name}: is missing; expected {expected}")
                elif tuple(part.shape) != expected:
                    problems.append(f"{stored_name}: expected {expected}, found {tuple(part.shape)}")
                elif not bool(part.isfinite().all()):
                    problems.append(f"{stored_name}: has values that are not finite; the model is damaged")
                else:
                    parts.append(part)
            if len(parts) == len(names):
                state_dict[name] = torch.cat(parts)
        return state_dict

    def transformers_inputs(
        self, model: Any, encoder: EncoderModule, ids_BL: Tensor, segment_ids_BL: Tensor | None, mask_BL: Tensor
    ) -> dict[str, Tensor]:
        """Return the arguments for transformers' model that correspond to those of electra's encoder."""
        inputs = {"input_ids": ids_BL, "attention_mask": mask_BL.long()}
        if segment_ids_BL is not None and encoder.config.type_vocabulary_size > 1:
            inputs["token_type_ids"] = segment_ids_BL
        return inputs

    def prepare_float64(self, model: Any) -> Any:
        """Change transformers' model, whose weights are in float64, to compute everything in float64."""
        return model


def _remove_copies(tensors: dict[str, Tensor], copies: Mapping[str, str], problems: list[str]) -> None:
    """Remove copies of tensors; add copies that differ from the first tensor to `problems`."""
    for copy, name in copies.items():
        tensor = tensors.pop(copy, None)
        if tensor is None:
            continue
        first = tensors.setdefault(name, tensor)
        if first.shape != tensor.shape or not bool((first == tensor).all()):
            problems.append(f"{copy}: differs from {name}; in electra both are one parameter")


def build_head(
    kind: HeadKind,
    config: EncoderConfig,
    *,
    num_outputs: int,
    answerable: bool,
    activation: Activation = "gelu",
) -> Head:
    """Return a new head.

    Args:
        num_outputs: the number of logits of a head for texts or tokens.
        answerable: whether a conditional-span head predicts if there is an answer.
        activation: the activation in the head of a masked language model.
    """
    match kind:
        case "discriminator":
            return ReplacedTokenHead(config)
        case "generator":
            return MaskedLanguageModelHead(config, activation=activation)
        case "language-model":
            return LanguageModelHead(config)
        case "text":
            return TextHead(config, num_outputs, hidden=True)
        case "linear-text":
            return TextHead(config, num_outputs, hidden=False)
        case "token":
            return TokenHead(config, num_outputs)
        case "span":
            return SpanHead(config)
        case "conditional-span":
            return ConditionalSpanHead(config, answerable=answerable)
        case "pair":
            raise AssertionError("a head for pairs is always added to another head")


def format_of_encoder(config: EncoderConfig) -> CheckpointFormat:
    """Return the format in which encoders of this kind are stored."""
    format_class: type[CheckpointFormat] = checkpoint_formats.get(config.checkpoint_format)
    return format_class()


def format_of_folder(fields: Mapping[str, Any], source: object) -> CheckpointFormat:
    """Return the format of a folder by the `model_type` of its config.json.

    Raises:
        CheckpointError: there is no format for this type.
    """
    model_types: list[str] = []
    reasons: dict[Any, str] = {}
    for _, format_class in checkpoint_formats:
        if fields.get("model_type") in format_class.model_types:
            checkpoint_format: CheckpointFormat = format_class()
            return checkpoint_format
        model_types += format_class.model_types
        reasons |= format_class.refused_types
    model_type = fields.get("model_type")
    reason = reasons.get(str(model_type), f"electra reads {', '.join(model_types)}")
    what = f"model_type is {shown(model_type)}" if "model_type" in fields else "it has no model_type"
    raise CheckpointError(f"{source}: this model cannot be loaded: {what}; {reason}")
