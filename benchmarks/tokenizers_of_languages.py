"""Train the default tokenizer on the translated messages that this machine's programs have, language by language.

    python benchmarks/tokenizers_of_languages.py ko ja th hi vi ru

Every twentieth message is held out. A row of the table has the characters of the rest, the entries of the
vocabulary, those of one character, and on the held-out messages characters per token and the share of [UNK].
"""

import gettext
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from electra.data.tokenizer import vocabulary_size
from electra.preparation.encoding import encode_uncached
from electra.preparation.tokenizer_training import train_tokenizer

CATALOGS = Path("/usr/share/locale")
SCRIPTS = {"ko": "HANGUL", "ja": ("HIRAGANA", "KATAKANA"), "th": "THAI", "hi": "DEVANAGARI", "vi": "LATIN",
           "ru": "CYRILLIC"}  # fmt: skip
VOCABULARY = 8000
SHORTEST = 15  # characters: "OK" and names of menus are no text
MARKUP = re.compile(r"<[^>]*>|%[-#0 +]*[\d.*]*[a-zA-Z]|[_&](?=\w)")


def messages(language: str) -> Iterator[str]:
    """Yield the messages of a language that are translated: a third of their letters are in its script."""
    seen = set()
    for path in sorted((CATALOGS / language / "LC_MESSAGES").glob("*.mo")):
        with path.open("rb") as file:
            catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        for source, translation in catalog.items():
            text = " ".join(MARKUP.sub(" ", translation).split())
            script = sum(unicodedata.name(character, "").startswith(SCRIPTS[language]) for character in text)
            if source and translation != source and len(text) >= SHORTEST and script > 0.3 * len(text):
                if text not in seen:
                    yield text
                seen.add(text)


def row(language: str) -> str:
    """Return a row of the table."""
    texts = list(messages(language))
    heldout = texts[::20]
    sample = [text for number, text in enumerate(texts) if number % 20]
    tokenizer = train_tokenizer(sample, vocabulary_size=VOCABULARY)
    single = sum(len(entry.removeprefix("##") or entry) == 1 for entry in tokenizer.get_vocab())
    ids = [number for text in heldout for number in encode_uncached(tokenizer, text)]
    cells = (
        language, f"{sum(map(len, sample)):,}", f"{vocabulary_size(tokenizer):,}", f"{single:,}",
        f"{sum(map(len, heldout)) / len(ids):.2f}", f"{ids.count(tokenizer.token_to_id('[UNK]')) / len(ids):.2%}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for code in sys.argv[1:]:
        print(row(code), flush=True)
