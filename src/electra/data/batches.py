"""The documents of a corpus in batches for the encoder, each with its place, so that work can go on from there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from electra.data.corpus import Document, DocumentRule, Reject, Source, read
from electra.data.encode import Text
from electra.data.survey import HeldoutRule, document_hash

BATCH_CHARACTERS = 1 << 20
BATCH_ITEMS = 1 << 13

Position = tuple[int, int]
"""A source's index, and how many of its documents and rejects have been read."""


@dataclass
class Batch:
    """What came along with some texts."""

    end: Position
    characters: int = 0
    hashes: list[int] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


def batches(
    sources: Sequence[Source], *, documents: DocumentRule, rule: HeldoutRule, start: Position = (0, 0)
) -> Iterator[tuple[Batch, list[Text]]]:
    """Texts in batches of about `BATCH_CHARACTERS`, in the order of the sources, from a position on.

    Where batches begin and end depends on the position of the first alone, and every `Batch.end` is a position to
    start from, so that the batches after it are the same.
    """
    first, skip = start
    batch, texts = Batch(start), list[Text]()
    for index in range(first, len(sources)):
        before = skip if index == first else 0
        for taken, item in enumerate(islice(read(sources[index], documents), before, None), before + 1):
            if isinstance(item, Document):
                identity = document_hash(item.text)
                texts.append(Text(item.text, rule.share(identity)))
                batch.hashes.append(identity)
                batch.characters += len(item.text)
            else:
                batch.rejects.append(item)
            if batch.characters >= BATCH_CHARACTERS or len(texts) + len(batch.rejects) >= BATCH_ITEMS:
                batch.end = (index, taken)
                yield batch, texts
                batch, texts = Batch(batch.end), []
        batch.end = (index + 1, 0)
    if texts or batch.rejects:
        yield batch, texts
