"""`electra data inspect`: prepared data as a run will see it, row by row and in figures."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer

from electra.config import load_config
from electra.data.examples import ExampleSet
from electra.data.mixture import BLOCK, Mixture
from electra.data.packing import PackingConfig
from electra.data.shards import Shard, Split, SplitName, TokenData
from electra.data.spans import Piece
from electra.data.streams import SEPARATOR, check_stream
from electra.data.tokenizer import load_tokenizer
from electra.errors import ConfigError, DataError

ENOUGH_TOKENS = 50_000_000
"""What is packed for the figures; of larger data only the first shards, of a mixture those of each part."""
SEPARATED = " [SEP] "
"""Between two documents of a row."""
ORIGINAL = "what the original's builder drops"
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
        where: row, shard, document, part of a mixture, number of tokens.
        segments: the text of one segment or two; `…` where a sentence is cut, `⋯` where sentences are left out,
            and in angle brackets where a document begins and ends.
        window: it is one of a stream, which has [SEP] between documents alone.
    """

    where: str
    segments: list[str]
    window: bool = False

    def __rich__(self) -> Text:
        text = Text().append(f"{self.where}\n", "dim")
        if self.window:
            return text.append(self.segments[0]).append("\n")
        text.append("[CLS] ", "bold cyan")
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
        mixture: the parts of a mixture, and the share of a run's rows that each has.
    """

    rows: list[ShownRow]
    packing: PackingConfig
    shards: tuple[int, int]
    lengths: npt.NDArray[np.int32]
    one_segment: float
    full: float
    dropped: float
    mixture: list[tuple[str, float]]

    def __rich__(self) -> RenderableType:
        packed, present = self.shards
        some = "" if packed == present else f" (of {packed:,} of {present:,} shards)"
        streams = self.packing.streams
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
            ("tokens in no row", f"{self.dropped:.1%} ({'at the ends of shards' if streams else ORIGINAL})"),
        ):
            facts.add_row(name, value)
        if self.mixture:
            shares = ", ".join(f"{share:.1%} of {folder}" for folder, share in self.mixture)
            facts.add_row("mixture", f"a run's rows are {shares}; the figures here count every row once")
        return Group(*self.rows, facts, *([] if streams else ["", *self._histogram()]))

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

    Of a mixture rows are drawn by weight.

    Examples:
        electra data inspect DATA
        electra data inspect DATA --split heldout --packing.sequence_length 512 --packing.builder original
    """
    from electra.pretraining.config import PretrainConfig

    settings = load_config(PretrainConfig, config.preset, config.overrides)
    for name in ("examples", "seed"):
        if getattr(config, name) < 0:
            raise ConfigError(f"--{name}: must not be negative, got {getattr(config, name)}")
    data = TokenData.open(config.data, verify=False)
    if settings.packing.streams:  # as a run refuses them, whatever its batch
        check_stream(data, length=settings.packing.sequence_length, batch_size=1)
    split: Split = getattr(data, config.split)
    parts = data.manifest.get("mixture", []) if config.split == "train" else []
    sizes = [part["shards"] for part in parts] or [len(split.shards)]
    shards = list(_enough(split.shards, sizes))
    examples = ExampleSet(
        Split(shards), settings.packing, seed=settings.train.seed if config.split == "train" else 0
    )  # as a run packs it
    if len(examples) == 0:
        raise DataError(f"{config.data}: its {config.split} part has no text; prepare a larger corpus")
    if parts:
        if 0 in (counts := examples.counts(sizes)):
            raise DataError(f"{parts[counts.index(0)]['folder']}: this part of the mixture gives no row")
        order = Mixture(counts, tuple(part["weight"] for part in parts))
        chosen = order.locate(np.arange(min(config.examples, len(examples))), seed=config.seed)[1]
        shares = (order.quotas / BLOCK).tolist()
    else:
        chosen, shares = np.random.default_rng(config.seed).permutation(len(examples))[: config.examples], []
    folders = [part["folder"] for part in parts]
    from_folders = [folder for folder, size in zip(folders, sizes, strict=False) for _ in range(size)]
    tokenizer = load_tokenizer(data.tokenizer_path)
    segments = examples.segment_counts
    text_tokens = int(examples.lengths.sum())
    if settings.packing.streams:
        text_tokens -= int(examples.separators.sum())
    else:
        text_tokens -= int((segments + 1).sum())
    if settings.packing.separates_documents:
        text_tokens -= int((examples.piece_counts - 1).sum())
    return Inspection(
        [_shown(row, examples, shards, from_folders, tokenizer) for row in sorted(chosen.tolist())],
        settings.packing,
        (sum(len(shard.tokens) > 0 for shard in shards), len(shards)),
        examples.lengths,
        float((segments == 1).mean()),
        float((examples.lengths >= settings.packing.sequence_length - 1).mean()),
        1 - text_tokens / sum(len(shard.tokens) for shard in shards),
        list(zip(folders, shares, strict=True)),
    )


