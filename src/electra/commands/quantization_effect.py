"""Measure the effect of 8-bit weights on a task's examples, held-out text, a given file, or a few sentences."""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from electra.analysis.held_out_text import held_out_documents
from electra.analysis.quantization import QuantizationEffect, compare_on_task, compare_on_texts
from electra.data.shards import MANIFEST, TokenData
from electra.errors import ConfigError, DataError
from electra.export.loading import load_pretrained
from electra.export.onnx.model import OnnxModel
from electra.export.onnx.write import exported_task
from electra.export.pretrained import Pretrained
from electra.finetuning.load_task import load_task
from electra.finetuning.results import find_finetuning, load_finetuning_config
from electra.readers.base import Reject, find_reader
from electra.readers.read import read_texts

MAX_EXAMPLES = 1000
"""Examples of the task of a fine-tuned model."""
MAX_TEXTS, MAX_TOKENS = 256, 126
"""Texts for other models, and tokens of each."""
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
"""Texts for a model without data."""


def measure_quantization(
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
        return compare_on_task(exported, model, _read_examples(name, data))
    texts, ids = _read_texts(name, pretrained, data)
    generator_folder = folder.parent / "generator"
    has_generator = (generator_folder / "config.json").is_file()
    generator = load_pretrained(generator_folder) if has_generator else None
    return compare_on_texts(pretrained, model, ids, generator=generator, texts=texts)


def _read_examples(name: str, data: Path | None) -> list[object]:
    """Development examples of the task that a model was fine-tuned for."""
    folder = find_finetuning(name)
    if folder is None:
        raise DataError(
            f"{name} does not say which task it was fine-tuned for; give the folder of the fine-tuning"
        )
    config = load_finetuning_config(folder)
    if data is not None:
        config = replace(config, data=replace(config.data, path=data))
    try:
        task = load_task(config)
    except (DataError, ConfigError) as error:
        raise DataError(f"{error}; give the task's data with --data") from error
    return list(islice(task.splits["dev"], MAX_EXAMPLES))


def _read_texts(name: str, pretrained: Pretrained, data: Path | None) -> tuple[str, list[list[int]]]:
    """A description of the texts, and the tokens of each, at most as many as the network reads at once."""
    prepared, max_tokens = _open_prepared(name, data), min(MAX_TOKENS, pretrained.max_length - 2)
    if prepared is not None:
        if prepared.vocabulary_size == len(pretrained.tokenizer.get_vocab()):
            documents = held_out_documents(prepared.heldout)[:MAX_TEXTS]
            ids = [shard.tokens[start : min(end, start + max_tokens)].tolist() for shard, start, end in documents]
            return f"{prepared.folder.name}, held out", ids
        raise DataError(f"{prepared.folder} was prepared with another vocabulary; give texts with --data FILE")
    texts = list(SENTENCES) if data is None else list(islice(_read_file(data), MAX_TEXTS))
    encodings = pretrained.tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = [encoding.ids[:max_tokens] for encoding in encodings if encoding.ids]
    if not ids:
        raise DataError(f"{data} contains no text")
    return ("our own sentences" if data is None else data.name), ids


def _open_prepared(name: str, data: Path | None) -> TokenData | None:
    """Prepared data: those given, or those that the run was trained on, if they still exist."""
    if data is not None:
        return TokenData.open(data, verify=False) if (data / MANIFEST).is_file() else None
    path = Path(name)
    for run in (path, *path.parents[:2]):
        if (run / "checkpoints").is_dir() and (run / "config.toml").is_file():
            folder = _run_data(run)
            exists = folder is not None and (folder / MANIFEST).is_file()
            return TokenData.open(folder, verify=False) if folder is not None and exists else None
    return None


def _run_data(run: Path) -> Path | None:
    """The data folder in a run's config."""
    data = tomllib.loads((run / "config.toml").read_text(encoding="utf-8")).get("data")
    return Path(data) if isinstance(data, str) else None


def _read_file(path: Path) -> Iterator[str]:
    if not path.is_file() or find_reader(path) is None:
        raise DataError(f"{path} is neither a text file nor prepared data")
    for item in read_texts(path):
        if not isinstance(item, Reject):
            yield item.text.strip()
