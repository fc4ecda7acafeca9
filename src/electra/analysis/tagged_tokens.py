"""Tagged sentences as tokens of which is known what word they belong to.

A model reads text as it was written, "don't", where a treebank has words, "do" and "n't". So a sentence is cut
into tokens from its text, and a token belongs to the word in which its first character stands.

Shapes: N tokens of all sentences, W words of one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra.errors import DataError
from electra.tasks.conll import Sentence

Numbers = NDArray[np.int64]
Spans = list[tuple[int, int]]
UNTAGGED = "_"
"""What CoNLL-U writes where a field is not filled."""

WHOLE, FIRST, LATER = range(3)
PIECES = ("a whole word", "first piece", "later piece")
POSITIONS = (0, 1, 3, 7, 15, 31)
"""The first word of each stretch of a sentence, from 0."""


@dataclass(frozen=True, eq=False)
class TaggedTokens:
    """The tokens (N) of all sentences, one behind the other; sentences without tokens are left out.

    Attributes:
        ids: of each sentence.
        tags: the names of all tags, the commonest first.
        sentence_N, tag_N: the numbers of each token's sentence and of its word's tag.
        word_N: a number for each word, rising through all sentences.
        place_N: its word's place in the sentence, from 0.
        piece_N: `WHOLE` where its word has no other, else `FIRST` or `LATER`.
        words: how many have tokens of their own.
        rebuilt: sentences whose text was not there or had other words, so that words stand with blanks between.
    """

    ids: list[list[int]]
    tags: tuple[str, ...]
    sentence_N: Numbers
    tag_N: Numbers
    word_N: Numbers
    place_N: Numbers
    piece_N: Numbers
    words: int
    rebuilt: int


def tagged_tokens(sentences: Sequence[Sentence], tokenizer: Tokenizer) -> TaggedTokens:
    """Sentences cut into tokens.

    Raises:
        DataError: no word has a tag, or none has a token.
    """
    seen = Counter(tag for sentence in sentences for tag in sentence.tags or ())
    tags = sorted(seen, key=lambda tag: (-seen[tag], tag))
    if tags in ([], [UNTAGGED]):
        first = sentences[0]
        raise DataError(
            f"{first.source}:{first.line}: no word has a tag in the fourth field (UPOS); give a treebank that is "
            "tagged"
        )
    numbers = {tag: number for number, tag in enumerate(tags)}
    found = [located(sentence) for sentence in sentences]
    encodings = tokenizer.encode_batch([text for text, _, _ in found], add_special_tokens=False)
    ids: list[list[int]] = []
    parts: list[Numbers] = []
    words = rebuilt = 0
    for sentence, encoding, (text, spans, is_own) in zip(sentences, encodings, found, strict=True):
        if not encoding.ids:
            continue
        rebuilt += not is_own
        place_L = words_of(encoding.offsets, text, spans)
        tag_W = np.array([numbers[tag] for tag in sentence.tags or ()])
        starts_L = np.diff(place_L, prepend=-1) != 0
        sizes_L = np.bincount(place_L)[place_L]
        piece_L = np.where(sizes_L == 1, WHOLE, np.where(starts_L, FIRST, LATER))
        number_L = words + starts_L.cumsum() - 1
        words += int(starts_L.sum())
        parts.append(np.stack([np.full(len(place_L), len(ids)), tag_W[place_L], number_L, place_L, piece_L]))
        ids.append(encoding.ids)
    if not ids:
        raise DataError(
            f"{sentences[0].source}: the tokenizer makes no token of its words; is it of that language?"
        )
    sentence_N, tag_N, word_N, place_N, piece_N = np.concatenate(parts, 1)
    return TaggedTokens(ids, tuple(tags), sentence_N, tag_N, word_N, place_N, piece_N, words, rebuilt)


def located(sentence: Sentence) -> tuple[str, Spans, bool]:
    """The text of a sentence, the characters of each word in it, and whether it is the text of the file.

    A text that has more or others than the words, in their order and with nothing but blanks between, is not
    taken: then the words stand with a blank between each two.
    """
    if sentence.text is not None and (spans := _spans(sentence.text, sentence.words)) is not None:
        return sentence.text, spans, True
    ends = np.cumsum([len(word) + 1 for word in sentence.words]).tolist()
    spans = [(end - 1 - len(word), end - 1) for word, end in zip(sentence.words, ends, strict=True)]
    return " ".join(sentence.words), spans, False


def _spans(text: str, words: Sequence[str]) -> Spans | None:
    spans: Spans = []
    end = 0
    for word in words:
        start = end
        while text[start : start + 1].isspace() and not text.startswith(word, start):
            start += 1
        if not text.startswith(word, start):
            return None
        end = start + len(word)
        spans.append((start, end))
    return spans if not text[end:].strip() else None


def words_of(offsets: Spans, text: str, spans: Spans) -> Numbers:
    """The word of each token: that in which its first character stands that is no blank."""
    starts = []
    for start, end in offsets:
        while start < end and text[start].isspace():
            start += 1
        starts.append(start)
    found = np.searchsorted([start for start, _ in spans], starts, side="right") - 1
    return np.maximum.accumulate(found.clip(0))


def position_names() -> tuple[str, ...]:
    """Of the stretches of a sentence that `POSITIONS` begin."""
    ends = [*(first - 1 for first in POSITIONS[1:]), None]
    names = []
    for first, last in zip(POSITIONS, ends, strict=True):
        if last is None:
            names.append(f"from word {first + 1} on")
        else:
            names.append(f"word {first + 1}" if first == last else f"words {first + 1}-{last + 1}")
    return tuple(names)


def position_of(place_N: Numbers) -> Numbers:
    """The stretch of each place."""
    found: Numbers = np.searchsorted(POSITIONS, place_N, side="right") - 1
    return found


def rarest_piece(tokens: TaggedTokens, rank_V: Numbers) -> Numbers:
    """For each token that one of its word's tokens (an id, N) that is rarest: the word is no commoner than that.

    Args:
        rank_V: how many tokens are commoner.
    """
    id_N = np.concatenate([np.array(one, np.int64) for one in tokens.ids])
    order = np.lexsort((rank_V[id_N], tokens.word_N))  # the rarest of a word stands last
    rarest_W = np.empty(tokens.words, np.int64)
    rarest_W[tokens.word_N[order]] = id_N[order]
    return rarest_W[tokens.word_N]
