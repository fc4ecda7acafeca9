"""Encode documents as token ids, in one process or in several, with a cache of words.

`tokenizers` spends most of its time on words that it has encoded before. If a tokenizer works word by word (BERT's
pipeline, byte-level BPE), `WordCache` looks up the ids of a word and calls the tokenizer only for new words; other
tokenizers are called sentence by sentence. `encode_uncached` is the reference that both must equal.
"""

import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from tokenizers import Tokenizer

from electra.data.shards import ENDS, Ends, Tokens, token_dtype
from electra.data.tokenizer import (
    STRIP_ACCENTS,
    byte_level_options,
    normalizer_parts,
    special_tokens,
    vocabulary_size,
)
from electra.preparation.sentences import split_sentences
from electra.preparation.workers import map_in_order

CACHED_WORDS = 600_000  # in each of at most two caches; together about 130 MB per process
LONGEST_CACHED = 32  # characters; longer strings seldom occur twice

# Characters that are always a separate word in BERT's pipeline: ASCII punctuation, common Unicode punctuation, and
# (with `handle_chinese_chars`) ideographs. A subset of its rules is enough to be exact.
_PUNCTUATION = r"!-/:;?@\[-`{-~¡«·»¿‐-‧‹›、。〈-】！，．：；？（）"
_IDEOGRAPHS = "㐀-䶿一-鿿"
_RELATIONS = "<=>"  # with a mark after it, each is another character (≠) where the normalizer composes

# Normalizers after BERT's that change a character and the marks after it, and look at nothing else.
_BY_CHARACTER: list[dict[str, Any]] = [{"type": "NFD"}, STRIP_ACCENTS, {"type": "NFC"}]

Meta = TypeVar("Meta")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Documents as one array of ids with the ends of sentences (in tokens) and of documents (in sentences)."""

    tokens: Tokens
    sentence_ends: Ends
    document_ends: Ends
    unknown: int


@dataclass(frozen=True, slots=True)
class Text:
    """A text to encode, and the share of its sentences, from the end, that is held out (0: none, 1: all)."""

    text: str
    heldout: float = 0.0


def encode_uncached(tokenizer: Tokenizer, sentence: str) -> list[int]:
    """Encode a sentence with the tokenizer alone, without special tokens."""
    return list(tokenizer.encode(sentence, add_special_tokens=False).ids)


class DocumentEncoder:
    """Encodes documents sentence by sentence; a sentence or document without tokens is left out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.unknown = special_tokens(tokenizer).unknown
        self.dtype = token_dtype(vocabulary_size(tokenizer))
        self.encode = build_sentence_encoder(tokenizer)
        # Released RoBERTa tokenizers add no space, and a word without a space before it is another entry.
        options = byte_level_options(tokenizer)
        self.add_spaces = options is not None and not options.add_prefix_space

    def __call__(self, texts: Sequence[Text]) -> tuple[Encoded, Encoded]:
        """Return the training part and the held-out part of some documents."""
        train, heldout = _EncodedBuilder(), _EncodedBuilder()
        for text in texts:
            sentences = split_sentences(text.text)
            if self.add_spaces:  # as in the text, except before the first sentence
                sentences[1:] = [f" {sentence}" for sentence in sentences[1:]]
            kept = round(len(sentences) * (1 - text.heldout))
            if 0 < text.heldout < 1:  # both parts get a sentence, if there are two
                kept = max(min(kept, len(sentences) - 1), 1)
            train.add(map(self.encode, sentences[:kept]))
            heldout.add(map(self.encode, sentences[kept:]))
        return train.build(self.dtype, self.unknown), heldout.build(self.dtype, self.unknown)


@dataclass
class _EncodedBuilder:
    sentences: list[bytes] = field(default_factory=list)
    document_ends: list[int] = field(default_factory=list)

    def add(self, sentences: Iterable[bytes]) -> None:
        before = len(self.sentences)
        self.sentences.extend(filter(None, sentences))
        if len(self.sentences) > before:
            self.document_ends.append(len(self.sentences))

    def build(self, dtype: np.dtype[Any], unknown: int) -> Encoded:
        tokens = np.frombuffer(b"".join(self.sentences), dtype)
        lengths = np.fromiter(map(len, self.sentences), ENDS, len(self.sentences)) // dtype.itemsize
        ends = np.cumsum(lengths, dtype=ENDS), np.array(self.document_ends, ENDS)
        return Encoded(tokens, *ends, unknown=int(np.count_nonzero(tokens == unknown)))


