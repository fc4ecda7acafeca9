"""The text of each token, so that tokens of two tokenizers can be compared, and the pieces of a text."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, cached_property

from tokenizers import Tokenizer, pre_tokenizers

from electra.data.tokenizer import WORD_STARTS, special_tokens, vocabulary_size, word_marker


@dataclass(frozen=True)
class TokenText:
    """The text of a token.

    Attributes:
        content: its bytes; a byte-level token can be a part of a character.
        begins_word: whether a space, or in WordPiece the beginning of a word, is before it.
    """

    content: bytes
    begins_word: bool


class TokenTexts:
    """The texts of a tokenizer's tokens.

    Attributes:
        marker: see `electra.data.tokenizer.word_marker`.
        names: the name of each id in the vocabulary; empty: there is no entry.
        texts: the text of each id; None for special tokens and for ids without an entry.

    Raises:
        DataError: the tokenizer does not mark where words begin.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.marker = tokenizer, word_marker(tokenizer)
        self._special = frozenset(special_tokens(tokenizer).ids)
        self._model, self._normalizer = tokenizer.model, tokenizer.normalizer
        self.names = [tokenizer.id_to_token(number) or "" for number in range(vocabulary_size(tokenizer))]
        self.texts = [
            None if number in self._special or not name else _text_of(name, self.marker)
            for number, name in enumerate(self.names)
        ]

    @cached_property
    def ids(self) -> dict[TokenText, int]:
        """The id of each text; of several the first, but those of byte fallback last."""
        known = [(text, number) for number, text in enumerate(self.texts) if text is not None]
        known.sort(key=lambda entry: _fallback_byte(self.names[entry[1]], self.marker) is not None)
        return dict(reversed(known))

    def split(self, text: TokenText) -> tuple[int, ...]:
        """Return the ids of the pieces of a text; none: there is no entry for any part of it."""
        try:
            content = text.content.decode()
        except UnicodeDecodeError:
            return ()
        ids = () if text.begins_word else self._split_inside_word(content)
        ids = ids or tuple(self.tokenizer.encode(f" {content}", add_special_tokens=False).ids)
        return tuple(number for number in ids if number not in self._special)

    def _split_inside_word(self, content: str) -> tuple[int, ...]:
        """Return the ids of the pieces of a text that continues a word; empty: there are none."""
        if self._normalizer is not None:
            content = self._normalizer.normalize_str(content)
        if self.marker not in WORD_STARTS:
            return self._longest_matches(content)
        content = content.removeprefix(self.marker)
        if self.marker == "Ġ":
            byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            content = "".join(piece for piece, _ in byte_level.pre_tokenize_str(content))
        return tuple(token.id for token in self._model.tokenize(content)) if content else ()

    def _longest_matches(self, content: str) -> tuple[int, ...]:
        """Return WordPiece's ids of a text inside a word: the longest entry, again and again; empty: there is
        none for a part of it."""
        ids: list[int] = []
        while content:
            entries = (
                (n, self.tokenizer.token_to_id(self.marker + content[:n])) for n in range(len(content), 0, -1)
            )
            length, number = next(((n, i) for n, i in entries if i is not None), (0, None))
            if number is None:
                return ()
            ids.append(number)
            content = content[length:]
        return tuple(ids)


def _text_of(token: str, marker: str) -> TokenText:
    """Return the text of a token. Punctuation in WordPiece continues a word: no space need be before it."""
    rest = token.removeprefix(marker)
    if (byte := _fallback_byte(token, marker)) is not None:
        return TokenText(byte, begins_word=False)
    if marker in WORD_STARTS:
        content = _bytes_of(rest) if marker == "Ġ" else rest.replace(marker, " ").encode()
        return TokenText(content, rest != token)
    continues = rest not in ("", token)
    is_punctuation = len(token) == 1 and unicodedata.category(token)[0] in "PS"
    return TokenText((rest if continues else token).encode(), not (continues or is_punctuation))


def _fallback_byte(token: str, marker: str) -> bytes | None:
    """Return the byte of a token such as <0x0A>, which SentencePiece has for bytes of unknown characters."""
    found = re.fullmatch("<0x([0-9A-F]{2})>", token) if marker == "▁" else None
    return None if found is None else bytes.fromhex(found[1])


def _bytes_of(token: str) -> bytes:
    """Return the bytes of a byte-level token; an added token, which has other characters, as it is."""
    codes = _byte_codes()
    return bytes(codes[c] for c in token) if all(c in codes for c in token) else token.encode()


@cache
def _byte_codes() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (Radford et al. 2019).

    Visible characters of Latin-1 stand for themselves, the other bytes are the characters from code 256 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [code for code in range(256) if code not in visible]
    return {chr(code): code for code in visible} | {chr(256 + n): code for n, code in enumerate(hidden)}
