"""Gather rows of the index into tensors. Only this file of the package `data` needs torch.

Shapes: B rows of the batch, L columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from electra.data.examples import ExampleSet, TokenSource
from electra.data.sampling import Rows, splitmix
from electra.data.spans import SPECIALS_ONE_SEGMENT, SPECIALS_TWO_SEGMENTS, Span, truncate_spans
from electra.data.streams import SEPARATOR
from electra.data.tokenizer import SpecialTokens

SentenceKind = Literal["none", "next", "order"]
"""What happens to half of the pairs of segments: nothing; a random second segment; the two are swapped."""
UNPAIRED = -1
"""The label of a row with one segment."""


@dataclass(frozen=True)
class StreamState:
    """How the rows of a batch continue those of the batch before, if they are windows of a stream.

    Attributes:
        next_ids_B: int64: the token after each row.
        new_document_B: True: the row does not continue the batch before, but starts again.
        first_row: the number of the first row of this batch among the rows of this process.
    """

    next_ids_B: torch.Tensor
    new_document_B: torch.Tensor
    first_row: int = 0


@dataclass(frozen=True)
class Batch:
    """One batch of text, not yet masked: `[CLS] A [SEP] [PAD]...` or `[CLS] A [SEP] B [SEP] [PAD]...`.

    If A has text of several documents, there is a [SEP] between them; in packed rows, each document has [CLS] and
    [SEP]. Windows of a stream are text only, with a [SEP] after each document.
    """

    input_ids_BL: torch.Tensor
    """int64 token ids."""
    segment_ids_BL: torch.Tensor
    """int64: 0 for [CLS] A [SEP] and for padding, 1 for B [SEP]."""
    lengths_B: torch.Tensor
    """int64: tokens of each row, including [CLS] and [SEP]; the rest is padding."""
    seed: int
    """Seed of the random draws for the whole batch, such as dropout."""
    seeds_B: torch.Tensor | None = None
    """int64: one seed per row, which decides its masks and fakes; None: derived from `seed`."""

    sentences_B: torch.Tensor | None = None
    """int64: 0: the two segments are as in the text; 1: they were changed not to be; -1: the row has one segment.
    None: there is no sentence objective."""
    stream_state: StreamState | None = None
    """None: the rows do not continue those of the batch before."""
    documents_D2: torch.Tensor | None = None
    """int64, always on the CPU: first position (row × L + column) and length of every document of packed rows,
    which are read as if each were alone in its row. None: the rows are not packed."""

    @property
    def row_seeds(self) -> torch.Tensor:
        """The seed of each row, (B,)."""
        if self.seeds_B is not None:
            return self.seeds_B
        return self.seed + torch.arange(len(self.lengths_B), device=self.lengths_B.device)

    def to(self, device: torch.device) -> Batch:
        """Copy the batch to a device. A copy to an accelerator is asynchronous."""
        if device.type == "cpu":
            return self
        copy = partial(_copy_to, device=device)
        ids_BL, segments_BL = copy(self.input_ids_BL), copy(self.segment_ids_BL)
        lengths_B, seeds_B = copy(self.lengths_B), copy(self.row_seeds)
        sentences_B = None if self.sentences_B is None else copy(self.sentences_B)
        state = self.stream_state
        if state is not None:
            state = StreamState(copy(state.next_ids_B), copy(state.new_document_B), state.first_row)
        return Batch(ids_BL, segments_BL, lengths_B, self.seed, seeds_B, sentences_B, state, self.documents_D2)


def _copy_to(tensor: torch.Tensor, *, device: torch.device) -> torch.Tensor:
    """Copy a tensor from pinned memory; a copy from other memory would wait for all work in the queue of the
    device."""
    return tensor.pin_memory().to(device, non_blocking=True)


def collate(
    examples: ExampleSet,
    row_indices: Rows,
    *,
    special: SpecialTokens,
    seed: int,
    trim: bool,
    source: TokenSource = "tokens",
    seeds: npt.NDArray[np.int64] | None = None,
    sentences: SentenceKind = "none",
    reset: bool = True,
    first_row: int = 0,
) -> Batch:
    """Gather rows of an example set into one batch.

    Args:
        examples: the packed split.
        row_indices: (B,) the rows, in this order.
        special: ids of [PAD], [CLS] and [SEP].
        seed: the seed of the batch.
        trim: drop the columns that are padding in every row, so that L is the length of the longest row of the
            batch, which saves work on a CPU. Otherwise L is the `sequence_length` of the examples, the static
            shape that a compiled step needs.
        source: "unigram" reads the corrupted copy of the same text, in the same layout.
        seeds: (B,) the seeds of the rows.
        sentences: what happens to half of the pairs of segments; the seeds of the rows decide which half.
        reset: whether windows of a stream do not continue the batch before.
        first_row: of windows of a stream, as in `StreamState`.

    Raises:
        DataError: the split has no such copy of its text.
    """
    if examples.config.streams:
        return _collate_windows(
            examples, row_indices, special=special, seed=seed, source=source, seeds=seeds, reset=reset,
            first_row=first_row,
        )  # fmt: skip
    segments = examples.segment_spans(row_indices)
    shards_B2 = np.repeat(examples.find_shards(row_indices)[:, None], 2, axis=1)
    labels_B = None
    lengths_B = examples.lengths[row_indices].astype(np.int64)
    if sentences != "none":
        assert seeds is not None
        labels_B = _change_pairs(examples, segments, shards_B2, lengths_B, kind=sentences, seeds=seeds)
    columns = int(lengths_B.max(initial=0)) if trim else examples.config.sequence_length
    ids_BL, segments_BL = _gather(examples, segments, shards_B2, columns, special=special, source=source)
    return Batch(
        input_ids_BL=torch.from_numpy(ids_BL),
        segment_ids_BL=torch.from_numpy(segments_BL),
        lengths_B=torch.from_numpy(lengths_B),
        seed=seed,
        seeds_B=None if seeds is None else torch.from_numpy(seeds),
        sentences_B=None if labels_B is None else torch.from_numpy(labels_B),
        documents_D2=_locate_documents(segments, columns) if examples.config.packs_documents else None,
    )


def _locate_documents(segments: list[tuple[list[Span], list[Span]]], columns: int) -> torch.Tensor:
    """Return the first position and the length of every document of packed rows, (D, 2)."""
    documents = []
    for row, (spans, _) in enumerate(segments):
        start = row * columns
        for _, length in spans:
            documents.append((start, length + SPECIALS_ONE_SEGMENT))
            start += length + SPECIALS_ONE_SEGMENT
    return torch.tensor(documents, dtype=torch.int64).view(-1, 2)


def _gather(
    examples: ExampleSet,
    segments: list[tuple[list[Span], list[Span]]],
    shards_B2: Rows,
    columns: int,
    *,
    special: SpecialTokens,
    source: TokenSource,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the token ids and the segment ids of rows, (B, columns) each."""
    shape = (len(segments), columns)
    ids_BL = np.full(shape, special.pad, dtype=np.int64)
    segments_BL = np.zeros(shape, dtype=np.int64)
    ids_BL[:, :1] = special.classify
    arrays, separated = examples.token_arrays(source), examples.config.separates_documents
    packed = examples.config.packs_documents
    for shards, both, ids_L, segments_L in zip(shards_B2.tolist(), segments, ids_BL, segments_BL, strict=True):
        column = 1
        for number, spans in enumerate(both):
            if not spans:
                continue
            begin, tokens = column, arrays[shards[number]]
            for start, length in spans:
                if separated and column > begin:
                    ids_L[column] = special.separate
                    column += 1
                elif packed and column > begin:
                    ids_L[column : column + 2] = special.separate, special.classify
                    column += 2
                ids_L[column : column + length] = tokens[start : start + length]
                column += length
            ids_L[column] = special.separate
            column += 1
            if number:
                segments_L[begin:column] = number
    return ids_BL, segments_BL


