"""Load and describe tokenizers: WordPiece, byte-level BPE or Unigram, as one tokenizer.json or a BERT vocab.txt.

A tokenizer is a `tokenizers.Tokenizer`. All tokenizers of this package have no truncation and no padding, know the
five special tokens, and read the name of a special token inside a text as plain characters.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from electra.errors import DataError

# The first name of each row is the one that a trained tokenizer has; the others are accepted in loaded tokenizers.
SPECIAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "classify": ("[CLS]", "<s>", "<cls>", "<bos>"),
    "separate": ("[SEP]", "</s>", "<sep>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
}
WORD_STARTS = ("Ġ", "▁")
"""Marks of a token that begins a word: of byte-level BPE, and of tokenizers as SentencePiece has them."""
SPACE_PREFIX: dict[str, Any] = {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": False}
"""The pre-tokenizer with which an exported byte-level tokenizer adds a space before a text."""
MAX_BYTES = 2**28
"""Maximum size of a file of a tokenizer; a vocabulary of a million entries has less than half of it."""
STRIP_ACCENTS: dict[str, Any] = {
    "type": "Replace",
    "pattern": {"Regex": r"(?<=[\p{Latin}\p{Greek}])\p{Mn}+"},
    "content": "",
}
"""The normalizer that removes accents of decomposed Latin and Greek letters, and no marks of other scripts."""


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the five special tokens."""

    pad: int
    unknown: int
    classify: int
    separate: int
    mask: int

    @property
    def ids(self) -> tuple[int, ...]:
        """All five ids, in the order of the fields."""
        return astuple(self)


def load_tokenizer(
    path: str | Path, *, lowercase: bool | None = None, strip_accents: bool | None = None
) -> Tokenizer:
    """Load a tokenizer.json, a BERT vocab.txt, or one of them from a folder.

    Args:
        lowercase, strip_accents: for a vocab.txt only, because the file does not say. Default: a text is
            lowercased if the vocabulary has no capital letters, and its accents are stripped if it is lowercased.

    Raises:
        DataError: the file is missing, unreadable, of an unknown kind, or lacks a special token.
    """
    path = Path(path)
    has_options = lowercase is not None or strip_accents is not None
    if path.is_dir():
        candidates = [path / name for name in ("tokenizer.json", "vocab.txt") if (path / name).is_file()]
        if not candidates:
            raise DataError(f"{path}: the folder has neither a tokenizer.json nor a vocab.txt")
        lowercase = _folder_lowercase(path) if lowercase is None else lowercase
        path = candidates[0]
    if not path.is_file():
        raise DataError(
            f"{path}: there is no such tokenizer; give a tokenizer.json, a vocab.txt or a folder with one"
        )
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path}: is larger than {MAX_BYTES >> 20} MiB, which no tokenizer is; give another file")
    if path.suffix == ".txt":
        return standardize(_from_vocabulary(path, lowercase, strip_accents), path)
    if path.suffix != ".json":
        raise DataError(f"{path}: not a tokenizer; give a tokenizer.json, a vocab.txt or a folder with one")
    if has_options:
        raise DataError(
            f"{path}: a tokenizer.json has its own rules for case and accents; leave out --lowercase and "
            "--strip-accents"
        )
    try:
        tokenizer = Tokenizer.from_buffer(path.read_bytes())  # `from_file` wants a name in UTF-8
    except BaseException as error:
        # tokenizers raises a bare Exception for most broken files. For the others its Rust code panics, which is
        # no Exception; Rust has then written a message of its own on stderr, which Python cannot prevent.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"{path}: not a tokenizers file ({error}); restore the file, or give another tokenizer"
        ) from error
    return standardize(tokenizer, path)


