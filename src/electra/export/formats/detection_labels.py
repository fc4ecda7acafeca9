"""Discriminators as transformers' classes for tokens, whose two labels are `original` and `replaced`.

A discriminator has one logit per token; such a class has one for each label, of which the first one is 0.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from electra.export.formats.base import FolderConfig
from electra.export.pretrained import HeadKind

LABELS = ("original", "replaced")
"""Labels of a discriminator."""
LABEL_FIELDS: dict[str, Any] = {
    "id2label": {str(number): label for number, label in enumerate(LABELS)},
    "label2id": {label: number for number, label in enumerate(LABELS)},
}
"""The fields of config.json that name the labels."""


def one_per_label(tensor: Tensor) -> Tensor:
    """Return a parameter of the last layer with an output for each label, from one with one output."""
    return torch.cat([torch.zeros_like(tensor), tensor])


def one_for_replaced(tensor: Tensor) -> Tensor:
    """Return a parameter with one output from one with an output for each label; others are unchanged."""
    return tensor[1:] - tensor[:1] if len(tensor) == len(LABELS) else tensor


class DetectionAsTokenClassification:
    """A format whose discriminators are stored in a class with two labels; it comes before `CheckpointFormat`."""

    def to_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        return one_per_label(tensor) if _is_detection_logit(name, config) else tensor

    def from_stored(self, name: str, tensor: Tensor, config: FolderConfig) -> Tensor:
        return one_for_replaced(tensor) if _is_detection_logit(name, config) else tensor


def _is_detection_logit(name: str, config: FolderConfig) -> bool:
    return config.head == "discriminator" and name.startswith("classifier.")


def find_head(fields: Mapping[str, Any], classes: Mapping[str, HeadKind]) -> HeadKind | None:
    """Return the kind of head of a folder; tensors of several kinds have the same names.

    Args:
        fields: those of config.json.
        classes: the kind of head of each of transformers' classes.
    """
    kinds = [classes[name] for name in map(str, fields.get("architectures") or ()) if name in classes]
    is_tagger = "electra_task" in fields  # whatever its labels
    labels = sorted(map(str, (fields.get("id2label") or {}).values()))
    if kinds == ["token"] and not is_tagger and labels == sorted(LABELS):
        return "discriminator"
    return kinds[0] if kinds else None
