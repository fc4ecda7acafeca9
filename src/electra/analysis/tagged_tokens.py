"""Tagged sentences as tokens, with the word to which each token belongs.

A model reads text as it was written, "don't", but a treebank has words, "do" and "n't". So a sentence's text is
tokenized, and a token belongs to the word that contains its first character.

Shapes: N tokens of all sentences, W words of one, L tokens of one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra.errors import DataError
from electra.tasks.conll import EMPTY_FIELD, Sentence

Numbers = NDArray[np.int64]
Spans = list[tuple[int, int]]


WHOLE, FIRST, LATER = range(3)
PIECES = ("a whole word", "first piece", "later piece")
POSITIONS = (0, 1, 3, 7, 15, 31)
"""The first word of each bin of positions in a sentence, from 0."""


@dataclass(frozen=True, eq=False)
class TaggedTokens:
    """The tokens (N) of all sentences, concatenated; sentences without tokens are left out.

    Attributes:
        ids: the token ids of each sentence.
        tags: the names of all tags, the most frequent first.
        sentence_N, tag_N: the indices of each token's sentence and of its word's tag.
        word_N: the index of its word, counted through all sentences.
        word_position_N: its word's position in the sentence, from 0.
        piece_N: `WHOLE` if the word has no other token, else `FIRST` or `LATER`.
        words: the number of words with tokens.
        rebuilt: the number of sentences whose text is missing or has other words, so that their words were joined
            with spaces.
    """

    ids: list[list[int]]
    tags: tuple[str, ...]
    sentence_N: Numbers
    tag_N: Numbers
    word_N: Numbers
    word_position_N: Numbers
    piece_N: Numbers
    words: int
    rebuilt: int


def tokenize_tagged(sentences: Sequence[Sentence], tokenizer: Tokenizer) -> TaggedTokens:
    """Tokenize tagged sentences.

    Raises:
        DataError: no word has a tag, or none has a token.
    """
    counts = Counter(tag for sentence in sentences for tag in sentence.tags or ())
    tags = sorted(counts, key=lambda tag: (-counts[tag], tag))
    if tags in ([], [EMPTY_FIELD]):
        first = sentences[0]
        raise DataError(
            f"{first.source}:{first.line}: no word has a tag in the fourth field (UPOS); give a tagged treebank"
        )
    numbers = {tag: number for number, tag in enumerate(tags)}
    located = [locate_words(sentence) for sentence in sentences]
    encodings = tokenizer.encode_batch([text for text, _, _ in located], add_special_tokens=False)
    ids: list[list[int]] = []
    parts: list[Numbers] = []
    words = rebuilt = 0
    for sentence, encoding, (text, spans, is_original) in zip(sentences, encodings, located, strict=True):
        if not encoding.ids:
            continue
        rebuilt += not is_original
        position_L = align_tokens(encoding.offsets, text, spans)
        tag_W = np.array([numbers[tag] for tag in sentence.tags or ()])
        starts_word_L = np.diff(position_L, prepend=-1) != 0
        tokens_of_word_L = np.bincount(position_L)[position_L]
        piece_L = np.where(tokens_of_word_L == 1, WHOLE, np.where(starts_word_L, FIRST, LATER))
        word_L = words + starts_word_L.cumsum() - 1
        words += int(starts_word_L.sum())
        parts.append(
            np.stack([np.full(len(position_L), len(ids)), tag_W[position_L], word_L, position_L, piece_L])
        )
        ids.append(encoding.ids)
    if not ids:
        raise DataError(
            f"{sentences[0].source}: the tokenizer has no token for any of its words; is it for another language?"
        )
    sentence_N, tag_N, word_N, word_position_N, piece_N = np.concatenate(parts, 1)
    return TaggedTokens(ids, tuple(tags), sentence_N, tag_N, word_N, word_position_N, piece_N, words, rebuilt)


def locate_words(sentence: Sentence) -> tuple[str, Spans, bool]:
    """The text of a sentence, the characters of each word in it, and whether it is the text in the file.

    The text in the file is used if it consists of the words, in their order, with nothing but whitespace between.
    Otherwise the words are joined with spaces.
    """
    if sentence.text is not None and (spans := _find_spans(sentence.text, sentence.words)) is not None:
        return sentence.text, spans, True
    ends = np.cumsum([len(word) + 1 for word in sentence.words]).tolist()
    spans = [(end - 1 - len(word), end - 1) for word, end in zip(sentence.words, ends, strict=True)]
    return " ".join(sentence.words), spans, False


def _find_spans(text: str, words: Sequence[str]) -> Spans | None:
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


def align_tokens(offsets: Spans, text: str, spans: Spans) -> Numbers:
    """The index of each token's word: the one that contains the token's first character that is no whitespace."""
    starts = []
    for start, end in offsets:
        while start < end and text[start].isspace():
            start += 1
        starts.append(start)
    word_L = np.searchsorted([start for start, _ in spans], starts, side="right") - 1
    return np.maximum.accumulate(word_L.clip(0))


def position_names() -> tuple[str, ...]:
    """The names of the bins of `POSITIONS`."""
    ends = [*(first - 1 for first in POSITIONS[1:]), None]
    names = []
    for first, last in zip(POSITIONS, ends, strict=True):
        if last is None:
            names.append(f"from word {first + 1} on")
        else:
            names.append(f"word {first + 1}" if first == last else f"words {first + 1}-{last + 1}")
    return tuple(names)


def position_bins(word_position_N: Numbers) -> Numbers:
    """The index of the bin of each position."""
    bin_N: Numbers = np.searchsorted(POSITIONS, word_position_N, side="right") - 1
    return bin_N


def rarest_piece(tokens: TaggedTokens, rank_V: Numbers) -> Numbers:
    """The rarest token (an id, N) of each token's word; the word is at least as rare.

    Args:
        rank_V: the number of more frequent tokens.
    """
    id_N = np.concatenate([np.array(ids, np.int64) for ids in tokens.ids])
    order = np.lexsort((rank_V[id_N], tokens.word_N))  # the rarest token of a word comes last
    rarest_W = np.empty(tokens.words, np.int64)
    rarest_W[tokens.word_N[order]] = id_N[order]
    return rarest_W[tokens.word_N]
