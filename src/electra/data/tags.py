"""The part of speech of each token of a vocabulary: the most frequent tag of the words that contain it.

Shape: V entries of the vocabulary.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra.data.tokenizer import vocabulary_size
from electra.errors import DataError
from electra.json_files import write_json

TAGS = "tags.json"
"""Name of the table in a folder of prepared data."""
UNKNOWN = "?"
"""The tag of tokens that occur in no tagged word."""

TaggedSentence = tuple[Sequence[str], Sequence[str]]
"""Words and their tags."""


@dataclass(frozen=True)
class TagTable:
    """The tag of each token.

    Attributes:
        names: names of the tags; the first is `UNKNOWN`.
        tags_V: index of the tag of each token.
    """

    names: tuple[str, ...]
    tags_V: NDArray[np.int64]

    @classmethod
    def count(cls, sentences: Iterable[TaggedSentence], tokenizer: Tokenizer) -> "TagTable":
        """Build the table from tagged text; if two tags are equally frequent, the first in the alphabet is taken.

        Raises:
            DataError: there is no tagged word.
        """
        words: dict[tuple[str, str], int] = {}
        for sentence, tags in sentences:
            for word, tag in zip(sentence, tags, strict=True):
                words[word, tag] = words.get((word, tag), 0) + 1
        if not words:
            raise DataError("there is no tagged word to build a table from")
        names = (UNKNOWN, *sorted({tag for _, tag in words}))
        numbers = {name: number for number, name in enumerate(names)}
        counts = np.zeros((vocabulary_size(tokenizer), len(names)), np.int64)
        encodings = tokenizer.encode_batch([word for word, _ in words], add_special_tokens=False)
        for encoding, ((_, tag), count) in zip(encodings, words.items(), strict=True):
            for token in encoding.ids:
                counts[token, numbers[tag]] += count
        return cls(names, np.where(counts.any(1), counts.argmax(1), 0))

    def write(self, folder: Path) -> Path:
        """Write the table next to the shards of prepared data, and return its path."""
        path = folder / TAGS
        write_json(path, {"names": self.names, "tags": self.tags_V.tolist()}, indent=None)
        return path

    @classmethod
    def read(cls, folder: Path) -> "TagTable | None":
        """Read the table of prepared data; None: there is no table.

        Raises:
            DataError: it cannot be read.
        """
        path = folder / TAGS
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            table = cls(tuple(content["names"]), np.array(content["tags"], np.int64))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cannot be read ({error}); make it again with `electra data tags`") from error
        if (
            table.tags_V.ndim != 1
            or table.tags_V.min(initial=0) < 0
            or table.tags_V.max(initial=0) >= len(table.names)
        ):
            raise DataError(f"{path}: it has an index that is not a tag; make it again with `electra data tags`")
        return table
