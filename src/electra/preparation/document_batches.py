"""The documents of a corpus in batches for the encoder. Work can be resumed at the position of each batch."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from electra.preparation.cleaning import DocumentFilter, ExclusionReason
from electra.preparation.corpus import Source
from electra.preparation.deduplication import SeenHashes, document_hash
from electra.preparation.encoding import Text
from electra.preparation.survey import HeldoutRule
from electra.readers.base import Document, DocumentRule, Reject

BATCH_CHARACTERS = 1 << 20
BATCH_ITEMS = 1 << 13

Position = tuple[int, int]
"""The index of a source, and the number of its documents and rejects that have been read."""


@dataclass
class Batch:
    """The position and the counts of a batch of texts.

    Attributes:
        end: the position after the batch.
        characters: number of characters of the texts.
        characters_read: the same with the documents that were left out.
        hashes: the hashes of the texts.
        left_out: documents that were left out, by reason.
        rejects: lines that could not be read.
    """

    end: Position
    characters: int = 0
    characters_read: int = 0
    hashes: list[int] = field(default_factory=list)
    left_out: Counter[ExclusionReason] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)


def read_batches(
    sources: Sequence[Source],
    *,
    documents: DocumentRule,
    heldout: HeldoutRule,
    document_filter: DocumentFilter | None = None,
    seen: SeenHashes | None = None,
    start: Position = (0, 0),
) -> Iterator[tuple[Batch, list[Text]]]:
    """Yield texts in batches of about `BATCH_CHARACTERS`, in the order of the sources, from a position on.

    Where batches begin and end depends only on the position of the first. Every `Batch.end` is a position to start
    from, so that the batches after it are the same.

    Args:
        documents: what a document of a plain text file is.
        heldout: which documents are held out.
        document_filter: which documents are kept.
        seen: the hashes of the documents before `start`. Documents with one of these hashes are left out, and new
            hashes are added. None: copies stay.
    """
    first, skip = start
    batch, texts = Batch(start), list[Text]()
    for index in range(first, len(sources)):
        before = skip if index == first else 0
        for count, item in enumerate(islice(sources[index].read(documents), before, None), before + 1):
            if isinstance(item, Document):
                batch.characters_read += len(item.text)
                if document_filter and (reason := document_filter.exclusion_reason(item.text)):
                    batch.left_out[reason] += 1
                else:
                    digest = document_hash(item.text)
                    texts.append(Text(item.text, heldout.share(digest)))
                    batch.hashes.append(digest)
                    batch.characters += len(item.text)
            else:
                batch.rejects.append(item)
            items = len(texts) + len(batch.rejects) + batch.left_out.total()
            if batch.characters_read >= BATCH_CHARACTERS or items >= BATCH_ITEMS:
                batch.end = (index, count)
                yield batch, _remove_copies(batch, texts, seen)
                batch, texts = Batch(batch.end), []
        batch.end = (index + 1, 0)
    if texts or batch.rejects or batch.left_out:
        yield batch, _remove_copies(batch, texts, seen)


def _remove_copies(batch: Batch, texts: list[Text], seen: SeenHashes | None) -> list[Text]:
    """Return the texts that are new, and count only those in the batch."""
    if seen is None or not texts:
        return texts
    new = seen.add(batch.hashes)
    if copies := int((~new).sum()):
        batch.left_out["a copy of an earlier one"] += copies
        batch.hashes = [digest for digest, kept in zip(batch.hashes, new, strict=True) if kept]
        texts = [text for text, kept in zip(texts, new, strict=True) if kept]
        batch.characters = sum(len(text.text) for text in texts)
    return texts
