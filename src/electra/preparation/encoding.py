"""Documents to token ids: in one process with a cache of words, or in several, with results in order.

`tokenizers` spends most of its time on words it has seen before. Where a tokenizer works word by word (BERT's
pipeline, byte-level BPE), `WordCache` looks a word's ids up and asks the tokenizer only for new ones; other
tokenizers are called sentence by sentence. `encode_plainly` is the reference that both must equal.
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
from electra.data.tokenizer import byte_pieces, normalizer_parts, special_tokens, vocabulary_size
from electra.preparation.sentences import split_sentences
from electra.preparation.workers import map_in_order

CACHED_WORDS = 600_000  # in each of at most two caches; together some 130 MB a process
LONGEST_CACHED = 32  # characters; longer strings seldom come twice

# Where BERT's pipeline always cuts, each with the mark as a word of its own: ASCII punctuation, common Unicode
# punctuation, and (with `handle_chinese_chars`) ideographs. A subset of its rules is enough to be exact.
_MARKS = r"!-/:-@\[-`{-~¡«·»¿‐-‧‹›、。〈-】！，．：；？（）"
_IDEOGRAPHS = "㐀-䶿一-鿿"

Meta = TypeVar("Meta")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Documents as one run of ids with the ends of sentences (in tokens) and documents (in sentences)."""

    tokens: Tokens
    sentence_ends: Ends
    document_ends: Ends
    unknown: int


@dataclass(frozen=True, slots=True)
class Text:
    """A text to encode, and the share of its last sentences that is held out: 0 none, 1 all."""

    text: str
    heldout: float = 0.0


def encode_plainly(tokenizer: Tokenizer, sentence: str) -> list[int]:
    """A sentence's ids by the tokenizer alone, without special tokens."""
    return list(tokenizer.encode(sentence, add_special_tokens=False).ids)


