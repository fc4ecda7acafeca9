"""Look at prepared data as a run reads them: the text of some rows, and statistics of all rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from electra.data.examples import ExampleSet
from electra.data.mixture import BLOCK, Mixture
from electra.data.packing import PackingConfig
from electra.data.shards import Shard, Split, SplitName, TokenData
from electra.data.spans import SPECIALS_ONE_SEGMENT, Span
from electra.data.streams import SEPARATOR, check_stream
from electra.data.tokenizer import load_tokenizer
from electra.errors import DataError

MAX_TOKENS = 50_000_000
"""Maximum tokens that are packed. Of larger data only the first shards are packed, of a mixture those of each
part."""
DOCUMENT_SEPARATOR = " [SEP] "
"""Between two documents of a row."""


@dataclass(frozen=True)
class RowText:
    """A row as a person reads it.

    Attributes:
        location: row, shard, document, part of a mixture, number of tokens.
        segments: the text of one segment or two; `…` where a sentence is cut, `⋯` where sentences are left out,
            and angle quotation marks where a document begins or ends.
        window: whether it is a window of a stream, which has [SEP] only between documents.
    """

    location: str
    segments: list[str]
    window: bool = False


@dataclass(frozen=True)
class Inspection:
    """Some rows, and statistics of all rows.

    Attributes:
        shards: number of shards that were packed, and of all shards.
        lengths: tokens of each row, including special tokens.
        one_segment, full: shares of the rows.
        dropped: share of the tokens that are in no row.
        mixture: the parts of a mixture, and the share of a run's rows of each.
    """

    rows: list[RowText]
    packing: PackingConfig
    shards: tuple[int, int]
    lengths: npt.NDArray[np.int32]
    one_segment: float
    full: float
    dropped: float
    mixture: list[tuple[str, float]]


def inspect_data(
    data: TokenData, packing: PackingConfig, *, split: SplitName, packing_seed: int, examples: int, seed: int
) -> Inspection:
    """Pack a split as a run does, and read some of its rows.

    Args:
        packing_seed: the seed of the run, with which it packs the training part. The held-out part does not
            depend on it.
        examples: number of rows to read.
        seed: decides which rows are read.

    Raises:
        ConfigError, DataError: a run could not read these data either.
    """
    if packing.streams:
        check_stream(data, length=packing.sequence_length, batch_size=1)
    all_shards = (data.train if split == "train" else data.heldout).shards
    parts: list[dict[str, Any]] = data.manifest.get("mixture", []) if split == "train" else []
    sizes = [part["shards"] for part in parts] or [len(all_shards)]
    shards = list(_limit_tokens(all_shards, sizes))
    rows = ExampleSet(Split(shards), packing, seed=packing_seed if split == "train" else 0)
    if len(rows) == 0:
        raise DataError(f"{data.folder}: its {split} part has no text; prepare a larger corpus")
    shares: list[float] = []
    if parts:
        if 0 in (counts := rows.count_examples(sizes)):
            raise DataError(f"{parts[counts.index(0)]['folder']}: this part of the mixture gives no row")
        order = Mixture(counts, tuple(part["weight"] for part in parts))
        row_numbers = order.locate(np.arange(min(examples, len(rows))), seed=seed)[1]
        shares = (order.visits_per_block / BLOCK).tolist()
    else:
        row_numbers = np.random.default_rng(seed).permutation(len(rows))[:examples]
    folders = [part["folder"] for part in parts]
    folder_of_shard = [folder for folder, size in zip(folders, sizes, strict=False) for _ in range(size)]
    tokenizer = load_tokenizer(data.tokenizer_path)
    return Inspection(
        [_read_row(row, rows, shards, folder_of_shard, tokenizer) for row in sorted(row_numbers.tolist())],
        packing,
        (sum(len(shard.tokens) > 0 for shard in shards), len(shards)),
        rows.lengths,
        float((rows.segment_counts == 1).mean()),
        float((rows.lengths >= packing.sequence_length - 1).mean()),
        1 - _count_text_tokens(rows) / sum(len(shard.tokens) for shard in shards),
        list(zip(folders, shares, strict=True)),
    )


def _count_text_tokens(rows: ExampleSet) -> int:
    """Return the tokens of all rows without special tokens."""
    tokens = int(rows.lengths.sum())
    if rows.config.streams:
        return tokens - int(rows.separator_counts.sum())
    if rows.config.packs_documents:
        return tokens - SPECIALS_ONE_SEGMENT * int(rows.span_counts.sum())
    if rows.config.separates_documents:
        tokens -= int((rows.span_counts - 1).sum())
    return tokens - int((rows.segment_counts + 1).sum())


def _limit_tokens(shards: list[Shard], sizes: list[int]) -> Iterator[Shard]:
    """Yield the first shards of each part, and empty shards for the rest, because packing depends on their
    numbers."""
    rest = iter(shards)
    for size in sizes:
        tokens = 0
        for shard in islice(rest, size):
            yield shard if tokens < MAX_TOKENS / len(sizes) else _empty(shard)
            tokens += len(shard.tokens)


def _empty(shard: Shard) -> Shard:
    return replace(
        shard, tokens=shard.tokens[:0], sentence_ends=shard.sentence_ends[:0],
        document_ends=shard.document_ends[:0], unigram=None,
    )  # fmt: skip


def _read_row(
    row: int, rows: ExampleSet, shards: list[Shard], folder_of_shard: list[str], tokenizer: Tokenizer
) -> RowText:
    number = int(rows.find_shards(np.array([row]))[0])
    shard, part = shards[number], f" ({folder_of_shard[number]})" if folder_of_shard else ""
    [both] = rows.segment_spans(np.array([row]))
    if rows.config.streams:
        location = f"row {row:,}: {shard.name}, {rows.lengths[row]:,} tokens"
        return RowText(location, [_read_window(both[0], shard, tokenizer)], window=True)
    segments = [spans for spans in both if spans]
    document = _find_document(shard, segments[0][0][0])
    location = f"row {row:,}: document {document:,} of {shard.name}{part}, {rows.lengths[row]:,} tokens"
    if rows.config.separates_documents or rows.config.packs_documents:  # each span belongs to another document
        texts = [_read_text([span], shard, _find_document(shard, span[0]), tokenizer) for span in segments[0]]
        return RowText(location, [DOCUMENT_SEPARATOR.join(texts)])
    return RowText(location, [_read_text(spans, shard, document, tokenizer) for spans in segments])


def _read_window(spans: list[Span], shard: Shard, tokenizer: Tokenizer) -> str:
    """Return the text of a window of a stream, without the token after it, with which its last span ends."""
    start, length = spans[-1]
    texts = []
    for span in [*spans[:-1], *([(start, length - 1)] if length > 1 else [])]:
        if span[0] == SEPARATOR:
            texts.append("[SEP]")
        else:
            texts.append(_read_text([span], shard, _find_document(shard, span[0]), tokenizer))
    return " ".join(texts)


def _read_text(spans: list[Span], shard: Shard, document: int, tokenizer: Tokenizer) -> str:
    """Return the text of a segment, which is all of one document, with marks at its ends."""
    first_sentence = int(shard.document_ends[document - 1]) if document else 0
    begin = int(shard.sentence_ends[first_sentence - 1]) if first_sentence else 0
    end = int(shard.sentence_ends[shard.document_ends[document] - 1])
    sentence_ends = {0, *shard.sentence_ends[first_sentence : shard.document_ends[document]].tolist(), begin}
    parts = []
    for start, length in spans:
        text = tokenizer.decode(shard.tokens[start : start + length].tolist(), skip_special_tokens=False)
        before = "‹document begins› " if start == begin else "" if start in sentence_ends else "…"
        stop = start + length
        after = " ‹document ends›" if stop == end else "" if stop in sentence_ends else "…"
        if start in sentence_ends:  # a byte-level token contains the space before its word
            text = text.removeprefix(" ")
        parts.append(f"{before}{text}{after}")
    return " ⋯ ".join(parts)


def _find_document(shard: Shard, token: int) -> int:
    sentence = int(np.searchsorted(shard.sentence_ends, token, side="right"))
    return int(np.searchsorted(shard.document_ends, sentence, side="right"))
