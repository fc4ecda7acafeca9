"""Which documents of a corpus are kept, by their length and their language."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from electra.errors import require
from electra.preparation.languages import find_language_code

ExclusionReason = Literal["too short", "too long", "another language", "a copy of an earlier one"]

LANGUAGE_SAMPLE = 1000
"""Characters from the middle of a document by which its language is detected."""


@dataclass(frozen=True)
class DocumentFilter:
    """Decides which documents are kept.

    Attributes:
        least_characters, most_characters: bounds of the length; 0: no bound.
        languages: ISO 639-1 codes; empty: any language.
    """

    least_characters: int = 0
    most_characters: int = 0
    languages: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the settings."""
        if 0 < self.most_characters < self.least_characters:
            yield (
                f"--most-characters: must be at least --least-characters ({self.least_characters}), "
                f"got {self.most_characters}"
            )
        if self.languages and (unknown := [code for code in self.languages if code not in _known_languages()]):
            code = find_language_code(unknown[0])
            known = code in _known_languages()
            hint = f"did you mean {code!r}?" if known else "docs/guides/data-preparation.md lists them"
            yield f"--language: {unknown[0]!r} is not a known language code; {hint}"

    def exclusion_reason(self, text: str) -> ExclusionReason | None:
        """Return why a document is left out; None: it is kept."""
        if len(text) < self.least_characters:
            return "too short"
        if self.most_characters and len(text) > self.most_characters:
            return "too long"
        if self.languages:
            middle = max(0, len(text) - LANGUAGE_SAMPLE) // 2
            if _detect_language(text[middle : middle + LANGUAGE_SAMPLE]) not in self.languages:
                return "another language"
        return None


def _detect_language(text: str) -> str:
    """Return the most likely language of a text."""
    import py3langid

    language: str = py3langid.classify(text)[0]
    return language


@cache
def _known_languages() -> frozenset[str]:
    """Return all known codes; loading the model takes a second."""
    require("--language", "language", "py3langid")
    import py3langid

    _detect_language("")  # loads the model
    return frozenset(name for name, _ in py3langid.rank(""))