def _collate_windows(
    examples: ExampleSet,
    row_indices: Rows,
    *,
    special: SpecialTokens,
    seed: int,
    source: TokenSource,
    seeds: npt.NDArray[np.int64] | None,
    reset: bool,
    first_row: int,
) -> Batch:
    """Gather windows of a stream into one batch without padding."""
    arrays, length = examples.token_arrays(source), examples.config.sequence_length
    ids_BX = np.empty((len(row_indices), length + 1), np.int64)
    shards, segments = examples.find_shards(row_indices).tolist(), examples.segment_spans(row_indices)
    for shard, (spans, _), ids_X in zip(shards, segments, ids_BX, strict=True):
        column = 0
        for start, count in spans:
            text = special.separate if start == SEPARATOR else arrays[shard][start : start + count]
            ids_X[column : column + count] = text
            column += count
    ids_BL = torch.from_numpy(np.ascontiguousarray(ids_BX[:, :-1]))
    return Batch(
        ids_BL,
        torch.zeros_like(ids_BL),
        torch.full((len(ids_BL),), length),
        seed=seed,
        seeds_B=None if seeds is None else torch.from_numpy(seeds),
        stream_state=StreamState(
            torch.from_numpy(ids_BX[:, -1].copy()), torch.full((len(ids_BL),), reset), first_row
        ),
    )


def _change_pairs(
    examples: ExampleSet,
    segments: list[tuple[list[Span], list[Span]]],
    shards_B2: Rows,
    lengths_B: Rows,
    *,
    kind: SentenceKind,
    seeds: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Change half of the pairs of segments in place, and return the label of each row, (B,).

    A random second segment is the last segment of any example, shortened to the room in the row.
    """
    random_B = splitmix(seeds.view(np.uint64))
    paired_B = np.array([bool(second) for _, second in segments])
    labels_B = np.where(paired_B, (random_B & np.uint64(1)).astype(np.int64), UNPAIRED)
    changed = np.flatnonzero(labels_B == 1)
    others = (splitmix(random_B[changed]) % np.uint64(len(examples))).astype(np.int64)
    segments_of_others = examples.segment_spans(others) if kind == "next" else []
    for index, row in enumerate(changed.tolist()):
        first, second = segments[row]
        if kind == "order":
            segments[row] = second, first
            shards_B2[row] = shards_B2[row, ::-1]
            continue
        room = examples.config.sequence_length - SPECIALS_TWO_SEGMENTS - sum(length for _, length in first)
        other = list(truncate_spans(segments_of_others[index][1] or segments_of_others[index][0], room))
        segments[row] = first, other
        shards_B2[row, 1] = examples.find_shards(others[index : index + 1])[0]
        lengths_B[row] = SPECIALS_TWO_SEGMENTS + sum(length for _, length in (*first, *other))
    return labels_B
