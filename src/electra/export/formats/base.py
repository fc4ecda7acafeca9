"""What a format of model folders has: how a network is described in config.json, and under which names its tensors
are stored.

A format is one file with a subclass of `CheckpointFormat`, registered under the name that encoders give as their
`checkpoint_format`. bert.py is the example.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError
from electra.export.pretrained import Head, HeadKind, head_kind
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
"""transformers' names of activations, and ours."""
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
"""Modules of each head by the names of transformers' Electra classes, for formats without names of their own."""


@dataclass(frozen=True)
class FolderConfig:
    """The description of an encoder in config.json.

    Attributes:
        pad_id: the id of [PAD].
        head: the kind of head, if config.json says it; None: the names of the tensors say it.
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
        """All modules; the encoder's kind is None."""
        yield None, self.encoder
        for head in (self.head, self.pairs):
            if head is not None:
                yield head_kind(head), head


class CheckpointFormat(ABC):
    """A format of model folders.

    Attributes:
        model_types: values of `model_type` in config.json; the first one is the default for exports.
        copies: names of tensors that a folder may hold a second time, with the name of the first.
        builds_on_meta: whether encoders can be built without values, because folders hold all that they need.
    """

    model_types: ClassVar[tuple[str, ...]]
    copies: ClassVar[Mapping[str, str]] = {}
    builds_on_meta: ClassVar[bool] = True

    def language_model_type(self, config: EncoderConfig) -> str:
        """Return the model type whose class computes a full-size masked language model of this shape."""
        return self.model_types[0]

    @abstractmethod
    def architecture(self, model_type: str, kind: HeadKind) -> str | None:
        """Return the name of transformers' class for an encoder with this head: of the bare encoder where
        transformers has no class for the head, None where it has none for the encoder."""

    @abstractmethod
    def has_head_class(self, kind: HeadKind) -> bool:
        """Whether that class includes the head."""

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
        """Return the encoder that the fields of a config.json describe.

        Args:
            source: the file, for messages.

        Raises:
            CheckpointError: it is not an encoder that electra computes; every reason is named.
        """

    @abstractmethod
    def encoder_names(self, encoder: EncoderModule, name: str, model_type: str) -> tuple[str, ...]:
        """Return the stored names of a parameter, without prefix; several are parts along the first axis."""

    @abstractmethod
    def prefix(self, model_type: str) -> str:
        """Return the prefix of the encoder's stored names."""

    def head_names(self, model_type: str) -> Mapping[HeadKind, Mapping[str, str]]:
        """Return the stored names of the modules of each head."""
        return HEAD_NAMES

    def to_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        """Return a tensor in the layout of the folder, by its stored name."""
        return tensor

    def from_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        """Return a stored tensor in our layout; a tensor of a wrong shape may be returned as it is."""
        return tensor

    def additional_tensors(self, encoder: EncoderModule) -> dict[str, Tensor]:
        """Return tensors that transformers' class has and this encoder has not, by their stored name."""
        return {}

    def rename(self, tensors: dict[str, Tensor], model_type: str) -> dict[str, Tensor]:
        """Return stored tensors by the names that today's classes with a head use."""
        return tensors

    def match_sharing(self, config: EncoderConfig, tensors: dict[str, Tensor], model_type: str) -> EncoderConfig:
        """Remove copies of weights that blocks share from `tensors`; return the config that fits the rest."""
        return config

    def head_activation(self, config: EncoderConfig, model_type: str) -> Activation:
        """Return the activation in the head of a masked language model."""
        return "gelu"

    def write_tensors(self, networks: Networks, config: FolderConfig) -> dict[str, Tensor]:
        """Return the tensors of networks by their stored names, each a copy in float32 on the CPU."""
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
        """Return networks with these weights, which are removed from `tensors`.

        Args:
            task: whether config.json describes a fine-tuning task, whose head is then built.
            problems: missing tensors and tensors of a wrong shape are added to it.
        """
        model_type = config.model_type
        renamed = self.rename(dict(tensors), model_type)
        tensors.clear()
        tensors |= renamed
        networks = self._build(config, self.match_sharing(config.encoder, tensors, model_type), tensors, task=task)
        _remove_copies(tensors, self.copies, problems)
        states = [
            self.read_state_dict(module, kind, tensors, config, problems) for kind, module in networks.modules()
        ]
        for name in self.additional_tensors(networks.encoder):
            tensors.pop(name, None)
        unknown = [name for name in tensors if name.startswith(self._encoder_prefixes(model_type))]
        problems += [f"{name}: is not known here" for name in sorted(unknown)]
        if not problems:
            for (_, module), state_dict in zip(networks.modules(), states, strict=True):
                module.load_state_dict(state_dict, assign=True, strict=False)  # shared weights appear once
                module.eval()
        return networks

    def _encoder_prefixes(self, model_type: str) -> tuple[str, ...]:
        return (self.prefix(model_type),)

    def _build(
        self, config: FolderConfig, encoder_config: EncoderConfig, tensors: dict[str, Tensor], *, task: bool
    ) -> Networks:
        """Return the networks that these tensors are for, on the meta device, without values."""
        kind = config.head or self._find_head(tensors, config.model_type)
        if not task and kind not in ("discriminator", "generator", "language-model"):
            kind = None  # a head of another task, of which nothing is known
        with without_values() if self.builds_on_meta else nullcontext():
            encoder = encoder_config.build(query_stream="two-streams" in encoder_config.capabilities)
            pair_names = self.head_names(config.model_type).get("pair", {})
            has_pairs = bool(pair_names) and all(f"{name}.weight" in tensors for name in pair_names.values())
            pairs = SentencePairHead(encoder_config) if kind == "generator" and has_pairs else None
            if kind is None:
                return Networks(encoder, None, pairs)
            names = self.head_names(config.model_type)[kind]
            head = build_head(
                kind,
                encoder_config,
                num_outputs=len(tensors.get(f"{names.get('prediction')}.bias", ())),
                answerable=f"{names.get('answerable')}.bias" in tensors,
                activation=self.head_activation(encoder_config, config.model_type),
            )
        return Networks(encoder, head, pairs)

    def _find_head(self, tensors: dict[str, Tensor], model_type: str) -> HeadKind | None:
        """Return the kind of head that these tensors belong to; None: no head that electra knows."""
        for kind, names in self.head_names(model_type).items():
            prefixes = tuple(f"{name}." for name in names.values())
            if kind != "pair" and any(name.startswith(prefixes) for name in tensors):
                return kind
        return None

    def _names(self, module: nn.Module, name: str, kind: HeadKind | None, model_type: str) -> tuple[str, ...]:
        """Return the stored names of a parameter; several are parts along the first axis."""
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
        """Remove the tensors of a module from `tensors` and return them by the module's names."""
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
                    problems.append(f"{stored_name}: holds numbers that are not finite; the model is broken")
                else:
                    parts.append(part)
            if len(parts) == len(names):
                state_dict[name] = torch.cat(parts)
        return state_dict

    def transformers_inputs(
        self, model: Any, encoder: EncoderModule, ids_BL: Tensor, segment_ids_BL: Tensor | None, mask_BL: Tensor
    ) -> dict[str, Tensor]:
        """Return the arguments with which transformers' model computes what our encoder computes."""
        inputs = {"input_ids": ids_BL, "attention_mask": mask_BL.long()}
        if segment_ids_BL is not None and encoder.config.type_vocabulary_size > 1:
            inputs["token_type_ids"] = segment_ids_BL
        return inputs

    def prepare_float64(self, model: Any) -> Any:
        """Return transformers' model, whose weights are in float64, such that all of it computes in float64."""
        return model