def _enough(shards: list[Shard], sizes: list[int]) -> Iterator[Shard]:
    """The first shards of each part of so many; empty ones for the others, since packing goes by their number."""
    rest = iter(shards)
    for size in sizes:
        tokens = 0
        for shard in islice(rest, size):
            yield shard if tokens < ENOUGH_TOKENS / len(sizes) else _emptied(shard)
            tokens += len(shard.tokens)


def _emptied(shard: Shard) -> Shard:
    return replace(
        shard, tokens=shard.tokens[:0], sentence_ends=shard.sentence_ends[:0],
        document_ends=shard.document_ends[:0], unigram=None,
    )  # fmt: skip


def _shown(
    row: int, examples: ExampleSet, shards: list[Shard], folders: list[str], tokenizer: Tokenizer
) -> ShownRow:
    number = int(examples.shards_of(np.array([row]))[0])
    shard, part = shards[number], f" ({folders[number]})" if folders else ""
    [both] = examples.segments(np.array([row]))
    if examples.config.streams:
        where = f"row {row:,}: {shard.name}, {examples.lengths[row]:,} tokens"
        return ShownRow(where, [_window(both[0], shard, tokenizer)], window=True)
    segments = [pieces for pieces in both if pieces]
    document = _document(shard, segments[0][0][0])
    where = f"row {row:,}: document {document:,} of {shard.name}{part}, {examples.lengths[row]:,} tokens"
    if examples.config.separates_documents:  # each piece is of a document of its own
        texts = [_text([piece], shard, _document(shard, piece[0]), tokenizer) for piece in segments[0]]
        return ShownRow(where, [SEPARATED.join(texts)])
    return ShownRow(where, [_text(pieces, shard, document, tokenizer) for pieces in segments])


def _window(pieces: list[Piece], shard: Shard, tokenizer: Tokenizer) -> str:
    """The text of a window of a stream, without the token behind it, which its last piece ends with."""
    start, length = pieces[-1]
    texts = []
    for piece in [*pieces[:-1], *([(start, length - 1)] if length > 1 else [])]:
        separator = piece[0] == SEPARATOR
        texts.append("[SEP]" if separator else _text([piece], shard, _document(shard, piece[0]), tokenizer))
    return " ".join(texts)


def _document(shard: Shard, token: int) -> int:
    return int(np.searchsorted(shard.document_ends, _sentence(shard, token), side="right"))


def _text(pieces: list[Piece], shard: Shard, document: int, tokenizer: Tokenizer) -> str:
    """The text of a segment, all of one document, with its boundaries."""
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
        if start in sentence_ends:  # a byte-level token holds the space before its word
            text = text.removeprefix(" ")
        parts.append(f"{before}{text}{after}")
    return " ⋯ ".join(parts)


def _sentence(shard: Shard, token: int) -> int:
    return int(np.searchsorted(shard.sentence_ends, token, side="right"))
