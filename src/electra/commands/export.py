"""`electra export`: networks as folders for transformers or for onnxruntime."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from electra.commands.export_onnx import OnnxResult
    from electra.export.push import Upload
    from electra.pretraining.export import ExportResult

logger = logging.getLogger(__name__)


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
    push: Annotated[str | None, tyro.conf.arg(metavar="OWNER/NAME")] = None
    """Upload the exported network (of several, the discriminator or encoder) to this repository of the Hugging
    Face hub, which is created as a private one if there is none. MODEL can then also be an export or a
    fine-tuning, which is uploaded as it is. The token is that of HF_TOKEN or `hf auth login`."""
    dry_run: bool = False
    """With --push: list the files and their sizes. Nothing is sent or kept."""

    def problems(self) -> Iterator[str]:
        if self.dry_run and self.push is None:
            yield "--dry-run is for --push; give --push OWNER/NAME, or leave it out"
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


@dataclass(frozen=True)
class PushResult:
    """An export, if there was one, and its upload."""

    exported: ExportResult | OnnxResult | None
    upload: Upload

    def __str__(self) -> str:
        return "\n".join(str(part) for part in (self.exported, self.upload) if part is not None)


def run(config: ExportConfig) -> ExportResult | OnnxResult | PushResult:
    """Export the networks of a run as Hugging Face folders, or any model as folders for onnxruntime.

    Each folder contains the tokenizer. The outputs of each exported network are compared with those of the
    original.

    Examples:
        electra export RUN --checkpoint step-10000 --out MODELS/early
        electra export RUN --dtype float16 --out MODELS/small
        electra export MODEL --to onnx --quantize int8
        electra export RUN --push OWNER/NAME --dry-run
    """
    if config.push is None:
        return _export(config)
    if not config.dry_run:
        return _export_and_push(config, config.push)
    with tempfile.TemporaryDirectory() as folder:
        dry = _export_and_push(replace(config, out=Path(folder) / "export"), config.push)
    return PushResult(None, dry.upload)


def _export_and_push(config: ExportConfig, repository: str) -> PushResult:
    """Export a model, unless it is a folder to upload as it is, and upload it."""
    from electra.errors import ConfigError
    from electra.export.included_models import model_path
    from electra.export.loading import EXPORTED, find_model, is_model_folder
    from electra.export.push import check_repository, push_folder

    check_repository(repository)  # before the export, which takes time
    path = model_path(config.model)
    if not path.is_dir():
        raise ConfigError(f"--push: there is no folder {path}; give a run, an export or a fine-tuning")
    is_run = any((path / "checkpoints").glob("step-*"))
    exported = _export(config) if is_run or config.to == "onnx" else None
    folder = find_model(path) if exported is None else exported.main_folder
    folder = folder.resolve()
    beside = [name for name in EXPORTED if name != folder.name and is_model_folder(folder.parent / name)]
    if folder.name in EXPORTED and beside:
        logger.info(
            "the upload is the folder %s alone, without %s beside it; to upload another folder: electra export "
            "FOLDER --push NAME", folder.name, " and ".join(beside),
        )  # fmt: skip
    return PushResult(exported, push_folder(folder, repository, dry_run=config.dry_run))


def _export(config: ExportConfig) -> ExportResult | OnnxResult:
    if config.to == "hf":
        import torch

        from electra.export.included_models import model_path
        from electra.pretraining.export import export_run

        dtype = torch.float16 if config.dtype == "float16" else torch.float32
        return export_run(model_path(config.model), checkpoint=config.checkpoint, out=config.out, dtype=dtype)
    from electra.commands.export_onnx import export_onnx

    return export_onnx(
        config.model,
        out=config.out,
        checkpoint=config.checkpoint,
        part=config.part,
        quantize=config.quantize,
        data=config.data,
    )
