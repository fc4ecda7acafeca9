"""`electra data stats`: what prepared data consist of."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from tokenizers import Tokenizer

from electra.data.mixture import BLOCK, quotas
from electra.data.shards import SPLITS, Split, TokenData
from electra.data.tokenizer import load_tokenizer

QUANTILES = (0.05, 0.5, 0.95)
COMMON = 20


@dataclass(frozen=True)
class StatsConfig:
    """What to look at."""

    data: tyro.conf.Positional[Path]
    """A folder that `electra prepare` or `electra data merge` made."""


@dataclass(frozen=True)
class DataStats:
    """Counts of both parts, and how long documents and sentences are."""

    data: TokenData
    tokenizer: Tokenizer

    def __rich__(self) -> RenderableType:
        data, statistics = self.data, self.data.manifest["statistics"]
        table = Table("", *SPLITS, title=f"{data.folder} ({data.fingerprint[:12]})", title_justify="left")
        splits = (data.train, data.heldout)
        for name in ("documents", "sentences", "tokens"):
            table.add_row(name, *(f"{getattr(split, name):,}" for split in splits))
        percent = ", ".join(f"{quantile:.0%}" for quantile in QUANTILES)
        table.add_row(f"tokens of a document: {percent}", *(_quantiles(_documents(split)) for split in splits))
        table.add_row(f"tokens of a sentence: {percent}", *(_quantiles(_sentences(split)) for split in splits))
        order, total = np.argsort(-data.unigram_counts)[:COMMON], max(1, int(data.unigram_counts.sum()))
        common = ", ".join(
            f"{self.tokenizer.id_to_token(int(i))} {data.unigram_counts[i] / total:.1%}" for i in order
        )
        used = int((data.unigram_counts > 0).sum())
        return Group(
            table,
            f"characters a token {statistics['characters_per_token']:.2f}; unknown "
            f"{statistics['unknown_share']:.3%}; duplicates {statistics['duplicate_share']:.2%}; rejected lines "
            f"{statistics['rejects']:,}",
            f"{used:,} of {data.vocabulary_size:,} entries of the vocabulary occur; the commonest: {common}",
            *self._mixture(),
            *(f"warning: {warning}" for warning in data.manifest["warnings"]),
        )

    def _mixture(self) -> Iterator[str]:
        """The share of the rows that each part has."""
        if parts := self.data.manifest.get("mixture"):
            shares = quotas([part["weight"] for part in parts]) / BLOCK
            for part, share in zip(parts, shares, strict=True):
                yield f"{share:.1%} of the rows are of {part['folder']}"


def run(config: StatsConfig) -> DataStats:
    """Show how much prepared data hold: documents, sentences, tokens, their lengths, the commonest tokens.

    Examples:
        electra data stats DATA
        electra data stats DATA | tee data.txt
    """
    data = TokenData.open(config.data, verify=False)
    return DataStats(data, load_tokenizer(data.tokenizer_path))


def _documents(split: Split) -> np.ndarray:
    """Tokens of each document."""
    ends = [shard.sentence_ends[shard.document_ends - 1] for shard in split.shards if len(shard.document_ends)]
    return np.concatenate([np.diff(one, prepend=0) for one in ends]) if ends else np.zeros(0, np.int64)


def _sentences(split: Split) -> np.ndarray:
    """Tokens of each sentence."""
    lengths = [np.diff(shard.sentence_ends, prepend=0) for shard in split.shards]
    return np.concatenate(lengths) if lengths else np.zeros(0, np.int64)


def _quantiles(lengths: np.ndarray) -> str:
    return ", ".join(f"{value:,.0f}" for value in np.quantile(lengths, QUANTILES)) if len(lengths) else "–"