class DocumentEncoder:
    """Encodes documents sentence by sentence; a sentence or document without any token is left out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.unknown = special_tokens(tokenizer).unknown
        self.dtype = token_dtype(vocabulary_size(tokenizer))
        self.encode = sentence_encoder(tokenizer)
        pieces = byte_pieces(tokenizer)
        # Released RoBERTas set no space themselves, and know a word that has none before it for another one.
        self.spaced = pieces is not None and not pieces.prefixed

    def __call__(self, texts: Sequence[Text]) -> tuple[Encoded, Encoded]:
        """The training part and the held-out part of some documents."""
        train, heldout = _Collector(), _Collector()
        for text in texts:
            sentences = split_sentences(text.text)
            if self.spaced:  # as in the text, but for the document's first
                sentences[1:] = [f" {sentence}" for sentence in sentences[1:]]
            kept = round(len(sentences) * (1 - text.heldout))
            if 0 < text.heldout < 1:  # both sides get something, if there is anything to share
                kept = max(min(kept, len(sentences) - 1), 1)
            train.add(map(self.encode, sentences[:kept]))
            heldout.add(map(self.encode, sentences[kept:]))
        return train.encoded(self.dtype, self.unknown), heldout.encoded(self.dtype, self.unknown)


@dataclass
class _Collector:
    sentences: list[bytes] = field(default_factory=list)
    document_ends: list[int] = field(default_factory=list)

    def add(self, sentences: Iterable[bytes]) -> None:
        before = len(self.sentences)
        self.sentences.extend(filter(None, sentences))
        if len(self.sentences) > before:
            self.document_ends.append(len(self.sentences))

    def encoded(self, dtype: np.dtype[Any], unknown: int) -> Encoded:
        tokens = np.frombuffer(b"".join(self.sentences), dtype)
        lengths = np.fromiter(map(len, self.sentences), ENDS, len(self.sentences)) // dtype.itemsize
        ends = np.cumsum(lengths, dtype=ENDS), np.array(self.document_ends, ENDS)
        return Encoded(tokens, *ends, unknown=int(np.count_nonzero(tokens == unknown)))


def sentence_encoder(tokenizer: Tokenizer) -> Callable[[str], bytes]:
    """The fastest function from a sentence to its ids, which are those of `encode_plainly`.

    The ids come as the bytes of an array of `token_dtype`: bytes are joined far quicker than tuples of ints.
    """
    dtype = token_dtype(vocabulary_size(tokenizer))
    pipeline = json.loads(tokenizer.to_str())
    normalizers = list(normalizer_parts(pipeline["normalizer"]))
    names, splitter = [part["type"] for part in normalizers], pipeline["pre_tokenizer"] or {"type": None}

    def plain(sentence: str) -> bytes:
        return np.array(encode_plainly(tokenizer, sentence), dtype).tobytes()

    # An added entry is looked for in the raw text and may hold a space; then no word stands alone.
    only_special = all(entry.special for entry in tokenizer.get_added_tokens_decoder().values())
    if only_special and not pipeline["model"].get("dropout"):
        if (names, splitter["type"]) == (["BertNormalizer"], "BertPreTokenizer"):
            marks = _MARKS + _IDEOGRAPHS * normalizers[0]["handle_chinese_chars"]
            return WordCache(plain, marks=marks, lowercase=normalizers[0]["lowercase"]).encode
        # Normalizers that can make a word empty (StripAccents) would make runs of spaces, which are pieces.
        pieces = byte_pieces(tokenizer)
        if {"Lowercase", "NFC"}.issuperset(names) and pieces is not None and pieces.use_regex:
            return SpacedWordCache(plain, prefixed=pieces.prefixed).encode
    return plain


class WordCache(dict[str, bytes]):
    """Ids by what stands between two spaces, for BERT's pipeline, which cuts at every space and mark.

    A string that is not yet known is cut at its marks, and its pieces are put into lower case if it is ASCII and
    the tokenizer does so. Pieces have a cache of their own, and only what is not in there goes to the tokenizer.
    """

    def __init__(self, plain: Callable[[str], bytes], *, marks: str, lowercase: bool) -> None:
        super().__init__()
        self.plain = plain
        self.pieces: dict[str, bytes] = {}
        self.cut = re.compile(f"([{marks}])").split
        self.lowercase = lowercase

    def encode(self, sentence: str) -> bytes:
        # Only the space proper: other white space, and what Python and BERT classify differently, stays inside
        # a string and is the tokenizer's affair.
        return b"".join(map(self.__getitem__, sentence.split(" ")))

    def __missing__(self, string: str) -> bytes:
        lower = self.lowercase and string.isascii()
        ids = b"".join([self._piece(piece) for piece in self.cut(string.lower() if lower else string) if piece])
        _remember(self, string, ids)
        return ids

    def _piece(self, piece: str) -> bytes:
        ids = self.pieces.get(piece)
        if ids is None:
            ids = self.plain(piece)
            _remember(self.pieces, piece, ids)
        return ids


class SpacedWordCache(dict[str, bytes]):
    """Ids of " word" by word, for byte-level BPE, whose pieces begin with the space before them."""

    def __init__(self, plain: Callable[[str], bytes], *, prefixed: bool) -> None:
        super().__init__()
        self.plain = plain
        self.prefixed = prefixed

    def encode(self, sentence: str) -> bytes:
        if "  " in sentence:  # a run of spaces is a piece of its own
            return self.plain(sentence)
        spaced = sentence.startswith(" ")
        first, *others = sentence[spaced:].split(" ")
        ids = self[first] if self.prefixed or spaced else self.plain(first)
        return ids + b"".join(map(self.__getitem__, others))

    def __missing__(self, word: str) -> bytes:
        ids = self.plain(" " + word)
        _remember(self, word, ids)
        return ids


def _remember(cache: dict[str, bytes], key: str, ids: bytes) -> None:
    """Adds to a cache, which starts anew when it is full: what is frequent is back at once."""
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
