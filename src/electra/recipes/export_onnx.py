"""`electra export --to onnx`: which networks of a MODEL go out, and what is measured of them."""

import logging
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from electra.analysis.quantization import Quality, of_task, of_texts
from electra.data.corpus import Source, kind_of, read
from electra.data.readers import Reject, numbered_lines, text_column
from electra.data.shards import MANIFEST, TokenData
from electra.errors import CheckpointError, ConfigError, DataError, ElectraError
from electra.export.huggingface import Pretrained
from electra.export.loading import find, load_pretrained
from electra.export.onnx_model import load_onnx, require
from electra.export.onnx_speed import timed
from electra.export.onnx_write import save_onnx
from electra.recipes.export import ExportConfig, save_towers
from electra.recipes.finetune_outcome import config_of, fine_tuning_of
from electra.recipes.finetune_task import load_task
from electra.recipes.onnx_result import OnnxExport, OnnxResult

logger = logging.getLogger(__name__)

TOWERS = ("discriminator", "encoder", "generator")
EXAMPLES = 1000
"""Of a task, on which at most 8 bits are measured."""
TEXTS, TOKENS = 256, 126
"""Texts on which 8 bits are measured where there is no task, and tokens of each at most."""
TIMED = ((12,), (24,), (64,), (24,) * 8 + (16,) * 8)
"""Tokens of each row of the batches that are timed."""
ROUNDS = 9
SENTENCES = (
    "The committee will meet again on Thursday to discuss the budget for the coming year.",
    "Rain fell all night, and by morning the river had risen over the lower road.",
    "She opened the letter, read it twice, and put it back into the drawer without a word.",
    "Most of the houses in the village were built of stone from the old quarry.",
    "The museum bought the painting in 1954 from a collector who lived near Geneva.",
    "He studied law in Vienna before he became known as a writer of short stories.",
    "When the train arrived at last, nobody was waiting on the platform.",
    "The species is found in dry forests from southern Mexico to northern Colombia.",
    "Our neighbours keep three goats, a dozen hens and a very old donkey.",
    "The first edition of the book sold out within a week of its publication.",
    "Heat the oil in a large pan and add the onions when it begins to smoke.",
    "The company opened a second factory near the harbour, which employs two hundred people.",
    "It took the climbers eleven hours to reach the summit and six to come down again.",
    "The song was recorded in a single afternoon with a borrowed guitar.",
    "Doctors advised him to rest, but he was back at work on the following Monday.",
    "The bridge was closed to traffic after engineers had found cracks in two of its pillars.",
)
"""What is read where nothing else is to be found."""


def export_onnx(config: ExportConfig) -> OnnxResult:
    """Write every network of a run, or the one of another model.

    Raises:
        CheckpointError: a package or the model is missing, a network is none that goes out, or a folder is there.
        ConfigError: it is not said where to.
    """
    require("onnx", "onnxruntime")
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
        save_towers(path, export, checkpoint=config.checkpoint)
        towers = [tower for tower in TOWERS if (export / tower / "config.json").is_file()]
        if config.part == "encoder":
            towers = towers[:1]
        return OnnxResult([_exported(config, export / tower, out / tower) for tower in towers])


def _exported(config: ExportConfig, folder: Path, out: Path) -> OnnxExport:
    pretrained = load_pretrained(folder)
    written = save_onnx(
        pretrained, out, weights=config.quantize or "float32", alone=config.part == "encoder",
        config_json=folder / "config.json",
    )  # fmt: skip
    alone = replace(pretrained, head=None, task=None) if config.part == "encoder" else pretrained
    _warn(alone)
    quality = None
    if config.quantize:
        try:
            quality = _quality(config, alone, folder, out)
        except ElectraError as error:  # the folder is written and right; what it was measured on is not there
            logger.warning("what 8 bits cost was not measured: %s", error)
    model = load_onnx(out)
    fitting = [[min(tokens, pretrained.max_length) for tokens in lengths] for lengths in TIMED]
    return OnnxExport(
        written, quality, [timed(alone, {"onnx": model}, lengths, rounds=ROUNDS) for lengths in fitting]
    )