def special_tokens(tokenizer: Tokenizer, source: str | Path = "the tokenizer") -> SpecialTokens:
    """Return the ids of the five special tokens, under any of the names in `SPECIAL_NAMES`.

    If a vocabulary has several of the names, the first that is marked as special counts.

    Raises:
        DataError: one is missing.
    """
    # Gemma's vocabulary, for example, has the HTML tag <s> next to the special token <bos>.
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    ids: dict[str, int | None] = {}
    for role, names in SPECIAL_NAMES.items():
        found = [number for name in names if (number := tokenizer.token_to_id(name)) is not None]
        ids[role] = next((number for number in found if number in special), found[0] if found else None)
    missing = [" or ".join(SPECIAL_NAMES[role]) for role, i in ids.items() if i is None]
    if missing:
        raise DataError(
            f"{source}: the vocabulary has no {', no '.join(missing)}, and ELECTRA needs all five; "
            "add the missing entries (an [unused] entry can be renamed), or leave this one out and train one"
        )
    return SpecialTokens(**cast(dict[str, int], ids))


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Return the number of rows that an embedding table needs: the highest id + 1."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def continuation_mask(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return for each id whether the token continues the word before it, (vocabulary_size,).

    WordPiece marks such tokens. The others mark the tokens that begin a word, so that punctuation belongs to the
    word before it.

    Raises:
        DataError: a tokenizer of another kind, or one that marks neither.
    """
    marker = word_marker(tokenizer)
    tokens = [tokenizer.id_to_token(number) or "" for number in range(vocabulary_size(tokenizer))]
    marked = np.array([token.startswith(marker) for token in tokens])
    if marker not in WORD_STARTS:
        return marked
    marked[list(special_tokens(tokenizer).ids)] = True  # they do not continue a word
    return ~marked


def word_marker(tokenizer: Tokenizer) -> str:
    """Return the mark of the tokens that continue a word (## of WordPiece) or begin one (one of `WORD_STARTS`).

    A BPE tokenizer is byte-level (Ġ), or made from SentencePiece (▁).

    Raises:
        DataError: a tokenizer of another kind, or one that marks neither.
    """
    kind = describe_tokenizer(tokenizer)["kind"]
    candidates = {"wordpiece": ("##",), "bpe": WORD_STARTS, "unigram": WORD_STARTS}.get(kind, ())
    counts = {marker: sum(token.startswith(marker) for token in tokenizer.get_vocab()) for marker in candidates}
    marker = max(counts, key=counts.__getitem__, default="")
    if not counts.get(marker):
        raise DataError(f"the tokenizer ({kind}) does not say which tokens begin a word; set masking.kind uniform")
    return marker


@dataclass(frozen=True)
class ByteLevelOptions:
    """How a byte-level tokenizer splits a text.

    Attributes:
        add_prefix_space: it adds a space before a text that begins with none.
        use_regex: it splits at spaces and punctuation, as GPT-2 does.
    """

    add_prefix_space: bool
    use_regex: bool


def byte_level_options(tokenizer: Tokenizer) -> ByteLevelOptions | None:
    """Return how a byte-level tokenizer splits a text; None for all others, also those that split in other ways
    too."""
    pre_tokenizer = json.loads(tokenizer.to_str())["pre_tokenizer"] or {"type": None}
    parts = pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    has_prefix = parts[0] == SPACE_PREFIX
    if [part["type"] for part in parts[has_prefix:]] != ["ByteLevel"]:
        return None
    return ByteLevelOptions(has_prefix or parts[-1]["add_prefix_space"], parts[-1]["use_regex"])


def describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the description for a manifest: kind, vocabulary_size, lowercase, strip_accents, special_tokens."""
    pipeline = json.loads(tokenizer.to_str())
    parts = list(normalizer_parts(pipeline["normalizer"]))
    bert = next((part for part in parts if part["type"] == "BertNormalizer"), None)
    lowercase = bert["lowercase"] if bert else any(part["type"] == "Lowercase" for part in parts)
    strips = any(part["type"] == "StripAccents" or part == STRIP_ACCENTS for part in parts)
    strip = bert["strip_accents"] if bert and not strips else strips
    special = special_tokens(tokenizer)
    return {
        "kind": pipeline["model"]["type"].lower(),
        "vocabulary_size": vocabulary_size(tokenizer),
        "lowercase": lowercase,
        "strip_accents": lowercase if strip is None else strip,  # BertNormalizer's null means "as lowercase"
        "special_tokens": {role: getattr(special, role) for role in SPECIAL_NAMES},
    }


def normalizer_parts(normalizer: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the parts of the normalizer in a tokenizer.json, which may be null or a sequence of sequences."""
    if normalizer is None:
        return
    if normalizer["type"] == "Sequence":
        for part in normalizer["normalizers"]:
            yield from normalizer_parts(part)
    else:
        yield normalizer


def standardize(tokenizer: Tokenizer, source: str | Path = "the tokenizer") -> Tokenizer:
    """Check the special tokens, and remove truncation, padding and other post-processing."""
    special = special_tokens(tokenizer, source)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A document that mentions "[SEP]" must not end a segment.
    tokenizer.encode_special_tokens = True
    names = {role: tokenizer.id_to_token(getattr(special, role)) for role in SPECIAL_NAMES}
    tokenizer.add_special_tokens(list(names.values()))
    first, last = names["classify"], names["separate"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, special.classify), (last, special.separate)],
    )
    return tokenizer


def latin_accent_strippers() -> list[normalizers.Normalizer]:
    """Return the normalizers that remove accents from Latin and Greek letters; the result is decomposed."""
    return [
        normalizers.NFD(),
        normalizers.Replace(Regex(STRIP_ACCENTS["pattern"]["Regex"]), STRIP_ACCENTS["content"]),
    ]


def _from_vocabulary(path: Path, lowercase: bool | None, strip_accents: bool | None) -> Tokenizer:
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a vocabulary in UTF-8 ({error})") from error
    entries = [line.rstrip("\r") for line in lines]
    repeated = [entry for entry, count in Counter(entries).items() if count > 1]
    if repeated:
        raise DataError(
            f"{path}: {len(repeated)} entries occur more than once, the first is {repeated[0]!r}; a line is an id"
        )
    unknown = next((name for name in SPECIAL_NAMES["unknown"] if name in entries), SPECIAL_NAMES["unknown"][0])
    special = {name for names in SPECIAL_NAMES.values() for name in names}
    if lowercase is None:
        lowercase = all(entry == entry.lower() for entry in entries if entry not in special)
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    return add_bert_pipeline(tokenizer, lowercase, lowercase if strip_accents is None else strip_accents)


def _folder_lowercase(folder: Path) -> bool | None:
    """Return what the tokenizer_config.json of a Hugging Face folder says about case, for its vocab.txt."""
    config = folder / "tokenizer_config.json"
    if (folder / "tokenizer.json").is_file() or not config.is_file():
        return None
    try:
        value = json.loads(config.read_text(encoding="utf-8")).get("do_lower_case")
    except (ValueError, AttributeError) as error:
        raise DataError(f"{config}: not a JSON object ({error})") from error
    return value if isinstance(value, bool) else None


def add_bert_pipeline(
    tokenizer: Tokenizer, lowercase: bool, strip_accents: bool, *, keep_marks: bool = False, compose: bool = False
) -> Tokenizer:
    """Add the normalizer, pre-tokenizer and decoder of BERT to a WordPiece tokenizer.

    Args:
        keep_marks: accents are stripped from Latin and Greek letters only. BERT strips the marks of all scripts.
        compose: characters are composed (NFC). BERT leaves what is decomposed, as Hangul is by the removal of
            accents. Composed Latin text has the same ids either way.
    """
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=strip_accents and not keep_marks,
        lowercase=lowercase,
    )
    others = latin_accent_strippers() if strip_accents and keep_marks else []
    if compose:
        tokenizer.normalizer = normalizers.Sequence([tokenizer.normalizer, *others, normalizers.NFC()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer
