"""The documents of a corpus in batches for the encoder, each with its place, so that work can go on from there."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from electra.preparation.cleaning import Filters, Reason, Seen
from electra.preparation.corpus import Source
from electra.preparation.encoding import Text
from electra.preparation.survey import HeldoutRule, document_hash
from electra.readers.base import Document, DocumentRule, Reject

BATCH_CHARACTERS = 1 << 20
BATCH_ITEMS = 1 << 13

Position = tuple[int, int]
"""A source's index, and how many of its documents and rejects have been read."""


@dataclass
class Batch:
    """What came along with some texts."""

    end: Position
    characters: int = 0
    read: int = 0
    """Characters, with those of documents that are left out."""
    hashes: list[int] = field(default_factory=list)
    left_out: Counter[Reason] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)


def batches(
    sources: Sequence[Source],
    *,
    documents: DocumentRule,
    rule: HeldoutRule,
    filters: Filters | None = None,
    seen: Seen | None = None,
    start: Position = (0, 0),
) -> Iterator[tuple[Batch, list[Text]]]:
    """Texts in batches of about `BATCH_CHARACTERS`, in the order of the sources, from a position on.

    Args:
        filters: what documents must be like.
        seen: the hashes of those before `start`; documents that are there are left out, and new ones added. None:
            copies stay.

    Where batches begin and end depends on the position of the first alone, and every `Batch.end` is a position to
    start from, so that the batches after it are the same.
    """
    first, skip = start
    batch, texts = Batch(start), list[Text]()
    for index in range(first, len(sources)):
        before = skip if index == first else 0
        for taken, item in enumerate(islice(sources[index].read(documents), before, None), before + 1):
            if isinstance(item, Document):
                batch.read += len(item.text)
                if filters and (reason := filters.reason(item.text)):
                    batch.left_out[reason] += 1
                else:
                    identity = document_hash(item.text)
                    texts.append(Text(item.text, rule.share(identity)))
                    batch.hashes.append(identity)
                    batch.characters += len(item.text)
            else:
                batch.rejects.append(item)
            items = len(texts) + len(batch.rejects) + batch.left_out.total()
            if batch.read >= BATCH_CHARACTERS or items >= BATCH_ITEMS:
                batch.end = (index, taken)
                yield batch, _without_copies(batch, texts, seen)
                batch, texts = Batch(batch.end), []
        batch.end = (index + 1, 0)
    if texts or batch.rejects or batch.left_out:
        yield batch, _without_copies(batch, texts, seen)


def _without_copies(batch: Batch, texts: list[Text], seen: Seen | None) -> list[Text]:
    """The texts that did not come before; the batch counts them alone."""
    if seen is None or not texts:
        return texts
    new = seen.add(batch.hashes)
    if count := int((~new).sum()):
        batch.left_out["a copy of an earlier one"] += count
        batch.hashes = [one for one, kept in zip(batch.hashes, new, strict=True) if kept]
        texts = [text for text, kept in zip(texts, new, strict=True) if kept]
        batch.characters = sum(len(text.text) for text in texts)
    return texts