def build_sentence_encoder(tokenizer: Tokenizer) -> Callable[[str], bytes]:
    """Return the fastest function that encodes a sentence with the same ids as `encode_uncached`.

    It returns the ids as the bytes of an array of `token_dtype`: joining bytes is much faster than joining tuples.
    """
    dtype = token_dtype(vocabulary_size(tokenizer))
    pipeline = json.loads(tokenizer.to_str())
    normalizers = list(normalizer_parts(pipeline["normalizer"]))
    names, pre_tokenizer = [part["type"] for part in normalizers], pipeline["pre_tokenizer"] or {"type": None}

    def encode(sentence: str) -> bytes:
        return np.array(encode_uncached(tokenizer, sentence), dtype).tobytes()

    # Added entries are searched in the raw text and may contain a space; then words cannot be encoded one by one.
    only_special = all(entry.special for entry in tokenizer.get_added_tokens_decoder().values())
    if only_special and not pipeline["model"].get("dropout"):
        if names[:1] == ["BertNormalizer"] and pre_tokenizer["type"] == "BertPreTokenizer":
            bert, *others = normalizers
            if all(part in _BY_CHARACTER for part in others):
                separate = _PUNCTUATION + _RELATIONS * (not others) + _IDEOGRAPHS * bert["handle_chinese_chars"]
                return WordCache(encode, separate=separate, lowercase=bert["lowercase"]).encode
        # Normalizers that can make a word empty (StripAccents) would make runs of spaces, which are words.
        options = byte_level_options(tokenizer)
        if {"Lowercase", "NFC"}.issuperset(names) and options is not None and options.use_regex:
            return SpacedWordCache(encode, add_prefix_space=options.add_prefix_space).encode
    return encode


class WordCache(dict[str, bytes]):
    """Ids of the strings between spaces, for BERT's pipeline, which splits at every space and punctuation mark.

    A new string is split at its punctuation. If it is ASCII and the tokenizer lowercases, so is the string. Its
    parts have a separate cache, and only parts that are not in it are encoded by the tokenizer.
    """

    def __init__(self, encode_part: Callable[[str], bytes], *, separate: str, lowercase: bool) -> None:
        super().__init__()
        self.encode_part = encode_part
        self.parts: dict[str, bytes] = {}
        self.split = re.compile(f"([{separate}])").split
        self.lowercase = lowercase

    def encode(self, sentence: str) -> bytes:
        # Only at the space character: other white space, and what Python and BERT classify differently, stays
        # inside a string and is left to the tokenizer.
        return b"".join(map(self.__getitem__, sentence.split(" ")))

    def __missing__(self, string: str) -> bytes:
        lower = self.lowercase and string.isascii()
        ids = b"".join([self._get_part(part) for part in self.split(string.lower() if lower else string) if part])
        _store(self, string, ids)
        return ids

    def _get_part(self, part: str) -> bytes:
        ids = self.parts.get(part)
        if ids is None:
            ids = self.encode_part(part)
            _store(self.parts, part, ids)
        return ids


class SpacedWordCache(dict[str, bytes]):
    """Ids of " word" by word, for byte-level BPE, in which a word begins with the space before it."""

    def __init__(self, encode_word: Callable[[str], bytes], *, add_prefix_space: bool) -> None:
        super().__init__()
        self.encode_word = encode_word
        self.add_prefix_space = add_prefix_space

    def encode(self, sentence: str) -> bytes:
        if "  " in sentence:  # a run of spaces is a separate word
            return self.encode_word(sentence)
        has_space = sentence.startswith(" ")
        first, *others = sentence[has_space:].split(" ")
        ids = self[first] if self.add_prefix_space or has_space else self.encode_word(first)
        return ids + b"".join(map(self.__getitem__, others))

    def __missing__(self, word: str) -> bytes:
        ids = self.encode_word(" " + word)
        _store(self, word, ids)
        return ids


def _store(cache: dict[str, bytes], key: str, ids: bytes) -> None:
    """Add to a cache; a full one is emptied first, and frequent words are soon in it again."""
    if len(key) <= LONGEST_CACHED:
        if len(cache) >= CACHED_WORDS:
            cache.clear()
        cache[key] = ids


def encode_in_order(
    tokenizer: Tokenizer, batches: Iterable[tuple[Meta, list[Text]]], *, workers: int
) -> Generator[tuple[Meta, Encoded, Encoded], None, None]:
    """Encode batches with `workers` processes and yield the results in the order of the batches.

    Raises:
        DataError: a worker process dies.
    """
    if workers == 1:
        encoder = DocumentEncoder(tokenizer)
        for meta, texts in batches:
            yield (meta, *encoder(texts))
        return
    with closing(map_in_order(partial(_build_encoder, tokenizer.to_str()), batches, workers=workers)) as results:
        for meta, (train, heldout) in results:
            yield meta, train, heldout


def _build_encoder(tokenizer_json: str) -> DocumentEncoder:
    """Build the encoder of a worker process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.encode_special_tokens = True  # it is not part of the JSON
    return DocumentEncoder(tokenizer)
