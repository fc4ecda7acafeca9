"""Copies of documents, by the hashes of their texts: which are new, and how many there are."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

HASHES = 1 << 64
"""Number of different hashes."""


def document_hash(text: str) -> int:
    """Return 64 bits of BLAKE2b over the text in UTF-8."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


class SeenHashes:
    """The hashes of all documents so far: eight bytes each, in sorted runs of different sizes."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def add(self, hashes: Sequence[int] | Hashes) -> npt.NDArray[np.bool_]:
        """Add hashes and return which of them are new, (hashes,)."""
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


class DuplicateCounter:
    """The share of documents that are copies of an earlier one, in bounded memory.

    It counts exactly up to 262,144 different documents. Beyond that it counts only those whose hash is a multiple
    of 2, then of 4, and so on.
    """

    LIMIT = 1 << 18

    def __init__(self, state: tuple[int, dict[int, int]] = (1, {})) -> None:
        self.modulus, counts = state
        self.counts = dict(counts)

    def add(self, document: int) -> None:
        """Count a document, given by its hash."""
        if document % self.modulus:
            return
        self.counts[document] = self.counts.get(document, 0) + 1
        if len(self.counts) > self.LIMIT:
            self.modulus *= 2
            self.counts = {key: count for key, count in self.counts.items() if key % self.modulus == 0}

    @property
    def share(self) -> float:
        total = sum(self.counts.values())
        return (total - len(self.counts)) / total if total else 0.0