def _remove_copies(tensors: dict[str, Tensor], copies: Mapping[str, str], problems: list[str]) -> None:
    """Remove second copies of tensors; a copy that differs from the first is added to `problems`."""
    for copy, name in copies.items():
        tensor = tensors.pop(copy, None)
        if tensor is None:
            continue
        first = tensors.setdefault(name, tensor)
        if first.shape != tensor.shape or not bool((first == tensor).all()):
            problems.append(f"{copy}: differs from {name}; in electra the two are one parameter")


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
        num_outputs: logits of a head for texts or tokens.
        answerable: whether a conditional-span head says if there is an answer.
        activation: of the head of a masked language model.
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
            raise AssertionError("a head for pairs stands next to another head")


class _Uninitialized(TorchFunctionMode):
    """Within it, the functions of `torch.nn.init` leave tensors unchanged.

    On the meta device there is nothing to fill, but PyTorch loads its compiler to find that out, which takes a
    second or two.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


@contextmanager
def without_values() -> Iterator[None]:
    """Build modules on the meta device: no time is spent on weights that are replaced at once."""
    with torch.device("meta"), _Uninitialized():
        yield


def format_of_encoder(config: EncoderConfig) -> CheckpointFormat:
    """Return the format in which encoders of this kind are stored."""
    format_class: type[CheckpointFormat] = checkpoint_formats.get(config.checkpoint_format)
    return format_class()


def format_of_folder(fields: Mapping[str, Any], source: object) -> CheckpointFormat:
    """Return the format of a folder by the `model_type` of its config.json.

    Raises:
        CheckpointError: no format has this type.
    """
    model_types: list[str] = []
    for _, format_class in checkpoint_formats:
        if fields.get("model_type") in format_class.model_types:
            checkpoint_format: CheckpointFormat = format_class()
            return checkpoint_format
        model_types += format_class.model_types
    raise CheckpointError(
        f"{source}: this model cannot be loaded: model_type is {fields.get('model_type')!r}; "
        f"electra reads {', '.join(model_types)}"
    )
