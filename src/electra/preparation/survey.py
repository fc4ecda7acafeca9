"""A first, bounded pass over a corpus: a sample for the tokenizer, and the rule for the held-out part.

Both are decided by a hash of the text. They do not depend on the order of the documents, and copies of one
document always belong to the same split.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from electra.preparation.cleaning import DocumentFilter
from electra.preparation.deduplication import HASHES, SeenHashes, document_hash
from electra.preparation.scripts import has_hangul
from electra.readers.base import Document, Item

SURVEY_CHARACTERS = 1_000_000_000  # characters read at most
SAMPLE_CHARACTERS = 20_000_000  # characters of the sample
SAMPLE_PIECE = 50_000  # a longer document is sampled in pieces of this many characters
SMALL_HELDOUT = 8  # documents that a held-out part should have at least
LARGEST_HELDOUT = 0.1  # share of the characters of a small corpus that these may take
LOWEST_HASHES = 4096  # documents with the lowest hashes, whose lengths are known at least


@dataclass(frozen=True)
class HeldoutRule:
    """Which documents are held out: those with a hash below `threshold`, and the end of one (`tail_of`)."""

    threshold: int
    tail_of: int | None = None
    tail_share: float = 0.0

    def share(self, document: int) -> float:
        """Return the share of a document (given by its hash) that is held out, from its end."""
        if document == self.tail_of:
            return self.tail_share
        return float(document < self.threshold)


@dataclass
class Survey:
    """The results of the first pass.

    Attributes:
        sample_characters: size of the sample.
        documents, characters: number of the documents that are kept, and of their characters.
        complete: whether the pass reached the end of the corpus.
        left_out: documents that are not kept.
        characters_read: number of characters of all documents.
        first_reject: the first line that could not be read, and why.
        has_hangul: whether a document that is kept has Hangul.
        lowest: characters by hash, for the documents with the lowest hashes.
    """

    sample_characters: int = SAMPLE_CHARACTERS
    documents: int = 0
    characters: int = 0
    complete: bool = True
    left_out: int = 0
    characters_read: int = 0
    first_reject: str | None = None
    has_hangul: bool = False
    lowest: dict[int, int] = field(default_factory=dict)
    _pieces: list[tuple[int, str]] = field(default_factory=list)
    _sampled: int = 0

    @property
    def sample(self) -> list[str]:
        """The sampled pieces, in the order of their hashes."""
        return [piece for _, piece in sorted(self._pieces, reverse=True)]

    def add(self, document: Document) -> None:
        digest = document_hash(document.text)
        self.documents += 1
        self.characters += len(document.text)
        self.has_hangul = self.has_hangul or has_hangul(document.text)
        self.lowest[digest] = self.lowest.get(digest, 0) + len(document.text)
        if len(self.lowest) > 2 * LOWEST_HASHES:
            self.lowest = dict(sorted(self.lowest.items())[:LOWEST_HASHES])
        for start in range(0, len(document.text), SAMPLE_PIECE) if self.sample_characters else ():
            # Another hash than the document's, since the documents with the lowest hashes are the held-out part.
            key = (digest ^ (start + 1)) * 0x9E3779B97F4A7C15 % HASHES
            if self._sampled < self.sample_characters or key < -self._pieces[0][0]:
                piece = document.text[start : start + SAMPLE_PIECE]
                heapq.heappush(self._pieces, (-key, piece))
                self._sampled += len(piece)
                while self._sampled - len(self._pieces[0][1]) >= self.sample_characters:
                    self._sampled -= len(heapq.heappop(self._pieces)[1])


def survey_corpus(
    items: Iterable[Item],
    *,
    sample_characters: int = SAMPLE_CHARACTERS,
    document_filter: DocumentFilter | None = None,
    deduplicate: bool = False,
) -> Survey:
    """Read documents until they end or `SURVEY_CHARACTERS` is reached.

    Args:
        sample_characters: size of the sample for training a tokenizer; 0: no sample.
        document_filter: which documents are kept.
        deduplicate: leave out copies of earlier documents.
    """
    survey, seen = Survey(sample_characters), SeenHashes()
    for item in items:
        if isinstance(item, Document):
            if survey.characters_read >= SURVEY_CHARACTERS:
                survey.complete = False
                break
            survey.characters_read += len(item.text)
            excluded = document_filter is not None and document_filter.exclusion_reason(item.text) is not None
            if excluded or (deduplicate and not seen.add([document_hash(item.text)])[0]):
                survey.left_out += 1
                continue
            survey.add(item)
        elif survey.first_reject is None:
            survey.first_reject = f"{item.source}, line {item.line}: {item.reason}"
    return survey


def choose_heldout(survey: Survey, share: float) -> HeldoutRule:
    """Return the rule that holds out about `share` of the characters, and always something to evaluate on.

    If that share is less than `SMALL_HELDOUT` documents, documents are added, lowest hash first, while they stay
    within `LARGEST_HELDOUT` of the characters and half of the documents. If not even one document does (a corpus
    of one document, of copies of one, or of very few), twice the share is cut from the end of the document with
    the lowest hash.
    """
    threshold = round(share * HASHES)
    ordered = sorted(survey.lowest.items())
    most = max(LARGEST_HELDOUT, 2 * share) * survey.characters
    heldout_characters, heldout_documents, small_threshold = 0, 0, 0
    for digest, characters in ordered:
        enough = heldout_documents >= SMALL_HELDOUT and heldout_characters >= share * survey.characters
        if digest >= threshold and enough:
            break
        if heldout_characters + characters > most or 2 * (heldout_documents + 1) > max(survey.documents, 2):
            break
        heldout_characters += characters
        heldout_documents += 1
        small_threshold = digest + 1
    if heldout_documents == 0:
        digest, characters = ordered[0]
        return HeldoutRule(0, digest, min(2 * share * survey.characters / characters, 0.5))
    return HeldoutRule(threshold if heldout_documents >= LOWEST_HASHES else small_threshold)
