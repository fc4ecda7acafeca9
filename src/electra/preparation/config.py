"""The settings of a preparation."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from electra.config import NonNegativeInt, PositiveInt, Range
from electra.preparation.cleaning import DocumentFilter
from electra.readers.base import DocumentRule

TokenizerKind = Literal["wordpiece", "bpe", "unigram"]
LEAST_VOCABULARY = 512


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of `electra prepare`."""

    corpus: Annotated[Positional[tuple[str, ...]], arg(metavar="CORPUS...", help_behavior_hint="(required)")]
    """Files (.txt .jsonl .csv .tsv .parquet, each also .gz or .zst), folders, patterns, - for standard input, or
    hub:NAME[:CONFIG] for a data set of the Hugging Face hub."""
    out: Path
    """Output folder."""
    tokenizer: Path | None = None
    """A tokenizer.json, a BERT vocab.txt, a folder with one of them, or the included model wiki-tiny. Default: a
    tokenizer is trained."""
    model: TokenizerKind = "wordpiece"
    """Kind of tokenizer to train: wordpiece, bpe (byte-level) or unigram."""
    vocabulary_size: int = 30522
    """Number of entries of a trained tokenizer. A small corpus needs fewer (4096 for a few megabytes)."""
    lowercase: bool | None = None
    """Convert the text to lower case. Default: yes for wordpiece, no for bpe and unigram; for a vocab.txt, yes if
    none of its entries has a capital letter."""
    strip_accents: bool | None = None
    """Remove accents from letters; only from Latin and Greek ones in text with scripts that need their marks.
    Default: the same as lowercase for wordpiece, but no for Vietnamese; no for bpe and unigram."""
    text_column: str | None = None
    """Column or key of the text. Default: detected."""
    documents: DocumentRule = "blank-line"
    """What ends a document in a .txt file: a blank line, or only the end of the file."""
    deduplicate: bool = False
    """Leave out documents that are exact copies of an earlier one."""
    least_characters: NonNegativeInt = 0
    """Leave out documents with fewer characters."""
    most_characters: NonNegativeInt = 0
    """Leave out documents with more characters. 0 means no limit."""
    language: tuple[str, ...] = ()
    """Keep only documents in these languages, given by their codes (en de). Needs the extra `language`."""
    heldout: Annotated[float, Range(gt=0, le=0.5)] = 0.01
    """Fraction of the text that is held out for evaluation. A hash of each document's text decides which."""
    workers: PositiveInt | None = None
    """Number of processes that tokenize. Default: one for each processor. The result does not depend on it."""
    shard_tokens: PositiveInt = 1 << 24
    """Approximate number of tokens in a shard."""
    dry_run: bool = False
    """Print which files would be read, how much text they hold and how long the work would take, and stop. Nothing
    is written."""

    def problems(self) -> Iterator[str]:
        if self.tokenizer is None and self.vocabulary_size < LEAST_VOCABULARY:
            yield f"--vocabulary-size: must be at least {LEAST_VOCABULARY}, got {self.vocabulary_size}"
        yield from self.document_filter.problems()

    @property
    def document_filter(self) -> DocumentFilter:
        """Which documents are kept."""
        return DocumentFilter(self.least_characters, self.most_characters, self.language)
