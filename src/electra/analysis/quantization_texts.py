"""The texts that the effect of 8-bit weights is measured on: held-out text, a given file, or a few sentences."""

import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from electra.analysis.held_out_text import held_out_documents
from electra.data.shards import MANIFEST, TokenData
from electra.errors import DataError
from electra.export.pretrained import Pretrained
from electra.readers.base import Reject, find_reader
from electra.readers.read import read_texts

MAX_TEXTS, MAX_TOKENS = 256, 126
"""Number of texts, and tokens of each."""
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


def read_quantization_texts(name: str, pretrained: Pretrained, data: Path | None) -> tuple[str, list[list[int]]]:
    """Return a description of the texts, and the tokens of each, at most as many as the network reads at once.

    Args:
        name: MODEL on the command line.
        data: a text file or prepared data; None: the data that the model was trained on, if they still exist.

    Raises:
        DataError: there is no text, or the data have another vocabulary.
    """
    prepared, max_tokens = (
        _open_prepared(name, data),
        min(MAX_TOKENS, (pretrained.trained_length or pretrained.max_length) - 2),
    )
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
