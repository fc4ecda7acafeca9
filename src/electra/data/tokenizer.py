"""Train or load a tokenizer: WordPiece (default), byte-level BPE or Unigram, as one tokenizer.json.

A tokenizer is a `tokenizers.Tokenizer`. Whatever it came from, it leaves this module without truncation or
padding, knows the five special tokens, and reads a special token's name inside a text as plain characters.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from electra.errors import DataError

Kind = Literal["wordpiece", "bpe", "unigram"]

# The first name of each row is what a tokenizer trained here uses; the others are accepted in loaded ones.
SPECIAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "classify": ("[CLS]", "<s>", "<cls>"),
    "separate": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
TRAINED_NAMES = [names[0] for names in SPECIAL_NAMES.values()]

PREFIX: dict[str, Any] = {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": False}
"""The splitter by which an exported byte-level tokenizer sets a space before a text (export/tokenizer_files)."""

# The alphabet of a trained WordPiece or Unigram holds the commonest characters that make up this share of the
# sample; a word with a rarer one becomes [UNK]. Without a limit, stray foreign letters eat the vocabulary.
ALPHABET_COVERAGE = 0.9999


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the five tokens that are no text."""

    pad: int
    unknown: int
    classify: int
    separate: int
    mask: int

    @property
    def ids(self) -> tuple[int, ...]:
        """All five, in the order of the fields."""
        return astuple(self)


def train(
    texts: Sequence[str],
    *,
    kind: Kind = "wordpiece",
    vocabulary_size: int = 30522,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
) -> Tokenizer:
    """A tokenizer of one of three kinds, trained on a sample of the corpus.

    WordPiece normalises and splits as BERT does (Devlin et al. 2019), Chinese characters one by one. BPE works
    on bytes (Radford et al. 2019) and so has no unknown token; Unigram is SentencePiece's (Kudo 2018).
    The same texts give the same WordPiece or BPE; the Unigram trainer's last digits vary from run to run.

    Args:
        vocabulary_size: entries with the special tokens; a small sample may give fewer.
        lowercase: None means yes for WordPiece, no for the others.
        strip_accents: None means as `lowercase` for WordPiece (BERT's convention), no for the others.

    Raises:
        DataError: when the texts are empty.
    """
    if not any(text and not text.isspace() for text in texts):
        raise DataError("There is no text to train a tokenizer on; give a corpus with text, or --tokenizer PATH")
    lowercase = kind == "wordpiece" if lowercase is None else lowercase
    strip_accents = lowercase and kind == "wordpiece" if strip_accents is None else strip_accents
    builders = {"wordpiece": _train_wordpiece, "bpe": _train_bpe, "unigram": _train_unigram}
    return _finish(builders[kind](texts, vocabulary_size, lowercase, strip_accents))


def load(path: str | Path, *, lowercase: bool | None = None, strip_accents: bool | None = None) -> Tokenizer:
    """The tokenizer in a tokenizer.json, a BERT vocab.txt, or a folder that has one of them.

    Args:
        lowercase, strip_accents: for a vocab.txt only, which does not say. By default a vocabulary without
            capital letters is lowercased, and accents are stripped if it is.

    Raises:
        DataError: when the file is missing, unreadable, of an unknown kind, or lacks a special token.
    """
    path = Path(path)
    chosen = lowercase is not None or strip_accents is not None
    if path.is_dir():
        found = [path / name for name in ("tokenizer.json", "vocab.txt") if (path / name).is_file()]
        if not found:
            raise DataError(f"{path}: the folder has neither a tokenizer.json nor a vocab.txt")
        lowercase = _folder_lowercase(path) if lowercase is None else lowercase
        path = found[0]
    if not path.is_file():
        raise DataError(
            f"{path}: there is no such tokenizer; give a tokenizer.json, a vocab.txt or a folder with one"
        )
    if path.suffix == ".txt":
        return _finish(_from_vocabulary(path, lowercase, strip_accents), path)
    if path.suffix != ".json":
        raise DataError(f"{path}: not a tokenizer; give a tokenizer.json, a vocab.txt or a folder with one")
    if chosen:
        raise DataError(f"{path}: a tokenizer.json has its own rule for case and accents; drop these options")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises a bare Exception for every kind of broken file
        raise DataError(f"{path}: not a tokenizers file ({error})") from error
    return _finish(tokenizer, path)


