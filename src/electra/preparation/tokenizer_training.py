"""Train a tokenizer on a sample of a corpus: WordPiece (default), byte-level BPE or Unigram."""

import logging
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from electra.data.tokenizer import SPECIAL_NAMES, add_bert_pipeline, latin_accent_strippers, standardize
from electra.errors import DataError
from electra.preparation.config import TokenizerKind
from electra.preparation.scripts import (
    has_composed_letters,
    has_hangul,
    has_ideographs,
    needs_accents,
    needs_marks,
)

logger = logging.getLogger(__name__)

TRAINED_NAMES = [names[0] for names in SPECIAL_NAMES.values()]

# The alphabet of a trained WordPiece or Unigram tokenizer has the most frequent characters that make up this share
# of the sample; a word with a rarer one becomes [UNK]. Without a limit, stray foreign letters fill the vocabulary.
ALPHABET_COVERAGE = 0.9999

# Entries of the vocabulary that the alphabet may take, so that some are left for words and their pieces.
ALPHABET_SHARE = 0.75

# Takes the place of rare characters when Unigram is trained. Unicode says that it is no character.
RARE = "\uffff"

# Characters of a word that WordPiece encodes; a longer one becomes [UNK]. Thai writes a sentence as one word.
LONGEST_WORD, LONGEST_WORD_WITH_MARKS = 100, 1000

# Characters without a space that are trained on as they are. The trainers' time grows with the square of a word's
# length: one of ten megabytes would take days.
LONGEST_RUN = 1000
_LONG_RUNS = re.compile(rf"(?<!\S)\S{{{LONGEST_RUN + 1},}}")


def train_tokenizer(
    texts: list[str],
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
        strip_accents: from Latin and Greek letters. None: as `lowercase` for WordPiece (BERT's convention), unless
            the text is Vietnamese; no for the others.

    Raises:
        DataError: the texts are empty.
    """
    if not any(text and not text.isspace() for text in texts):
        raise DataError("There is no text to train a tokenizer on; give a corpus with text, or --tokenizer PATH")
    if _is_memory_limited():  # a thread of tokenizers that finds no memory can leave the others waiting forever
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = [_LONG_RUNS.sub(_with_spaces, text) for text in texts]
    composed = [unicodedata.normalize("NFC", text) for text in texts]
    counts = _count_characters(composed)
    lowercase = kind == "wordpiece" if lowercase is None else lowercase
    if strip_accents is None:
        strip_accents = lowercase and kind == "wordpiece" and not needs_accents(counts)
    keep_marks = needs_marks(counts)
    if keep_marks and strip_accents:
        logger.info(
            "Only Latin and Greek letters lose their accents: the text also has a script in which a letter "
            "without its mark is another one, as in Korean, Hindi or Russian"
        )
    # Composed and decomposed letters are the same ones (macOS decomposes those in names of files).
    has_letters = has_hangul("".join(counts)) or (not strip_accents and has_composed_letters(counts))
    compose = keep_marks or (kind == "wordpiece" and has_letters)
    if compose:
        texts = composed
    elif composed != texts:
        counts = _count_characters(texts)
    rules = _Rules(lowercase, strip_accents, keep_marks, compose)
    trainers_by_kind = {"wordpiece": _train_wordpiece, "bpe": _train_bpe, "unigram": _train_unigram}
    return standardize(trainers_by_kind[kind](texts, counts, vocabulary_size, rules))


def _is_memory_limited() -> bool:
    """Whether the address space of this process has a limit (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


@dataclass(frozen=True)
class _Rules:
    """How characters are normalized.

    `keep_marks`: accents are stripped from Latin and Greek letters only. `compose`: WordPiece reads decomposed
    letters as composed ones.
    """

    lowercase: bool
    strip_accents: bool
    keep_marks: bool
    compose: bool

    def add_bert_pipeline(self, tokenizer: Tokenizer) -> Tokenizer:
        return add_bert_pipeline(
            tokenizer, self.lowercase, self.strip_accents, keep_marks=self.keep_marks, compose=self.compose
        )

    def normalizers(self) -> list[normalizers.Normalizer]:
        parts: list[normalizers.Normalizer] = [normalizers.Lowercase()] if self.lowercase else []
        if self.strip_accents:
            all_scripts = [normalizers.NFD(), normalizers.StripAccents()]
            parts += [*(latin_accent_strippers() if self.keep_marks else all_scripts), normalizers.NFC()]
        return parts


def _train_wordpiece(texts: Sequence[str], counts: Counter[str], size: int, rules: _Rules) -> Tokenizer:
    tokenizer = rules.add_bert_pipeline(Tokenizer(models.WordPiece(unk_token="[UNK]")))

    # The normalizer makes each ideograph a word. Where they are rare, their useless "##" entries stay, so that a
    # vocabulary of English is the same as ever.
    separate = tokenizer.normalizer.normalize_str if has_ideographs(counts) else str

    def continues(character: str) -> bool:
        return len(tokenizer.pre_tokenizer.pre_tokenize_str(separate("a" + character))) == 1

    # A character takes two entries: one at the beginning of words, and "##" inside them.
    alphabet = _alphabet(counts, tokenizer.normalizer, size, entries=lambda character: 1 + continues(character))
    # The trainer numbers the "##" letters in the order of a hash map, which differs from run to run and
    # decides ties. Naming them as special tokens numbers them first; below they become ordinary entries.
    continuing = ["##" + character for character in alphabet if continues(character)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=TRAINED_NAMES + continuing,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    longest = LONGEST_WORD_WITH_MARKS if rules.keep_marks else LONGEST_WORD
    model = models.WordPiece(tokenizer.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=longest)
    return rules.add_bert_pipeline(Tokenizer(model))


def _train_bpe(texts: Sequence[str], counts: Counter[str], size: int, rules: _Rules) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer := rules.normalizers():
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


def _train_unigram(texts: Sequence[str], counts: Counter[str], size: int, rules: _Rules) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), *rules.normalizers(), spaces, normalizers.Strip()]
    )
    # The trainer makes an entry of every character that it sees, so it sees only those of the alphabet.
    normalized = [tokenizer.normalizer.normalize_str(text) for text in texts]
    seen = _count_characters(normalized)
    alphabet = _alphabet(seen, tokenizer.normalizer, size)
    rare = dict.fromkeys(map(ord, seen.keys() - {*alphabet, " "}), RARE)
    # Punctuation is split off: no "end." next to "end"; and a Chinese sentence is not one word to the trainer.
    splitters = [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    without_rare = pre_tokenizers.Split(RARE, "removed")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splitters, without_rare])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size - len(TRAINED_NAMES) + 1,
        special_tokens=["[UNK]"],
        unk_token="[UNK]",
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.translate(rare) for text in normalized), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    # Entries of the model are found in texts, so the special tokens are added outside of it, at the end.
    tokenizer.add_special_tokens(TRAINED_NAMES)
    return tokenizer


