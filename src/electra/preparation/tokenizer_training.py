"""Train a tokenizer on a sample of a corpus: WordPiece (default), byte-level BPE or Unigram."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from electra.data.tokenizer import SPECIAL_NAMES, add_bert_pipeline, standardize
from electra.errors import DataError
from electra.preparation.config import TokenizerKind

TRAINED_NAMES = [names[0] for names in SPECIAL_NAMES.values()]

# The alphabet of a trained WordPiece or Unigram tokenizer has the most frequent characters that make up this share
# of the sample; a word with a rarer one becomes [UNK]. Without a limit, stray foreign letters fill the vocabulary.
ALPHABET_COVERAGE = 0.9999


def train_tokenizer(
    texts: Sequence[str],
    *,
    kind: TokenizerKind = "wordpiece",
    vocabulary_size: int = 30522,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
) -> Tokenizer:
    """Train a tokenizer on a sample of the corpus.

    WordPiece normalizes and splits as BERT does (Devlin et al. 2019), with each Chinese character as a word. BPE
    works on bytes (Radford et al. 2019), so there is no unknown token. Unigram is that of SentencePiece (Kudo
    2018). The same texts give the same WordPiece or BPE tokenizer; the last digits of a Unigram model vary from
    run to run.

    Args:
        vocabulary_size: number of entries, with the special tokens; a small sample may give fewer.
        lowercase: None: yes for WordPiece, no for the others.
        strip_accents: None: as `lowercase` for WordPiece (BERT's convention), no for the others.

    Raises:
        DataError: the texts are empty.
    """
    if not any(text and not text.isspace() for text in texts):
        raise DataError("There is no text to train a tokenizer on; give a corpus with text, or --tokenizer PATH")
    lowercase = kind == "wordpiece" if lowercase is None else lowercase
    strip_accents = lowercase and kind == "wordpiece" if strip_accents is None else strip_accents
    trainers_by_kind = {"wordpiece": _train_wordpiece, "bpe": _train_bpe, "unigram": _train_unigram}
    return standardize(trainers_by_kind[kind](texts, vocabulary_size, lowercase, strip_accents))


def _train_wordpiece(texts: Sequence[str], size: int, lowercase: bool, strip_accents: bool) -> Tokenizer:
    tokenizer = add_bert_pipeline(Tokenizer(models.WordPiece(unk_token="[UNK]")), lowercase, strip_accents)
    alphabet = _alphabet(texts, tokenizer.normalizer)
    # The trainer numbers the "##" letters in the order of a hash map, which differs from run to run and
    # decides ties. Naming them as special tokens numbers them first; below they become ordinary entries.
    continuing = [c for c in alphabet if len(tokenizer.pre_tokenizer.pre_tokenize_str("a" + c)) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=TRAINED_NAMES + ["##" + c for c in continuing],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = Tokenizer(models.WordPiece(tokenizer.get_vocab(), unk_token="[UNK]"))
    return add_bert_pipeline(trained, lowercase, strip_accents)


def _train_bpe(texts: Sequence[str], size: int, lowercase: bool, strip_accents: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer := _character_normalizers(lowercase, strip_accents):
        tokenizer.normalizer = normalizers.Sequence(normalizer)
    # The first word of a sentence gets a space too, so that it is the same entry as inside a sentence.
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
    # Punctuation is split off: no "end." next to "end"; and a Chinese sentence is not one word to the trainer.
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
    # Entries of the model are found in texts, so the special tokens are added outside of it, at the end.
    tokenizer.add_special_tokens(TRAINED_NAMES)
    return tokenizer


def _character_normalizers(lowercase: bool, strip_accents: bool) -> list[normalizers.Normalizer]:
    strip = [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()] if strip_accents else []
    return [*([normalizers.Lowercase()] if lowercase else []), *strip]


def _alphabet(texts: Iterable[str], normalizer: normalizers.Normalizer) -> list[str]:
    """Return the most frequent normalized characters that cover `ALPHABET_COVERAGE` of the texts, sorted."""
    raw: Counter[int] = Counter()
    for text in texts:
        codes, frequencies = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_counts=True)
        raw.update(dict(zip(codes.tolist(), frequencies.tolist(), strict=True)))
    counts: Counter[str] = Counter()
    for code, count in raw.items():
        for character in normalizer.normalize_str(chr(code)):
            if not character.isspace():
                counts[character] += count
    remaining = ALPHABET_COVERAGE * counts.total()
    alphabet: list[str] = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if remaining <= 0:
            break
        alphabet.append(character)
        remaining -= count
    return sorted(alphabet)