def special_tokens(tokenizer: Tokenizer, source: str | Path = "the tokenizer") -> SpecialTokens:
    """The ids of the five special tokens, under any of the names in `SPECIAL_NAMES`.

    Raises:
        DataError: when one is missing, with the names that were looked for.
    """
    ids = {
        role: next((i for name in names if (i := tokenizer.token_to_id(name)) is not None), None)
        for role, names in SPECIAL_NAMES.items()
    }
    missing = [" or ".join(SPECIAL_NAMES[role]) for role, i in ids.items() if i is None]
    if missing:
        raise DataError(
            f"{source}: the vocabulary has no {', no '.join(missing)}, and ELECTRA needs all five; "
            "add the missing lines (an [unused] entry can be renamed), or leave this one out and train one"
        )
    return SpecialTokens(**cast(dict[str, int], ids))


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """The number of rows that an embedding table needs: the highest id + 1."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def continuations(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """For each id, whether the token goes on with the word before it (vocabulary_size,).

    WordPiece marks such tokens, the others mark those that begin a word (so punctuation goes with the word
    before).

    Raises:
        DataError: a tokenizer of another kind, or one that marks neither.
    """
    kind = describe(tokenizer)["kind"]
    beginning = {"wordpiece": "##", "bpe": "Ġ", "unigram": "▁"}.get(kind, "")
    tokens = [tokenizer.id_to_token(number) or "" for number in range(vocabulary_size(tokenizer))]
    marked = np.array([token.startswith(beginning) for token in tokens])
    if not beginning or not marked.any():
        raise DataError(f"the tokenizer ({kind}) does not say which tokens begin a word; set masking.kind uniform")
    if kind == "wordpiece":
        return marked
    marked[list(special_tokens(tokenizer).ids)] = True  # they begin something, too
    return ~marked


@dataclass(frozen=True)
class BytePieces:
    """How a byte-level tokenizer cuts a text.

    Attributes:
        prefixed: it sets a space before a text that begins with none.
        use_regex: it cuts at spaces and marks, as GPT-2 does.
    """

    prefixed: bool
    use_regex: bool


def byte_pieces(tokenizer: Tokenizer) -> BytePieces | None:
    """How the tokenizer cuts a text where it is byte-level and no more; None where it is another one."""
    splitter = json.loads(tokenizer.to_str())["pre_tokenizer"] or {"type": None}
    parts = splitter["pretokenizers"] if splitter["type"] == "Sequence" else [splitter]
    prefixed = parts[0] == PREFIX
    if [part["type"] for part in parts[prefixed:]] != ["ByteLevel"]:
        return None
    return BytePieces(prefixed or parts[-1]["add_prefix_space"], parts[-1]["use_regex"])


def describe(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a manifest says: kind, vocabulary_size, lowercase, strip_accents, special_tokens."""
    pipeline = json.loads(tokenizer.to_str())
    parts = list(normalizer_parts(pipeline["normalizer"]))
    bert = next((part for part in parts if part["type"] == "BertNormalizer"), None)
    lowercase = bert["lowercase"] if bert else any(part["type"] == "Lowercase" for part in parts)
    strip = bert["strip_accents"] if bert else any(part["type"] == "StripAccents" for part in parts)
    special = special_tokens(tokenizer)
    return {
        "kind": pipeline["model"]["type"].lower(),
        "vocabulary_size": vocabulary_size(tokenizer),
        "lowercase": lowercase,
        "strip_accents": lowercase if strip is None else strip,  # BertNormalizer's null means "as lowercase"
        "special_tokens": {role: getattr(special, role) for role in SPECIAL_NAMES},
    }


