"""What 8 bits cost is measured on: a task's examples, held-out text, a file that is given, or a few sentences."""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from electra.analysis.quantization import QuantizationEffect, compare_on_task, compare_on_texts
from electra.commands.export import ExportConfig
from electra.data.shards import MANIFEST, TokenData
from electra.errors import ConfigError, DataError
from electra.export.huggingface import Pretrained
from electra.export.loading import load_pretrained
from electra.export.onnx.model import OnnxModel
from electra.export.onnx.write import outgoing_task
from electra.finetuning.load_task import load_task
from electra.finetuning.results import find_finetuning, load_finetuning_config
from electra.readers.base import Reject, find_reader
from electra.readers.read import read_texts

EXAMPLES = 1000
"""Of a task, on which at most 8 bits are measured."""
TEXTS, TOKENS = 256, 126
"""Texts on which 8 bits are measured where there is no task, and tokens of each at most."""
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


def quality_of(config: ExportConfig, pretrained: Pretrained, folder: Path, model: OnnxModel) -> QuantizationEffect:
    """A figure of the network as PyTorch has it, and of what went out.

    Args:
        folder: that the network was read from; a generator beside it makes the fakes for a discriminator.

    Raises:
        DataError: there is nothing to measure on.
    """
    if pretrained.task is not None:
        return compare_on_task(replace(pretrained, task=outgoing_task(pretrained)), model, _examples(config))
    texts, ids = _texts(config, pretrained)
    beside = folder.parent / "generator"
    generator = load_pretrained(beside) if (beside / "config.json").is_file() else None
    return compare_on_texts(pretrained, model, ids, generator=generator, texts=texts)


def _examples(config: ExportConfig) -> list[object]:
    """Of dev of the task that a model was fine-tuned for."""
    folder = find_finetuning(config.model)
    if folder is None:
        raise DataError(f"{config.model} does not say which task it was fine-tuned for; give the folder of it")
    found = load_finetuning_config(folder)
    if config.data is not None:
        found = replace(found, data=replace(found.data, path=config.data))
    try:
        task = load_task(found)
    except (DataError, ConfigError) as error:
        raise DataError(f"{error}; name the task's data with --data") from error
    return list(islice(task.splits["dev"], EXAMPLES))


def _texts(config: ExportConfig, pretrained: Pretrained) -> tuple[str, list[list[int]]]:
    """What the texts are, and the tokens of each, no more than the network reads at once."""
    data, most = _prepared(config), min(TOKENS, pretrained.max_length - 2)
    if data is not None:
        if data.vocabulary_size == len(pretrained.tokenizer.get_vocab()):
            return f"{data.folder.name}, held out", list(islice(held_out_beginnings(data, most), TEXTS))
        raise DataError(f"{data.folder} was prepared with another vocabulary; give texts with --data FILE")
    texts = list(SENTENCES) if config.data is None else list(islice(_lines(config.data), TEXTS))
    encodings = pretrained.tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = [encoding.ids[:most] for encoding in encodings if encoding.ids]
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


def held_out_beginnings(data: TokenData, most: int) -> Iterator[list[int]]:
    """The beginnings of held-out documents, of so many tokens at most."""
    for shard in data.heldout.shards:
        ends = np.concatenate([[0], shard.sentence_ends])[shard.document_ends]
        start = 0
        for end in ends.tolist():
            if end > start:
                yield shard.tokens[start : min(end, start + most)].tolist()
            start = end


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file() or find_reader(path) is None:
        raise DataError(f"{path} is no text file and no prepared data")
    for item in read_texts(path):
        if not isinstance(item, Reject):
            yield item.text.strip()
