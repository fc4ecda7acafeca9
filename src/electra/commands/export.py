"""`electra export`: networks as folders for transformers or for onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from electra.commands.export_onnx import OnnxResult
    from electra.pretraining.export import ExportResult


@dataclass(frozen=True)
class ExportConfig:
    """The command line of `electra export`."""

    model: tyro.conf.Positional[str]
    """Folder of a run; with --to onnx also an export, a fine-tuning, a Hugging Face folder or id, or the included
    model wiki-tiny."""
    to: Literal["hf", "onnx"] = "hf"
    """hf: folders that transformers loads. onnx: folders that onnxruntime runs without PyTorch."""
    checkpoint: str | None = None
    """Name of a run's checkpoint, such as step-00010000 or step-10000. Default: the latest one."""
    out: Path | None = None
    """Folder to write to. Default: RUN/export. With --to onnx: RUN/export/onnx with one folder per network, or
    MODEL/onnx for another model; the name is onnx-int8 with --quantize, and onnx-encoder with --part encoder."""
    dtype: Literal["float32", "float16"] = "float32"
    """With --to hf: type of the stored weights. float16 needs half of the space; the weights are rounded to it,
    and electra and transformers compute with them in float32."""
    quantize: Literal["int8"] | None = None
    """With --to onnx: store the weights in 8 bits, which needs a quarter of the space and is faster. The loss of
    quality is measured and shown."""
    part: Literal["model", "encoder"] = "model"
    """With --to onnx: the network with its head, or only the encoder, which outputs hidden states and an
    embedding of the text."""
    data: Path | None = None
    """With --quantize: data to measure the loss of quality on: a text file (.txt, .jsonl and so on) or prepared
    data; for a fine-tuned model, the file or folder of its task. Default: the data that the model was trained on,
    if they still exist."""

    def problems(self) -> Iterator[str]:
        if self.to == "hf":
            for name in ("quantize", "data"):
                if getattr(self, name) is not None:
                    yield f"--{name} is for onnx; give --to onnx, or leave it out"
            if self.part != "model":
                yield "--part is for onnx; give --to onnx, or leave it out"
        elif self.dtype != "float32":
            yield "--dtype is for hf; for ONNX give --quantize int8, or leave it out"
        elif self.data is not None and self.quantize is None:
            yield "--data is for measuring the effect of --quantize; give --quantize int8, or leave it out"


def run(config: ExportConfig) -> ExportResult | OnnxResult:
    """Export the networks of a run as Hugging Face folders, or any model as folders for onnxruntime.

    Each folder contains the tokenizer. The outputs of each exported network are compared with those of the
    original.

    Examples:
        electra export RUN --checkpoint step-10000 --out MODELS/early
        electra export RUN --dtype float16 --out MODELS/small
        electra export MODEL --to onnx --quantize int8
    """
    if config.to == "hf":
        import torch

        from electra.pretraining.export import export_run

        dtype = torch.float16 if config.dtype == "float16" else torch.float32
        return export_run(Path(config.model), checkpoint=config.checkpoint, out=config.out, dtype=dtype)
    from electra.commands.export_onnx import export_onnx

    return export_onnx(
        config.model,
        out=config.out,
        checkpoint=config.checkpoint,
        part=config.part,
        quantize=config.quantize,
        data=config.data,
    )
