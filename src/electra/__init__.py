"""Pre-train text encoders as discriminators: from text to a model that loads in transformers.

    import electra

    electra.pretrain(electra.load_config("electra-tiny", {"data": "DATA", "out": "RUN", "train.steps": 1000}))
    model = electra.load("RUN")
    scored = model.score(["The cat sat on the math."])
    electra.finetune(electra.load_task_config({"model": "RUN", "task": "cola", "data.path": "GLUE", "out": "OUT"}))
    predicted = electra.load("OUT").predict(["The cat sat on the mat."])

Each name is imported when it is first used, so that `import electra` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Encoder",
    "FinetuneConfig",
    "Model",
    "Predictor",
    "PretrainConfig",
    "Scorer",
    "TextEncoder",
    "__version__",
    "finetune",
    "load",
    "load_config",
    "load_task_config",
    "pretrain",
]

_HOMES = {
    "Encoder": "electra.modeling.encoder",
    "FinetuneConfig": "electra.recipes.finetune_config",
    "Model": "electra.serving.model",
    "Predictor": "electra.serving.predictor",
    "PretrainConfig": "electra.recipes.pretrain_config",
    "Scorer": "electra.serving.scorer",
    "TextEncoder": "electra.serving.text_encoder",
    "finetune": "electra.recipes.finetune",
    "load": "electra.serving.model",
    "load_config": "electra.recipes.pretrain_config",
    "load_task_config": "electra.recipes.finetune_config",
    "pretrain": "electra.recipes.pretrain",
}

if TYPE_CHECKING:
    from electra.modeling.encoder import Encoder
    from electra.recipes.finetune import finetune
    from electra.recipes.finetune_config import FinetuneConfig, load_task_config
    from electra.recipes.pretrain import pretrain
    from electra.recipes.pretrain_config import PretrainConfig, load_config
    from electra.serving.model import Model, load
    from electra.serving.predictor import Predictor
    from electra.serving.scorer import Scorer
    from electra.serving.text_encoder import TextEncoder


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'electra' has no attribute {name!r}")
