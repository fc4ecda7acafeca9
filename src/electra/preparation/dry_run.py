"""What `electra prepare --dry-run` says: which text would be read, how much there is, how long it would take."""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import zstandard
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from electra.preparation.corpus import Source
from electra.readers.base import Document, DocumentRule

LOOKED_AT = 1_000_000
"""Characters that are read of each source, at most."""
CHARACTERS_PER_SECOND = 2_500_000
"""Of one process, all passes over the corpus together (docs/results/benchmarks.md: 2.9 million on an EPYC)."""
TRAINING_SECONDS = 30.0
"""To train a vocabulary on the sample; it does not grow with the corpus."""
BYTES_PER_CHARACTER = 0.6
"""Of the shards: about four characters a token and two bytes an id, and the ends of sentences."""


@dataclass(frozen=True)
class SourcePlan:
    """One source: what it is, how its first text begins, and about how many characters it holds."""

    source: Source
    beginning: str
    characters: float


@dataclass(frozen=True)
class PreparePlan:
    """The plan of `electra prepare`; nothing was written."""

    sources: tuple[SourcePlan, ...]
    settings: dict[str, str]
    seconds: float

    @property
    def characters(self) -> float:
        return sum(plan.characters for plan in self.sources)

    def __rich__(self) -> RenderableType:
        sources = Table(
            "source",
            "format",
            "text column",
            "characters (estimate)",
            "beginning",
            title="corpus",
            title_justify="left",
        )
        for plan in self.sources:
            source = plan.source
            about = f"{plan.characters:,.0f}" if plan.characters else "unknown"
            sources.add_row(
                source.name, source.format, source.column or "", about, Text(plan.beginning, style="dim")
            )
        table = Table("", "", show_header=False)
        for name, value in self.settings.items():
            table.add_row(name, value)
        table.add_row("disk space, about", f"{self.characters * BYTES_PER_CHARACTER / 1e6:,.0f} MB")
        table.add_row("time, about", f"{self.seconds:,.0f} s")
        return Group(sources, table, Text("A dry run: nothing was written.", style="bold"))


def plan(
    sources: Sequence[Source], *, documents: DocumentRule, settings: dict[str, str], workers: int, training: bool
) -> PreparePlan:
    """Look at the beginning of every source and reckon with the rest.

    Args:
        settings: what is shown of the settings, by name.
        workers: processes that would tokenise.
        training: whether a vocabulary would be trained first.

    Raises:
        DataError: a source turns out to be damaged.
    """
    plans = tuple(_look(source, documents) for source in sources)
    characters = sum(plan.characters for plan in plans)
    seconds = characters / CHARACTERS_PER_SECOND / workers + TRAINING_SECONDS * training
    return PreparePlan(plans, settings, seconds)


def _look(source: Source, documents: DocumentRule) -> SourcePlan:
    texts = list(_first_texts(source, documents))
    sample = "\n\n".join(texts)
    # A file's own packing tells how many bytes its text takes there; keys and other columns are not allowed for.
    raw = sample.encode()
    if source.name.endswith(".gz"):
        raw = gzip.compress(raw)
    elif source.name.endswith(".zst") or (source.reader is not None and source.reader.binary):
        raw = zstandard.compress(raw)
    whole = sum(map(len, texts)) < LOOKED_AT
    characters = len(sample) if whole else source.size * len(sample) / max(len(raw), 1)
    return SourcePlan(source, " ".join(sample[:200].split())[:60], characters)


def _first_texts(source: Source, documents: DocumentRule) -> Iterator[str]:
    characters = 0
    for item in source.read(documents):
        if isinstance(item, Document):
            yield item.text
            characters += len(item.text)
        if characters >= LOOKED_AT:
            return
