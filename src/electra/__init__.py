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
    "BertEncoder",
    "EncoderConfig",
    "EncoderModule",
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
    "load_plugin",
    "load_task_config",
    "pretrain",
    "register_encoder",
    "register_objective",
    "register_reader",
    "register_task",
]

_HOMES = {
    "BertEncoder": "electra.modeling.encoders.bert",
    "EncoderConfig": "electra.modeling.encoders.base",
    "EncoderModule": "electra.modeling.encoders.base",
    "FinetuneConfig": "electra.finetuning.config",
    "Model": "electra.serving.model",
    "Predictor": "electra.serving.predictor",
    "PretrainConfig": "electra.pretraining.config",
    "Scorer": "electra.serving.scorer",
    "TextEncoder": "electra.serving.text_encoder",
    "finetune": "electra.finetuning.run",
    "load": "electra.serving.model",
    "load_config": "electra.pretraining.config",
    "load_task_config": "electra.finetuning.config",
    "load_plugin": "electra.registry",
    "pretrain": "electra.pretraining.run",
    "register_encoder": "electra.registry",
    "register_objective": "electra.registry",
    "register_reader": "electra.readers.base",
    "register_task": "electra.registry",
}

if TYPE_CHECKING:
    from electra.finetuning.config import FinetuneConfig, load_task_config
    from electra.finetuning.run import finetune
    from electra.modeling.encoders.base import EncoderConfig, EncoderModule
    from electra.modeling.encoders.bert import BertEncoder
    from electra.pretraining.config import PretrainConfig, load_config
    from electra.pretraining.run import pretrain
    from electra.readers.base import register_reader
    from electra.registry import load_plugin, register_encoder, register_objective, register_task
    from electra.serving.model import Model, load
    from electra.serving.predictor import Predictor
    from electra.serving.scorer import Scorer
    from electra.serving.text_encoder import TextEncoder


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'electra' has no attribute {name!r}")
