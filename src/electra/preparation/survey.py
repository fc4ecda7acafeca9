"""A first, bounded look at a corpus: a sample for the tokenizer, and the rule for the held-out part.

Both go by a hash of the text: they do not depend on the order of the documents, and copies of one document always
fall on the same side.
"""

import hashlib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from electra.preparation.cleaning import Filters, Seen
from electra.readers.base import Document, Item

SURVEYED = 1_000_000_000  # characters read at most
SAMPLE = 20_000_000  # characters of the sample
PIECE = 50_000  # a longer document is sampled in pieces of this many characters
SMALL_HELDOUT = 8  # documents that a held-out part should have at least
LARGEST_HELDOUT = 0.1  # of a small corpus's characters
HASHES = 1 << 64


def document_hash(text: str) -> int:
    """64 bits of BLAKE2b over the text in UTF-8."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


@dataclass(frozen=True)
class HeldoutRule:
    """Which documents are held out: those with a hash below `threshold`, and the end of one (`tail_of`)."""

    threshold: int
    tail_of: int | None = None
    tail_share: float = 0.0

    def share(self, document: int) -> float:
        """The share of a document (given by its hash) that is held out, from its end."""
        if document == self.tail_of:
            return self.tail_share
        return float(document < self.threshold)


@dataclass
class Survey:
    """What was seen: counts, the sample, and characters by hash for the documents with the lowest hashes."""

    sample_size: int = SAMPLE
    documents: int = 0
    characters: int = 0
    complete: bool = True
    left_out: int = 0
    read: int = 0
    """Characters, of all documents."""
    first_reject: str | None = None
    lowest: dict[int, int] = field(default_factory=dict)
    _pieces: list[tuple[int, str]] = field(default_factory=list)
    _sampled: int = 0

    @property
    def sample(self) -> list[str]:
        """The sampled pieces, in the order of their hashes."""
        return [piece for _, piece in sorted(self._pieces, reverse=True)]

    def add(self, document: Document) -> None:
        identity = document_hash(document.text)
        self.documents += 1
        self.characters += len(document.text)
        self.lowest[identity] = self.lowest.get(identity, 0) + len(document.text)
        if len(self.lowest) > 8192:
            self.lowest = dict(sorted(self.lowest.items())[:4096])
        for start in range(0, len(document.text), PIECE) if self.sample_size else ():
            # A hash of its own: the lowest document hashes are the held-out part.
            key = (identity ^ (start + 1)) * 0x9E3779B97F4A7C15 % HASHES
            if self._sampled < self.sample_size or key < -self._pieces[0][0]:
                piece = document.text[start : start + PIECE]
                heapq.heappush(self._pieces, (-key, piece))
                self._sampled += len(piece)
                while self._sampled - len(self._pieces[0][1]) >= self.sample_size:
                    self._sampled -= len(heapq.heappop(self._pieces)[1])


def survey(
    items: Iterable[Item], *, sample_size: int = SAMPLE, filters: Filters | None = None, copies: bool = True
) -> Survey:
    """Reads documents until they end or `SURVEYED` characters are reached.

    Args:
        sample_size: characters to keep for training a tokenizer; 0 for none.
        filters: what documents must be like.
        copies: whether copies of earlier documents count.
    """
    result, seen = Survey(sample_size), Seen()
    for item in items:
        if isinstance(item, Document):
            if result.read >= SURVEYED:
                result.complete = False
                break
            result.read += len(item.text)
            if filters and filters.reason(item.text):
                result.left_out += 1
                continue
            if not copies and not seen.add([document_hash(item.text)])[0]:
                result.left_out += 1
                continue
            result.add(item)
        elif result.first_reject is None:
            result.first_reject = f"{item.source}, line {item.line}: {item.reason}"
    return result


def choose_heldout(seen: Survey, share: float) -> HeldoutRule:
    """The rule that holds out about `share` of the characters, and always something to evaluate on.

    Where that share is less than `SMALL_HELDOUT` documents, documents are added, lowest hash first, while they
    stay within `LARGEST_HELDOUT` of the characters and half of the documents. Where not even one does (a corpus of
    one document, of copies of one, or of very few), twice the share is cut from the end of the document with the
    lowest hash.
    """
    threshold = round(share * HASHES)
    ordered = sorted(seen.lowest.items())
    most = max(LARGEST_HELDOUT, 2 * share) * seen.characters
    taken, held, chosen = 0, 0, 0
    for identity, characters in ordered:
        enough = held >= SMALL_HELDOUT and taken >= share * seen.characters
        if identity >= threshold and enough:
            break
        if taken + characters > most or 2 * (held + 1) > max(seen.documents, 2):
            break
        taken, held, chosen = taken + characters, held + 1, identity + 1
    if held == 0:
        identity, characters = ordered[0]
        return HeldoutRule(0, identity, min(2 * share * seen.characters / characters, 0.5))
    return HeldoutRule(threshold if held >= 4096 else chosen)


class DuplicateCounter:
    """The share of documents that are copies of an earlier one, in bounded memory.

    Counts exactly up to 262,144 different documents; beyond, only those whose hash is a multiple of 2, then 4, ...
    """

    LIMIT = 1 << 18

    def __init__(self, state: tuple[int, dict[int, int]] = (1, {})) -> None:
        self.modulus, counts = state
        self.counts = dict(counts)

    def add(self, identity: int) -> None:
        if identity % self.modulus:
            return
        self.counts[identity] = self.counts.get(identity, 0) + 1
        if len(self.counts) > self.LIMIT:
            self.modulus *= 2
            self.counts = {key: count for key, count in self.counts.items() if key % self.modulus == 0}

    @property
    def share(self) -> float:
        total = sum(self.counts.values())
        return (total - len(self.counts)) / total if total else 0.0
