"""`electra data stats`: count documents, sentences and tokens of prepared data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Group, RenderableType
from rich.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from electra.data.shards import TokenData

QUANTILES = (0.05, 0.5, 0.95)
TOKENS_SHOWN = 20


@dataclass(frozen=True)
class StatsConfig:
    """The command line of `electra data stats`."""

    data: tyro.conf.Positional[Path]
    """Folder that electra prepare or electra data merge made."""


@dataclass(frozen=True)
class DataStats:
    """Statistics of both splits: counts, lengths of documents and sentences, and the most frequent tokens."""

    data: TokenData
    tokenizer: Tokenizer

    def __rich__(self) -> RenderableType:
        from electra.data.shards import SPLITS

        data, statistics = self.data, self.data.manifest["statistics"]
        table = Table("", *SPLITS, title=f"{data.folder} ({data.fingerprint[:12]})", title_justify="left")
        splits = (data.train, data.heldout)
        for name in ("documents", "sentences", "tokens"):
            table.add_row(name, *(f"{getattr(split, name):,}" for split in splits))
        percent = ", ".join(f"{quantile:.0%}" for quantile in QUANTILES)
        table.add_row(f"tokens per document: {percent}", *(_quantiles(split.document_lengths) for split in splits))
        table.add_row(f"tokens per sentence: {percent}", *(_quantiles(split.sentence_lengths) for split in splits))
        counts = data.unigram_counts
        total = max(1, int(counts.sum()))
        frequent = ", ".join(
            f"{self.tokenizer.id_to_token(int(token))} {counts[token] / total:.1%}"
            for token in (-counts).argsort()[:TOKENS_SHOWN]
        )
        used = int((counts > 0).sum())
        return Group(
            table,
            f"characters per token {statistics['characters_per_token']:.2f}; unknown "
            f"{statistics['unknown_share']:.3%}; duplicates {statistics['duplicate_share']:.2%}; rejected lines "
            f"{statistics['rejects']:,}",
            f"{used:,} of {data.vocabulary_size:,} entries of the vocabulary occur; the most frequent: {frequent}",
            *self._describe_mixture(),
            *(f"warning: {warning}" for warning in data.manifest["warnings"]),
        )

    def _describe_mixture(self) -> Iterator[str]:
        """Yield the share of the rows of each part."""
        from electra.data.mixture import BLOCK, visits_per_block

        if parts := self.data.manifest.get("mixture"):
            shares = visits_per_block([part["weight"] for part in parts]) / BLOCK
            for part, share in zip(parts, shares, strict=True):
                yield f"{share:.1%} of the rows are from {part['folder']}"


def run(config: StatsConfig) -> DataStats:
    """Count documents, sentences and tokens of prepared data, and show their lengths and the most frequent tokens.

    Examples:
        electra data stats DATA
        electra data stats DATA | tee data.txt
    """
    from electra.data.shards import TokenData
    from electra.data.tokenizer import load_tokenizer

    data = TokenData.open(config.data, verify=False)
    return DataStats(data, load_tokenizer(data.tokenizer_path))


def _quantiles(lengths: NDArray[Any]) -> str:
    import numpy as np

    return ", ".join(f"{value:,.0f}" for value in np.quantile(lengths, QUANTILES)) if len(lengths) else "–"
