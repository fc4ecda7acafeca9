"""Pre-train text encoders as discriminators: from text to a model that loads in transformers.

    import electra

    electra.pretrain(electra.load_config("electra-tiny", {"data": "DATA", "out": "RUN", "train.steps": 1000}))
    encoder, tokenizer = electra.load("RUN")
    scored = electra.Scorer("RUN")(["The cat sat on the math."])

Each name is imported when it is first used, so that `import electra` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Encoder", "PretrainConfig", "Scorer", "TextEncoder", "__version__", "load", "load_config", "pretrain"]

_HOMES = {
    "Encoder": "electra.modeling.encoder",
    "PretrainConfig": "electra.recipes.pretrain_config",
    "Scorer": "electra.serving.scorer",
    "TextEncoder": "electra.serving.text_encoder",
    "load": "electra.export.loading",
    "load_config": "electra.recipes.pretrain_config",
    "pretrain": "electra.recipes.pretrain",
}

if TYPE_CHECKING:
    from electra.export.loading import load
    from electra.modeling.encoder import Encoder
    from electra.recipes.pretrain import pretrain
    from electra.recipes.pretrain_config import PretrainConfig, load_config
    from electra.serving.scorer import Scorer
    from electra.serving.text_encoder import TextEncoder


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'electra' has no attribute {name!r}")
