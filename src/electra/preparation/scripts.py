"""Find what the scripts of a text need from a normalizer, from the counts of its composed characters (NFC)."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

from tokenizers import Tokenizer

NOTICEABLE = 0.001
"""Share of a text's characters from which a script counts. English Wikipedia quotes less than a tenth of it."""
SCRIPTS = (
    "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati",
    "Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Malayalam",
    "Myanmar", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan",
)  # fmt: skip
"""Scripts that can be unknown to a vocabulary, by their names in Unicode, where Han is called CJK."""
FEWEST_WORDS = 20
"""Words of a script from which it counts as more than a quotation."""
CHECKED_WORDS = 1000
"""Different words of a script, the most frequent ones, that are encoded to find whether most are unknown."""
_HANGUL = re.compile("[가-힣]")


def needs_marks(counts: Counter[str]) -> bool:
    """Return whether BERT's removal of accents would damage the text: Korean, Japanese, Thai, Hindi, Russian.

    It decomposes characters and removes nonspacing marks. Only in Latin and Greek are these accents; elsewhere
    they are vowels, parts of letters, or make another letter, and Hangul consists of such parts.
    """
    return _share(counts, _is_marked) >= NOTICEABLE


def needs_accents(counts: Counter[str]) -> bool:
    """Return whether the text has words that differ by several accents of a letter, as in Vietnamese."""
    return _share(counts, _is_vietnamese) >= NOTICEABLE


def has_hangul(text: str) -> bool:
    """Return whether a text has Hangul."""
    return not text.isascii() and _HANGUL.search(text) is not None


def takes_hangul_apart(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer's normalizer makes three letters of a character of Hangul, as BERT's does."""
    first_letter = unicodedata.normalize("NFD", "한")[0]
    return tokenizer.normalizer is not None and first_letter in tokenizer.normalizer.normalize_str("한")


def has_composed_letters(counts: Counter[str]) -> bool:
    """Return whether the text has letters that can also be written as a letter and its marks, as in German."""
    return _share(counts, lambda character: len(unicodedata.normalize("NFD", character)) > 1) >= NOTICEABLE


def has_ideographs(counts: Counter[str]) -> bool:
    """Return whether the text has Chinese characters, each of which BERT's normalizer makes a word."""
    return _share(counts, lambda character: "㐀" <= character <= "鿿") >= NOTICEABLE


def unknown_scripts(tokenizer: Tokenizer, unknown: int, texts: Iterable[str]) -> dict[str, int]:
    """Return the scripts whose words in some texts are mostly unknown, and the number of these words.

    A word, which ends at a space, is unknown if at least half of its tokens are.

    Args:
        unknown: the id of the unknown token.
    """
    words: Counter[str] = Counter()
    for text in texts:
        if not text.isascii():
            words.update(word for word in text.split() if not word.isascii())
    scripts: dict[str, Counter[str]] = {}
    for word, count in words.items():
        if script := next(filter(None, map(_script, word)), ""):
            scripts.setdefault(script, Counter())[word] = count
    found = {}
    for script, counts in scripts.items():
        checked = dict(counts.most_common(CHECKED_WORDS))
        encodings = tokenizer.encode_batch(list(checked), add_special_tokens=False)
        is_unknown = [2 * encoding.ids.count(unknown) >= len(encoding.ids) for encoding in encodings]
        unknown_words = sum(count for count, bad in zip(checked.values(), is_unknown, strict=True) if bad)
        if counts.total() >= FEWEST_WORDS and 2 * unknown_words > sum(checked.values()):
            found[script] = counts.total()
    return found


@cache
def _script(character: str) -> str:
    """Return the script of a letter; empty: Latin, or no letter."""
    name = unicodedata.name(character, "").partition(" ")[0].replace("CJK", "Han").capitalize()
    return name if name in SCRIPTS and character.isalpha() else ""


def _share(counts: Counter[str], belongs: Callable[[str], bool]) -> float:
    return sum(count for character, count in counts.items() if belongs(character)) / max(counts.total(), 1)


def _is_marked(character: str) -> bool:
    """Return whether a letter or mark of another script than Latin or Greek is, or has, a removable mark."""
    parts = unicodedata.normalize("NFD", character)
    if unicodedata.name(parts[0], "").startswith(("LATIN", "GREEK", "COMBINING")):
        return False
    return unicodedata.category(parts[0]) == "Mn" or (len(parts) > 1 and character.isalpha())


def _is_vietnamese(character: str) -> bool:
    return "Ạ" <= character <= "ỹ" or character in "ơưƠƯ"
