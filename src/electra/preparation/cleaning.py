"""Which documents of a corpus are kept: by their length, their language, and whether they came before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from electra.errors import require
from electra.preparation.languages import near

Reason = Literal["too short", "too long", "another language", "a copy of an earlier one"]

LOOKED_AT = 1000
"""Characters from the middle of a document that its language is told by."""

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Filters:
    """What a document must be like.

    Attributes:
        least_characters, most_characters: 0: no bound.
        languages: ISO 639-1 codes; empty: any.
    """

    least_characters: int = 0
    most_characters: int = 0
    languages: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """What is wrong with the settings."""
        for name in ("least_characters", "most_characters"):
            if (value := getattr(self, name)) < 0:
                yield f"{name} = {value} must not be negative"
        if 0 < self.most_characters < self.least_characters:
            yield f"most_characters = {self.most_characters} is less than least_characters"
        if self.languages and (unknown := [one for one in self.languages if one not in _languages()]):
            code = near(unknown[0])
            is_code = code in _languages()
            advice = f"did you mean {code!r}?" if is_code else "docs/guides/data-preparation.md lists them"
            yield f"language = {unknown[0]!r} is no code that is known; {advice}"

    def reason(self, text: str) -> Reason | None:
        """Why a document is left out; None where it is not."""
        if len(text) < self.least_characters:
            return "too short"
        if self.most_characters and len(text) > self.most_characters:
            return "too long"
        if self.languages:
            middle = max(0, len(text) - LOOKED_AT) // 2
            if _language(text[middle : middle + LOOKED_AT]) not in self.languages:
                return "another language"
        return None


class Seen:
    """The hashes of all documents so far: eight bytes each, in sorted runs of which no two are of a size."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def add(self, hashes: Sequence[int] | Hashes) -> npt.NDArray[np.bool_]:
        """Remember hashes; which of them are new, (hashes,)."""
        given = np.asarray(hashes, np.uint64)
        new = np.zeros(len(given), np.bool_)
        new[np.unique(given, return_index=True)[1]] = True
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, given), len(run) - 1)
            new &= run[places] != given
        if new.any():
            self._runs.append(np.sort(given[new]))
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]), kind="stable")
        return new


def _language(text: str) -> str:
    """The likeliest language of a text."""
    import py3langid

    found: str = py3langid.classify(text)[0]
    return found


@cache
def _languages() -> frozenset[str]:
    """All that are known; loading the model takes a second."""
    require("--language", "language", "py3langid")
    import py3langid

    _language("")

    return frozenset(name for name, _ in py3langid.rank(""))
