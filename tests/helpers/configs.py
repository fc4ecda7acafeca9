"""Configs of encoders and objectives from their kinds."""

from typing import Any

from electra.modeling.encoders.base import EncoderConfig
from electra.objectives.config import ObjectiveConfig
from electra.registry import encoders


def make_encoder_config(kind: str = "bert", **settings: Any) -> EncoderConfig:
    """Make the config of an encoder."""
    config_class: type[EncoderConfig] = encoders.get(kind)
    return config_class(**settings)


def make_objective_config(kind: str = "replaced-token", **settings: Any) -> ObjectiveConfig:
    """Make the config of an objective; settings of other objectives are ignored, as in a file."""
    config_class, own_settings = ObjectiveConfig.variant({"kind": kind, **settings})
    return config_class(**own_settings)
