"""The plan of a preparation: which text would be read, how much there is, and how long it would take."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass

import zstandard
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from electra.config import check
from electra.preparation.config import PrepareConfig
from electra.preparation.corpus import STANDARD_INPUT, Source, find_sources
from electra.preparation.run import load_given_tokenizer
from electra.preparation.workers import usable_processors
from electra.readers.base import Document, DocumentRule

SAMPLE_CHARACTERS = 1_000_000
"""Maximum characters that are read of each source."""
CHARACTERS_PER_SECOND = 2_500_000
"""Speed of one process, all passes over the corpus together (docs/results/benchmarks.md: 2.9 million on an
EPYC)."""
TRAINING_SECONDS = 30.0
"""Time to train a tokenizer on the sample; it does not grow with the corpus."""
BYTES_PER_CHARACTER = 0.6
"""Size of the shards: about four characters per token and two bytes per id, and the ends of sentences."""


@dataclass(frozen=True)
class SourcePlan:
    """One source: what it is, how its first text begins, and about how many characters it has (0: unknown)."""

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
        names = ("source", "format", "text column", "characters (estimate)", "beginning")
        sources = Table(*names, title="corpus", title_justify="left")
        for plan in self.sources:
            characters = f"{plan.characters:,.0f}" if plan.characters else "unknown"
            sources.add_row(
                plan.source.name,
                plan.source.format,
                plan.source.column or "",
                characters,
                Text(plan.beginning, style="dim"),
            )
        table = Table("", "", show_header=False)
        for name, value in self.settings.items():
            table.add_row(name, value)
        table.add_row("disk space (estimate)", f"{self.characters * BYTES_PER_CHARACTER / 1e6:,.0f} MB")
        table.add_row("time (estimate)", f"{self.seconds:,.0f} s")
        return Group(sources, table, Text("A dry run: nothing was written.", style="bold"))


def plan_preparation(config: PrepareConfig) -> PreparePlan:
    """Read the beginning of every source and estimate the rest.

    Raises:
        ConfigError: the settings contradict each other.
        DataError: a source cannot be used.
    """
    check(config)
    has_tokenizer = load_given_tokenizer(config) is not None
    # Standard input is left alone: looking at it would consume it.
    names = [name for name in config.corpus if name != STANDARD_INPUT]
    sources = find_sources(names, out=config.out, text_column=config.text_column) if names else []
    plans = tuple(_plan_source(source, config.documents) for source in sources)
    workers = config.workers or usable_processors()
    seconds = sum(plan.characters for plan in plans) / CHARACTERS_PER_SECOND / workers
    training = f"{config.model}, {config.vocabulary_size:,} entries, to be trained"
    return PreparePlan(
        plans,
        {"tokenizer": str(config.tokenizer) if has_tokenizer else training, "output folder": str(config.out)},
        seconds if has_tokenizer else seconds + TRAINING_SECONDS,
    )


def _plan_source(source: Source, documents: DocumentRule) -> SourcePlan:
    texts = list(_read_beginning(source, documents))
    sample = "\n\n".join(texts)
    # The compression of the sample tells how many bytes the text takes in the file. Keys and other columns are
    # ignored.
    raw = sample.encode()
    if source.name.endswith(".gz"):
        raw = gzip.compress(raw)
    elif source.name.endswith(".zst") or (source.reader is not None and source.reader.binary):
        raw = zstandard.compress(raw)
    complete = sum(map(len, texts)) < SAMPLE_CHARACTERS
    characters = len(sample) if complete else source.size * len(sample) / max(len(raw), 1)
    return SourcePlan(source, " ".join(sample[:200].split())[:60], characters)


def _read_beginning(source: Source, documents: DocumentRule) -> Iterator[str]:
    characters = 0
    for item in source.read(documents):
        if isinstance(item, Document):
            yield item.text
            characters += len(item.text)
        if characters >= SAMPLE_CHARACTERS:
            return
