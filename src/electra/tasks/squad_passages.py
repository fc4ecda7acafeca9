"""The tokens of passages, and which characters each of them stands for.

Shapes: N tokens of a passage.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer


class Passage(NamedTuple):
    """A context's tokens, and the characters (N, 2) of each: from, and up to but without."""

    ids: list[int]
    spans_N2: NDArray[np.int32]


def tokenize_passages(contexts: Iterable[str], tokenizer: Tokenizer) -> dict[str, Passage]:
    """By context, each tokenised once."""
    texts = list(dict.fromkeys(contexts))
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return {
        text: Passage(encoding.ids, _characters(text, encoding.offsets))
        for text, encoding in zip(texts, encodings, strict=True)
    }


def _characters(text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    """The characters (N, 2) of each token, without white space around them; a token may have none.

    An accent that is a character of its own goes with the token before it, also where the tokenizer strips it.
    """
    if not offsets:
        return np.zeros((0, 2), np.int32)
    count = len(text)
    starts_N, ends_N = np.array(offsets, np.int64).T
    blank = np.array([*map(str.isspace, text), True])
    places = np.arange(count + 1)
    next_word = np.minimum.accumulate(np.where(blank, count, places)[::-1])[::-1]
    word_end = np.maximum.accumulate(np.concatenate([[0], np.where(blank[:-1], 0, places[1:])]))
    starts_N = next_word[starts_N]
    ends_N = np.maximum(word_end[ends_N], starts_N)
    if not text.isascii():
        accent = np.array([*(category(character).startswith("M") for character in text), False])
        next_other = np.minimum.accumulate(np.where(accent, count, places)[::-1])[::-1]
        ends_N = np.maximum(ends_N, np.minimum(next_other[ends_N], np.append(starts_N[1:], count)))
    return np.stack([starts_N, ends_N], 1).astype(np.int32)