def normalizer_parts(normalizer: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The normalizers in a tokenizer.json's one, which may be none or a sequence of sequences."""
    if normalizer is None:
        return
    if normalizer["type"] == "Sequence":
        for part in normalizer["normalizers"]:
            yield from normalizer_parts(part)
    else:
        yield normalizer


def _finish(tokenizer: Tokenizer, source: str | Path = "the tokenizer") -> Tokenizer:
    """Checks the special tokens, and takes away what would change or cut a text behind our back."""
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


def _from_vocabulary(path: Path, lowercase: bool | None, strip_accents: bool | None) -> Tokenizer:
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a vocabulary in UTF-8 ({error})") from error
    entries = [line.rstrip("\r") for line in lines]
    repeated = [entry for entry, count in Counter(entries).items() if count > 1]
    if repeated:
        raise DataError(
            f"{path}: {len(repeated)} entries stand twice, the first is {repeated[0]!r}; a line is an id"
        )
    unknown = next((name for name in SPECIAL_NAMES["unknown"] if name in entries), SPECIAL_NAMES["unknown"][0])
    special = {name for names in SPECIAL_NAMES.values() for name in names}
    if lowercase is None:
        lowercase = all(entry == entry.lower() for entry in entries if entry not in special)
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    return _bert_pipeline(tokenizer, lowercase, lowercase if strip_accents is None else strip_accents)


def _folder_lowercase(folder: Path) -> bool | None:
    """What a Hugging Face folder's tokenizer_config.json says about case, for its vocab.txt."""
    config = folder / "tokenizer_config.json"
    if (folder / "tokenizer.json").is_file() or not config.is_file():
        return None
    try:
        value = json.loads(config.read_text(encoding="utf-8")).get("do_lower_case")
    except (ValueError, AttributeError) as error:
        raise DataError(f"{config}: not a JSON object ({error})") from error
    return value if isinstance(value, bool) else None


def _bert_pipeline(tokenizer: Tokenizer, lowercase: bool, strip_accents: bool) -> Tokenizer:
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _train_wordpiece(texts: Sequence[str], size: int, lowercase: bool, strip_accents: bool) -> Tokenizer:
    tokenizer = _bert_pipeline(Tokenizer(models.WordPiece(unk_token="[UNK]")), lowercase, strip_accents)
    alphabet = _alphabet(texts, tokenizer.normalizer)
    # The trainer numbers the "##" letters in the order of a hash map, which differs from run to run and
    # settles ties. Naming them as special tokens numbers them first; below they become ordinary entries.
    joining = [c for c in alphabet if len(tokenizer.pre_tokenizer.pre_tokenize_str("a" + c)) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=TRAINED_NAMES + ["##" + c for c in joining],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = Tokenizer(models.WordPiece(tokenizer.get_vocab(), unk_token="[UNK]"))
    return _bert_pipeline(trained, lowercase, strip_accents)


def _train_bpe(texts: Sequence[str], size: int, lowercase: bool, strip_accents: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer := _character_normalizers(lowercase, strip_accents):
        tokenizer.normalizer = normalizers.Sequence(normalizer)
    # A sentence's first word gets a space too, so that it is the same entry as inside a sentence.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=TRAINED_NAMES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _train_unigram(texts: Sequence[str], size: int, lowercase: bool, strip_accents: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    parts = [
        normalizers.NFKC(),
        *_character_normalizers(lowercase, strip_accents),
        spaces,
        normalizers.Strip(),
    ]
    tokenizer.normalizer = normalizers.Sequence(parts)
    # Marks are pieces of their own: no "end." beside "end", and Chinese is not one word a sentence to the trainer.
    splitters = [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size - len(TRAINED_NAMES) + 1,
        special_tokens=["[UNK]"],
        unk_token="[UNK]",
        initial_alphabet=_alphabet(texts, tokenizer.normalizer),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # An entry of the model can be found in a text, so the special tokens stand outside it, at the end.
    tokenizer.add_special_tokens(TRAINED_NAMES)
    return tokenizer


def _character_normalizers(lowercase: bool, strip_accents: bool) -> list[normalizers.Normalizer]:
    strip = [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()] if strip_accents else []
    return [*([normalizers.Lowercase()] if lowercase else []), *strip]


def _alphabet(texts: Iterable[str], normalizer: normalizers.Normalizer) -> list[str]:
    """The commonest normalised characters that cover `ALPHABET_COVERAGE` of the texts, sorted."""
    raw: Counter[int] = Counter()
    for text in texts:
        codes, found = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_counts=True)
        raw.update(dict(zip(codes.tolist(), found.tolist(), strict=True)))
    counts: Counter[str] = Counter()
    for code, count in raw.items():
        for character in normalizer.normalize_str(chr(code)):
            if not character.isspace():
                counts[character] += count
    wanted = ALPHABET_COVERAGE * counts.total()
    alphabet: list[str] = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if wanted <= 0:
            break
        alphabet.append(character)
        wanted -= count
    return sorted(alphabet)
