"""Folders of networks for which transformers has no class, such as encoders of plugins.

They have the same files as other folders, but only electra can load them: config.json and the tensors have
electra's own names.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, get_args, get_type_hints

from electra.config import problems_of
from electra.config_fields import json_problem
from electra.data.tokenizer import SpecialTokens
from electra.errors import CheckpointError, ConfigError
from electra.export.formats.base import CheckpointFormat, FolderConfig
from electra.export.formats.stored_fields import check_types, refuse, shown
from electra.export.pretrained import HeadKind
from electra.modeling.encoders.base import EncoderConfig, EncoderModule
from electra.registry import encoders

MODEL_TYPE = "electra-native"
_HEAD_MODULES = (
    "dense", "norm", "projection", "hidden.dense", "hidden.norm", "prediction", "start", "end_dense", "end",
    "answerable_dense", "answerable",
)  # fmt: skip


class NativeFormat(CheckpointFormat):
    """Encoders of all kinds."""

    model_types: ClassVar[tuple[str, ...]] = (MODEL_TYPE,)
    builds_on_meta: ClassVar[bool] = False  # a plugin's encoder may compute buffers when it is built

    def architecture(self, model_type: str, kind: HeadKind) -> str | None:
        return None

    def has_head_class(self, kind: HeadKind) -> bool:
        return False

    def stores_pairs(self, model_type: str) -> bool:
        return True

    def write_config(
        self, config: EncoderConfig, model_type: str, kind: HeadKind, special: SpecialTokens
    ) -> dict[str, Any]:
        return {"encoder": asdict(config), "head": kind}

    def read_config(self, fields: dict[str, Any], source: object) -> FolderConfig:
        problems: list[str] = []
        check_types(fields, {"encoder": dict, "head": str | None}, problems)
        refuse(problems, source)
        values, head = fields.get("encoder", {}), fields.get("head")
        try:
            config: EncoderConfig = encoders.get(str(values.get("kind")))(**values)
        except ConfigError as error:
            raise CheckpointError(f"{source}: {error}") from error
        except TypeError as error:
            raise CheckpointError(
                f"{source}: the registered encoder has other settings than this config: {error}"
            ) from error
        hints = get_type_hints(type(config))
        found = {name: json_problem(value, hints[name]) for name, value in values.items()}
        problems += [f"encoder.{name} {problem}" for name, problem in found.items() if problem]
        if head not in (None, *get_args(HeadKind)):
            problems.append(f"head is {shown(head)}; electra has {', '.join(get_args(HeadKind))}")
        refuse(problems or list(problems_of(config)), source)
        return FolderConfig(MODEL_TYPE, config, fields.get("pad_token_id", 0), head)

    def prefix(self, model_type: str) -> str:
        return "encoder."

    def encoder_names(self, encoder: EncoderModule, name: str, model_type: str) -> tuple[str, ...]:
        return (name,)

    def head_names(self, model_type: str) -> Mapping[HeadKind, Mapping[str, str]]:
        heads: dict[HeadKind, dict[str, str]] = {
            kind: {"": "head", **{module: f"head.{module}" for module in _HEAD_MODULES}}
            for kind in get_args(HeadKind)
        }
        return {**heads, "pair": {module: f"pairs.{module}" for module in ("dense", "prediction")}}
