"""`electra export --to onnx`: which networks of a MODEL go out, and how quick they are."""

import logging
import tempfile
from pathlib import Path

from electra.commands.export import ExportConfig
from electra.commands.onnx_quality import quality_of
from electra.commands.onnx_result import OnnxExport, OnnxResult
from electra.errors import CheckpointError, ConfigError, ElectraError, require
from electra.export.huggingface import Pretrained
from electra.export.loading import find, load_pretrained
from electra.export.onnx.model import load_onnx
from electra.export.onnx.speed import timed
from electra.export.onnx.write import save_onnx
from electra.pretraining.export import save_networks

logger = logging.getLogger(__name__)

TOWERS = ("discriminator", "encoder", "generator")
TIMED = ((12,), (24,), (64,), (24,) * 8 + (16,) * 8)
"""Tokens of each row of the batches that are timed."""
ROUNDS = 9


def export_onnx(config: ExportConfig) -> OnnxResult:
    """Write every network of a run, or the one of another model.

    Raises:
        CheckpointError: a package or the model is missing, a network is none that goes out, or a folder is there.
        ConfigError: it is not said where to.
    """
    require("ONNX", "onnx", "onnx", "onnxruntime")
    path = Path(config.model)
    name = "onnx" if config.part == "model" else "onnx-encoder"
    name += f"-{config.quantize}" if config.quantize else ""
    if not any((path / "checkpoints").glob("step-*")):
        if config.checkpoint is not None:
            raise ConfigError(f"--checkpoint is for runs, and {path} is none; leave it out")
        folder = find(config.model)
        if config.out is None and not path.is_dir():
            raise ConfigError(f"{config.model} has no folder here to write to; give --out FOLDER")
        return OnnxResult([_exported(config, folder, config.out or path / name)])
    out = config.out or path / "export" / name
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} is there already; give another --out, or remove it")
    with tempfile.TemporaryDirectory() as temporary:
        export = Path(temporary)
        save_networks(path, export, checkpoint=config.checkpoint)
        towers = [tower for tower in TOWERS if (export / tower / "config.json").is_file()]
        if config.part == "encoder":
            towers = towers[:1]
        return OnnxResult([_exported(config, export / tower, out / tower) for tower in towers])


def _exported(config: ExportConfig, folder: Path, out: Path) -> OnnxExport:
    pretrained = load_pretrained(folder)
    if config.part == "encoder":
        pretrained = pretrained.alone()
    weights = config.quantize or "float32"
    written = save_onnx(pretrained, out, weights=weights, config_json=folder / "config.json")
    _warn(pretrained)
    quality = None
    if config.quantize:
        try:
            quality = quality_of(config, pretrained, folder, load_onnx(out))
        except ElectraError as error:  # the folder is written and right; what it was measured on is not there
            logger.warning("what 8 bits cost was not measured: %s", error)
    fitting = [[min(tokens, pretrained.max_length) for tokens in lengths] for lengths in TIMED]
    return OnnxExport(written, quality, list(timed(pretrained, {"onnx": out}, fitting, rounds=ROUNDS)))


def _warn(pretrained: Pretrained) -> None:
    if pretrained.memory_length:
        logger.warning("memory does not go out: of longer texts each window will be read by itself")
    if pretrained.task is not None and pretrained.task.get("long"):
        logger.warning(
            "texts longer than %s tokens will be cut: how this model reads them (data.long) does not go out",
            pretrained.task.get("max_length", pretrained.max_length),
        )