def _with_spaces(run: re.Match[str]) -> str:
    """Return a run of characters with a space after every `LONGEST_RUN` of them."""
    return " ".join(run[0][start : start + LONGEST_RUN] for start in range(0, len(run[0]), LONGEST_RUN))


def _count_characters(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[int] = Counter()
    for text in texts:
        codes, frequencies = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_counts=True)
        counts.update(dict(zip(codes.tolist(), frequencies.tolist(), strict=True)))
    return Counter({chr(code): count for code, count in counts.items()})


def _alphabet(
    raw: Counter[str],
    normalizer: normalizers.Normalizer,
    size: int,
    *,
    entries: Callable[[str], int] = lambda character: 1,
) -> list[str]:
    """Return the most frequent normalized characters that cover `ALPHABET_COVERAGE` of the text, sorted.

    They are fewer if they would take more than `ALPHABET_SHARE` of the `size` entries of the vocabulary.
    """
    counts: Counter[str] = Counter()
    for raw_character, count in raw.items():
        for character in normalizer.normalize_str(raw_character):
            if not character.isspace():
                counts[character] += count
    remaining, room = ALPHABET_COVERAGE * counts.total(), ALPHABET_SHARE * size
    alphabet: list[str] = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        room -= entries(character)
        if remaining <= 0 or room < 0:
            break
        alphabet.append(character)
        remaining -= count
    if remaining > 0:
        logger.warning(
            "the vocabulary has no room for %s rare characters (%.2f%% of the text), which become [UNK] (with "
            "WordPiece, their whole words); a larger --vocabulary-size keeps them, and --model bpe knows every "
            "character",
            f"{len(counts) - len(alphabet):,}", 100 * (remaining / counts.total() + 1 - ALPHABET_COVERAGE),
        )  # fmt: skip
    return sorted(alphabet)