def _warn(pretrained: Pretrained) -> None:
    if pretrained.memory_length:
        logger.warning("memory does not go out: of longer texts each window will be read by itself")
    if pretrained.task is not None and pretrained.task.get("long"):
        logger.warning(
            "texts longer than %s tokens will be cut: how this model reads them (data.long) does not go out",
            pretrained.task.get("max_length", pretrained.max_length),
        )


def _quality(config: ExportConfig, pretrained: Pretrained, folder: Path, out: Path) -> Quality:
    model = load_onnx(out)
    if pretrained.task is not None:
        return of_task(_shortened(pretrained), model, _examples(config))
    texts, ids = _texts(config, pretrained)
    beside = folder.parent / "generator"
    generator = load_pretrained(beside) if (beside / "config.json").is_file() else None
    return of_texts(pretrained, model, ids, generator=generator, texts=texts)


def _shortened(pretrained: Pretrained) -> Pretrained:
    """The model without its way of reading longer texts, so that both read the same."""
    task = {name: value for name, value in (pretrained.task or {}).items() if name not in ("long", "longest")}
    return replace(pretrained, task=task)


def _examples(config: ExportConfig) -> list[object]:
    """Of dev of the task that a model was fine-tuned for."""
    folder = fine_tuning_of(config.model)
    if folder is None:
        raise DataError(f"{config.model} does not say which task it was fine-tuned for; give the folder of it")
    found = config_of(folder)
    if config.data is not None:
        found = replace(found, data=replace(found.data, path=config.data))
    try:
        task, _ = load_task(found)
    except (DataError, ConfigError) as error:
        raise DataError(f"{error}; name the task's data with --data") from error
    return list(islice(task.splits["dev"], EXAMPLES))


def _texts(config: ExportConfig, pretrained: Pretrained) -> tuple[str, list[list[int]]]:
    """What the texts are, and the tokens of each."""
    data = _prepared(config)
    if data is not None:
        if data.vocabulary_size == len(pretrained.tokenizer.get_vocab()):
            return f"{data.folder.name}, held out", list(islice(_held_out(data), TEXTS))
        raise DataError(f"{data.folder} was prepared with another vocabulary; give texts with --data FILE")
    texts = list(SENTENCES) if config.data is None else list(islice(_lines(config.data), TEXTS))
    encodings = pretrained.tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = [encoding.ids[:TOKENS] for encoding in encodings if encoding.ids]
    if not ids:
        raise DataError(f"{config.data} holds no text")
    return ("our own sentences" if config.data is None else config.data.name), ids


def _prepared(config: ExportConfig) -> TokenData | None:
    """Prepared data: what is given, or what the run was trained on, if it is still there."""
    if config.data is not None:
        return TokenData.open(config.data, verify=False) if (config.data / MANIFEST).is_file() else None
    path = Path(config.model)
    for run in (path, *path.parents[:2]):
        if (run / "checkpoints").is_dir() and (run / "config.toml").is_file():
            data = _run_data(run)
            return None if data is None or not (data / MANIFEST).is_file() else TokenData.open(data, verify=False)
    return None


def _run_data(run: Path) -> Path | None:
    """The folder of data in a run's config."""
    data = tomllib.loads((run / "config.toml").read_text(encoding="utf-8")).get("data")
    return Path(data) if isinstance(data, str) else None


def _held_out(data: TokenData) -> Iterator[list[int]]:
    """The beginnings of held-out documents."""
    for shard in data.heldout.shards:
        ends = np.concatenate([[0], shard.sentence_ends])[shard.document_ends]
        start = 0
        for end in ends.tolist():
            if end > start:
                yield shard.tokens[start : min(end, start + TOKENS)].tolist()
            start = end


def _lines(path: Path) -> Iterator[str]:
    kind = kind_of(path) if path.is_file() else None
    if kind is None:
        raise DataError(f"{path} is no text file and no prepared data")
    if kind == "text":
        for _, line in numbered_lines(path):
            yield (line or b"").decode(errors="replace").strip()
        return
    column = text_column(path, kind, None)
    for item in read(Source(str(path), kind, path.stat().st_size, column)):
        if not isinstance(item, Reject):
            yield item.text
