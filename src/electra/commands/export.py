"""`electra export`: a run's checkpoint as folders that transformers loads, or any model for onnxruntime."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from electra.errors import ConfigError

if TYPE_CHECKING:
    from electra.commands.onnx_result import OnnxResult
    from electra.pretraining.export import ExportResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportConfig:
    """What to export, and where to."""

    model: tyro.conf.Positional[str]
    """The folder of a run; for onnx also an export, a fine-tuning, a Hugging Face folder or id."""
    to: Literal["hf", "onnx"] = "hf"
    """hf: folders that transformers loads. onnx: folders that onnxruntime runs, without PyTorch."""
    checkpoint: str | None = None
    """The name of a run's checkpoint, such as step-00010000 or step-10000; the latest where it is left out."""
    out: Path | None = None
    """The folder to write to; RUN/export, or MODEL/onnx, where it is left out."""
    quantize: Literal["int8"] | None = None
    """With onnx: weights in 8 bits, a quarter of the size and quicker; what that costs is measured and shown."""
    part: Literal["model", "encoder"] = "model"
    """With onnx: the network with its head, or the encoder alone, which gives states and an embedding."""
    data: Path | None = None
    """With quantize: what to measure on: a text file (.txt, .jsonl and so on), or prepared data; of a fine-tuned
    model the folder or file of its task's data. Left out: what it was trained on, where that is still there."""

    def problems(self) -> Iterator[str]:
        if self.to == "hf":
            for name in ("quantize", "data"):
                if getattr(self, name) is not None:
                    yield f"--{name} is for onnx; give --to onnx, or leave it out"
            if self.part != "model":
                yield "--part is for onnx; give --to onnx, or leave it out"
        elif self.data is not None and self.quantize is None:
            yield "--data is to measure what --quantize costs; give --quantize int8, or leave it out"


def run(config: ExportConfig) -> ExportResult | OnnxResult:
    """Write a run's networks as Hugging Face folders, or a model of any kind as folders for onnxruntime.

    Each comes with its tokenizer, and is compared with the network that it was made of.

    Examples:
        electra export RUN --checkpoint step-10000 --out MODELS/early
        electra export MODEL --to onnx --quantize int8
    """
    from electra.pretraining.export import export_run

    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    if config.to == "hf":
        return export_run(Path(config.model), checkpoint=config.checkpoint, out=config.out)
    from electra.commands.export_onnx import export_onnx

    return export_onnx(config)
