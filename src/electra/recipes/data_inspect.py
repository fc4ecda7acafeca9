"""`electra data inspect`: prepared data as a run will see it, row by row and in figures."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer

from electra.config import load_config
from electra.data import tokenizer as tokenizers
from electra.data.examples import ExampleSet
from electra.data.packing import PackingConfig
from electra.data.pieces import Piece
from electra.data.shards import Shard, Split, SplitName, TokenData
from electra.errors import ConfigError, DataError
from electra.recipes.pretrain_config import PretrainConfig

ENOUGH_TOKENS = 50_000_000
"""What is packed for the figures; of larger data only the first shards."""
BINS = 16
BAR = 40
"""Characters of the longest bar."""


@dataclass(frozen=True)
class InspectConfig:
    """Which data to look at, and how it is packed."""

    data: tyro.conf.Positional[Path]
    """The folder that `electra prepare` made."""
    preset: str = "electra-small"
    """The preset or TOML file whose packing decides; change it with --packing.sequence_length and the like."""
    split: SplitName = "train"
    """The part for training, or the one that is held out."""
    examples: int = 4
    """Rows to show."""
    seed: int = 0
    """Which rows are shown."""
    overrides: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Any setting of the config, as `--packing.name VALUE`."""


@dataclass(frozen=True)
class ShownRow:
    """A row as a person reads it.

    Attributes:
        where: row, shard, document, number of tokens.
        segments: the text of one segment or two; `…` where a sentence is cut, `⋯` where sentences are left out,
            and in angle brackets where a document begins and ends.
    """

    where: str
    segments: list[str]

    def __rich__(self) -> Text:
        text = Text().append(f"{self.where}\n", "dim").append("[CLS] ", "bold cyan")
        for segment, style in zip(self.segments, ("", "green"), strict=False):
            text.append(segment, style).append(" [SEP] ", "bold cyan")
        return text.append("\n")


@dataclass(frozen=True)
class Inspection:
    """Some rows, and figures of all of them.

    Attributes:
        shards: how many were packed, and how many there are.
        lengths: tokens of each row, special ones included.
        one_segment, full: shares of the rows.
        dropped: share of the tokens that stand in no row.
    """

    rows: list[ShownRow]
    packing: PackingConfig
    shards: tuple[int, int]
    lengths: npt.NDArray[np.int32]
    one_segment: float
    full: float
    dropped: float

    def __rich__(self) -> RenderableType:
        packed, present = self.shards
        some = "" if packed == present else f" (of the first {packed:,} of {present:,} shards)"
        padding = 1 - self.lengths.mean() / self.packing.sequence_length
        facts = Table(box=None, show_header=False, pad_edge=False)
        facts.add_column(style="dim")
        facts.add_column()
        for name, value in (
            ("rows", f"{len(self.lengths):,}{some}"),
            (
                "tokens a row",
                f"{self.lengths.mean():.1f} of {self.packing.sequence_length}, {padding:.1%} padding",
            ),
            ("one segment", f"{self.one_segment:.1%} of the rows"),
            ("full rows", f"{self.full:.1%} (no more than one token short)"),
            ("tokens in no row", f"{self.dropped:.1%} (what the original's builder drops)"),
        ):
            facts.add_row(name, value)
        return Group(*self.rows, facts, "", *self._histogram())

    def _histogram(self) -> Iterator[str]:
        longest = self.packing.sequence_length
        edges = np.unique(np.linspace(3, longest + 1, BINS + 1).astype(int))
        counts, _ = np.histogram(self.lengths, edges)
        yield "tokens a row, [CLS] and [SEP] included"
        for low, high, count in zip(edges[:-1], edges[1:] - 1, counts, strict=True):
            bar = "█" * round(BAR * count / max(counts.max(), 1))
            share = count / len(self.lengths)
            yield f"  {low:5,}–{high:<5,} {bar or ('▏' if count else '')} {count:,} ({share:.1%})"


def run(config: InspectConfig) -> Inspection:
    """Show rows of prepared data as a run will see them, and a histogram of their lengths.

    Examples:
        electra data inspect DATA
        electra data inspect DATA --split heldout --packing.sequence_length 512 --packing.builder original
    """
    settings = load_config(PretrainConfig, config.preset, config.overrides)
    for name in ("examples", "seed"):
        if getattr(config, name) < 0:
            raise ConfigError(f"--{name}: must not be negative, got {getattr(config, name)}")
    data = TokenData.open(config.data, verify=False)
    split: Split = getattr(data, config.split)
    shards = list(_enough(split.shards))
    examples = ExampleSet(
        Split(shards), settings.packing, seed=settings.train.seed if config.split == "train" else 0
    )  # as a run packs it
    if len(examples) == 0:
        raise DataError(f"{config.data}: its {config.split} part has no text; prepare a larger corpus")
    chosen = np.random.default_rng(config.seed).permutation(len(examples))[: config.examples]
    tokenizer = tokenizers.load(data.tokenizer_path)
    segments = examples.segment_counts
    text_tokens = int(examples.lengths.sum()) - int((segments + 1).sum())
    return Inspection(
        [_shown(row, examples, shards, tokenizer) for row in sorted(chosen.tolist())],
        settings.packing,
        (len(shards), len(split.shards)),
        examples.lengths,
        float((segments == 1).mean()),
        float((examples.lengths >= settings.packing.sequence_length - 1).mean()),
        1 - text_tokens / sum(len(shard.tokens) for shard in shards),
    )


def _enough(shards: list[Shard]) -> Iterator[Shard]:
    tokens = 0
    for shard in shards:
        if tokens < ENOUGH_TOKENS:
            yield shard
        tokens += len(shard.tokens)


def _shown(row: int, examples: ExampleSet, shards: list[Shard], tokenizer: Tokenizer) -> ShownRow:
    shard = shards[int(examples.shards_of(np.array([row]))[0])]
    [both] = examples.segments(np.array([row]))
    segments = [pieces for pieces in both if pieces]
    document = int(np.searchsorted(shard.document_ends, _sentence(shard, segments[0][0][0]), side="right"))
    where = f"row {row:,}: document {document:,} of {shard.name}, {examples.lengths[row]:,} tokens"
    return ShownRow(where, [_text(pieces, shard, document, tokenizer) for pieces in segments])


def _text(pieces: list[Piece], shard: Shard, document: int, tokenizer: Tokenizer) -> str:
    """A segment's text with its boundaries."""
    first_sentence = int(shard.document_ends[document - 1]) if document else 0
    begin = int(shard.sentence_ends[first_sentence - 1]) if first_sentence else 0
    end = int(shard.sentence_ends[shard.document_ends[document] - 1])
    sentence_ends = {0, *shard.sentence_ends[first_sentence : shard.document_ends[document]].tolist(), begin}
    parts = []
    for start, length in pieces:
        text = tokenizer.decode(shard.tokens[start : start + length].tolist(), skip_special_tokens=False)
        before = "‹document begins› " if start == begin else "" if start in sentence_ends else "…"
        stop = start + length
        after = " ‹document ends›" if stop == end else "" if stop in sentence_ends else "…"
        parts.append(f"{before}{text}{after}")
    return " ⋯ ".join(parts)


def _sentence(shard: Shard, token: int) -> int:
    return int(np.searchsorted(shard.sentence_ends, token, side="right"))
