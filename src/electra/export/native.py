"""Folders of networks that transformers has no class for, such as encoders of plugins: our config, our names.

They have the same files as the other folders, and load in electra alone.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from electra import __version__
from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError, ConfigError
from electra.export.names import HeadKind
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.sharing import plain_parameters
from electra.registry import encoders

MODEL_TYPE = "electra-native"
_ENCODER, _HEAD, _OBJECTIVE, _TASK = "encoder", "head", "electra_objective", "electra_task"


def to_json(
    config: EncoderConfig,
    *,
    kind: HeadKind,
    objective: str | None,
    special: SpecialTokens,
    task: dict[str, Any] | None,
) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "model_type": MODEL_TYPE,
        "electra_version": __version__,
        "pad_token_id": special.pad,
        _ENCODER: asdict(config),
        _HEAD: kind,
        _OBJECTIVE: objective,
        **({} if task is None else {_TASK: task}),
    }


def tensors_of(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """The weights of modules (`encoder`, `head`, `pairs`), by prefix and name, as copies."""
    return {
        f"{prefix}.{name}": parameter.detach().float().cpu().clone()
        for prefix, module in modules.items()
        for name, parameter in plain_parameters(module)
    }


def encoder_config(fields: dict[str, Any], source: object) -> EncoderConfig:
    """The encoder that a config.json describes.

    Raises:
        CheckpointError: no encoder of this kind is registered, or its settings do not fit.
    """
    values = fields.get(_ENCODER, {})
    try:
        config: EncoderConfig = encoders.get(str(values.get("kind")))(**values)
        return config
    except ConfigError as error:
        raise CheckpointError(f"{source}: {error}") from error
    except TypeError as error:
        raise CheckpointError(
            f"{source}: its encoder has other settings than the one that is registered: {error}"
        ) from error


def facts(fields: dict[str, Any]) -> tuple[HeadKind | None, str | None, dict[str, Any] | None]:
    """The kind of the head, what it was trained by, and its task."""
    return fields.get(_HEAD), fields.get(_OBJECTIVE), fields.get(_TASK)


def load_module(module: nn.Module, prefix: str, tensors: dict[str, Tensor], problems: list[str]) -> None:
    """Give a module its weights; what is missing or has another shape is added to `problems`."""
    for name, parameter in module.named_parameters():
        tensor = tensors.pop(f"{prefix}.{name}", None)
        if tensor is None or tensor.shape != parameter.shape:
            found = "is missing" if tensor is None else f"has shape {tuple(tensor.shape)}"
            problems.append(f"{prefix}.{name}: {found}; expected {tuple(parameter.shape)}")
        else:
            parameter.data.copy_(tensor)
