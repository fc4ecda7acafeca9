"""Which part of speech each token of a vocabulary has: the commonest one of the words that it stands in.

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
"""The table's name in a folder that `electra prepare` made."""
UNKNOWN = "?"
"""The tag of tokens that no tagged word has."""

Sentence = tuple[Sequence[str], Sequence[str]]
"""Words, and their tags."""


@dataclass(frozen=True)
class TagTable:
    """The tag of each token.

    Attributes:
        names: of the tags; the first is that of tokens no tagged word has.
        tags_V: the number of each token's tag.
    """

    names: tuple[str, ...]
    tags_V: NDArray[np.int64]

    @classmethod
    def counted(cls, sentences: Iterable[Sentence], tokenizer: Tokenizer) -> "TagTable":
        """The table of tagged text; where two tags are as common, the one that comes first in the alphabet.

        Raises:
            DataError: there is no tagged word.
        """
        words: dict[tuple[str, str], int] = {}
        for some, tags in sentences:
            for word, tag in zip(some, tags, strict=True):
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
        """Beside the shards of prepared data."""
        path = folder / TAGS
        write_json(path, {"names": self.names, "tags": self.tags_V.tolist()}, indent=None)
        return path

    @classmethod
    def read(cls, folder: Path) -> "TagTable | None":
        """The table of prepared data; None where there is none.

        Raises:
            DataError: it cannot be read.
        """
        path = folder / TAGS
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            table = cls(tuple(found["names"]), np.array(found["tags"], np.int64))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cannot be read ({error}); make it again with `electra data tags`") from error
        if (
            table.tags_V.ndim != 1
            or table.tags_V.min(initial=0) < 0
            or table.tags_V.max(initial=0) >= len(table.names)
        ):
            raise DataError(f"{path}: its numbers are no tags; make it again with `electra data tags`")
        return table
