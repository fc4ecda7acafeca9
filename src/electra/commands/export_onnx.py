"""The part of `electra export` that needs the extra onnx: networks as folders for onnxruntime."""

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from electra.analysis.quantization import QuantizationEffect, compare_on_task, compare_on_texts
from electra.analysis.quantization_texts import read_quantization_texts
from electra.errors import CheckpointError, ConfigError, ElectraError, require
from electra.export.loading import find_model, is_model_folder, load_pretrained
from electra.export.onnx.check import TOLERANCE
from electra.export.onnx.model import OnnxModel, load_onnx
from electra.export.onnx.write import SavedOnnx, exported_task, save_onnx, whole_folder
from electra.export.pretrained import Pretrained, warn_if_failed
from electra.finetuning.results import load_dev_examples
from electra.folder_lock import hold, is_lock_file
from electra.pretraining.export import save_networks

logger = logging.getLogger(__name__)

MAX_EXAMPLES = 1000
"""Examples of the task of a fine-tuned model, to measure the effect of quantization."""
NETWORKS = ("discriminator", "encoder", "generator")
KIND_NAMES = {"generator": "masked language model"}
"""Other words for a kind: generators are masked language models, and so is the `encoder` of electra-plus."""
MEBIBYTE = 2**20


@dataclass(frozen=True)
class OnnxExport:
    """A folder that was written, and the effect of quantization (None: not quantized, or not measured)."""

    written: SavedOnnx
    quality: QuantizationEffect | None

    def __str__(self) -> str:
        written = self.written
        lines = [
            f"{written.folder} ({KIND_NAMES.get(written.kind, written.kind)}, {written.bytes / MEBIBYTE:.1f} MiB)",
            f"  the graph in 32 bits is within {written.difference:.1e} of PyTorch's network "
            f"(the limit is {TOLERANCE:.0e})",
        ]
        if self.quality is not None:
            lines.append(f"  {self.quality}")
        return "\n".join(lines)


@dataclass(frozen=True)
class OnnxResult:
    """All folders of an export."""

    exports: Sequence[OnnxExport]

    @property
    def main_folder(self) -> Path:
        """The folder of the first network: of several, the discriminator or encoder."""
        return self.exports[0].written.folder

    def __str__(self) -> str:
        return "\n".join(map(str, self.exports))


def export_onnx(
    model: str,
    *,
    out: Path | None,
    checkpoint: str | None,
    part: Literal["model", "encoder"],
    quantize: Literal["int8"] | None,
    data: Path | None,
) -> OnnxResult:
    """Export every network of a run, or the network of another model.

    Args:
        out, checkpoint, part, quantize, data: the options of `electra export`.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
        CheckpointError: the model does not exist or cannot be exported, the folder exists already, or another
            process exports to it.
        ConfigError: an option does not suit the model, or --out is missing.
    """
    require("ONNX", "onnx", "onnx", "onnxruntime")
    path = Path(model)
    name = "onnx" if part == "model" else "onnx-encoder"
    name += f"-{quantize}" if quantize else ""

    def export(folder: Path, out: Path) -> OnnxExport:
        pretrained = load_pretrained(folder)
        if part == "encoder":
            pretrained = pretrained.encoder_only()
        written = save_onnx(pretrained, out, weights=quantize or "float32", config_json=folder / "config.json")
        warn_if_failed(pretrained.task, model)
        _warn(pretrained)
        if not quantize:
            return OnnxExport(written, None)
        try:
            return OnnxExport(written, _measure_quantization(model, pretrained, folder, load_onnx(out), data=data))
        except ElectraError as error:  # the export is complete; only the data to measure on are missing
            logger.warning("The effect of 8 bits was not measured: %s", error)
            return OnnxExport(written, None)

    if not any((path / "checkpoints").glob("step-*")):
        if checkpoint is not None:
            raise ConfigError(f"--checkpoint is for runs, and {path} is not one; leave it out")
        folder = find_model(model)
        if out is None and not path.is_dir():
            raise ConfigError(f"{model} is not a local folder to write into; give --out FOLDER")
        exported = export(folder, out or path / name)
        others = [
            str(one) for other in NETWORKS if is_model_folder(one := folder.parent / other) and one != folder
        ]
        if part == "model" and path.name != folder.name and folder.name in NETWORKS and others:
            logger.info("the %s alone was exported; beside it is %s", folder.name, " and ".join(others))
        return OnnxResult([exported])
    out = out or path / "export" / name
    if out.exists() and not (out.is_dir() and all(is_lock_file(path.name) for path in out.iterdir())):
        raise CheckpointError(f"{out} exists already; give another --out, or remove it")
    with tempfile.TemporaryDirectory() as temporary, whole_folder(out) as partial, hold(out, work="exporting"):
        saved = Path(temporary)
        save_networks(path, saved, checkpoint=checkpoint)
        networks = [network for network in NETWORKS if (saved / network / "config.json").is_file()]
        if part == "encoder":
            networks = networks[:1]
        exports = [export(saved / network, partial / network) for network in networks]
    return OnnxResult(
        [replace(one, written=replace(one.written, folder=out / one.written.folder.name)) for one in exports]
    )


def _warn(pretrained: Pretrained) -> None:
    if pretrained.memory_length:
        logger.warning("The memory is not exported: the windows of a longer text will be read independently")
    if pretrained.task is not None and pretrained.task.get("long"):
        logger.warning(
            "Texts longer than %s tokens will be truncated: how this model reads them (data.long) is not exported",
            pretrained.task.get("max_length", pretrained.max_length),
        )


def _measure_quantization(
    name: str, pretrained: Pretrained, folder: Path, model: OnnxModel, *, data: Path | None
) -> QuantizationEffect:
    """Compare a network with its quantized export, with the same metric on the same texts.

    Args:
        name: MODEL on the command line.
        folder: the folder of the network. For a discriminator, a generator next to it samples replaced tokens.
        data: the data to measure on; None: the data that the model was trained on, if they still exist.

    Raises:
        DataError: there are no data to measure on.
    """
    if pretrained.task is not None:
        exported = replace(pretrained, task=exported_task(pretrained))
        return compare_on_task(exported, model, load_dev_examples(name, data)[:MAX_EXAMPLES])
    texts, ids = read_quantization_texts(name, pretrained, data)
    generator_folder = folder.parent / "generator"
    has_generator = (generator_folder / "config.json").is_file()
    generator = load_pretrained(generator_folder) if has_generator else None
    return compare_on_texts(pretrained, model, ids, generator=generator, texts=texts)
