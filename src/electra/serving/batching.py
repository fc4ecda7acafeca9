"""Batches of texts of any length: windows of long texts, sorted by length so that there is little padding.

A network with a memory was trained on a stream of windows, with [SEP] after each document and no [CLS]
(`electra.data.streams`). Its texts are therefore put between two [SEP]s; the first one marks the start of a
document.

Shapes: B batch, L length. In this module L counts special tokens; elsewhere in `serving` it does not.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar, Literal
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, DataError, for_caller
from electra.export.onnx.model import OnnxModel
from electra.export.pretrained import Pretrained
from electra.modeling.encoders.base import attention_mask
from electra.modeling.encoders.relative import Memory

CPU_BATCH_TOKENS = 2048
"""Tokens of a batch on a CPU: enough for fast matrix products. With more, the hidden states do not fit in the
cache."""
DEVICE_BATCH_TOKENS = 16_384
"""Tokens of a batch on other devices: 32 inputs of 512."""

CPU_OVERHEAD_TOKENS = 32
"""The fixed cost of a batch on a CPU, in tokens: 8 ms for 12 layers, at 0.24 ms per token."""
DEVICE_OVERHEAD_TOKENS = 8192
"""The fixed cost of a batch on other devices, where kernel launches take as long as thousands of tokens."""

logger = logging.getLogger(__name__)

Forward = Callable[..., Tensor]
"""A function from ids (B, L) and an attention mask (B, L) or None to values (B, L, ...). For texts that are
read with memory it also gets a `Memory`, as the keyword argument `memory`."""

LongTextMode = Literal["memory", "windows"]
"""How texts that are longer than the network's input are read (`Batcher`)."""


@dataclass(frozen=True)
class Window:
    """A part of a text that is one row of a batch, and the tokens whose values are kept.

    Attributes:
        text: the index of the text.
        start, end: the range of tokens that the network reads.
        keep_start, keep_end: the range of tokens whose values are kept.
        before, after: the number of special tokens at the start and at the end of the row.
    """

    text: int
    start: int
    end: int
    keep_start: int
    keep_end: int
    before: int = 1
    after: int = 1

    @property
    def length(self) -> int:
        """The length of the row, with special tokens."""
        return self.before + self.end - self.start + self.after

    @property
    def kept(self) -> slice:
        """Where the kept tokens are in the text."""
        return slice(self.keep_start, self.keep_end)

    @property
    def kept_in_row(self) -> slice:
        """Where the kept tokens are in the row."""
        shift = self.before - self.start
        return slice(self.keep_start + shift, self.keep_end + shift)


@dataclass(frozen=True)
class WindowBatch:
    """Windows that go through the network together.

    Attributes:
        ids_BL: token ids, padded at the end of the rows.
        mask_BL: False at padding. None if there is no padding.
        memory: the keyword argument `memory` of the network; empty if the texts are read without memory.
    """

    windows: list[Window]
    ids_BL: Tensor
    mask_BL: Tensor | None
    memory: dict[str, Memory]


class TrainedLengthCheck:
    """Warns if an input is longer than those of the training: once for each loaded network.

    Rotary positions exist for any length, but a network that was not trained at them can be worse there.
    """

    warned: ClassVar[WeakSet[Any]] = WeakSet()

    def __init__(self, pretrained: Pretrained | OnnxModel) -> None:
        self.trained_length = pretrained.trained_length or pretrained.max_length
        self.network = pretrained.session if isinstance(pretrained, OnnxModel) else pretrained.encoder

    def expect_longer(self) -> None:
        """Do not warn, because the caller reports what longer inputs do."""
        self.warned.add(self.network)

    def __call__(self, length: int) -> None:
        """Check the length of a row, in tokens."""
        if length <= self.trained_length or self.network in self.warned:
            return
        self.warned.add(self.network)
        logger.warning(
            for_caller(
                "An input of %s tokens is longer than those that the network was trained on (%s), and may be read "
                "worse; read fewer tokens at once (--max-length %s), or continue its training with "
                "--packing.sequence_length %s and --init.from RUN or --init.discriminator MODEL"
            ),
            f"{length:,}", f"{self.trained_length:,}", self.trained_length, length,
        )  # fmt: skip


class Batcher:
    """Puts texts through a network in batches of texts of similar length.

    Attributes:
        max_tokens: the most tokens of a text that are read at once.
        trained_tokens: the same in training, if that is less.

    Args:
        device: the device of the network.
        long: how a text that is longer than the network's input is read. "windows": in windows that overlap by
            half; the value of each token is taken from the window in which it has the most context. "memory": in
            consecutive windows, each with the memory of the windows before it. None: with memory if the network
            has one.

    Raises:
        CheckpointError: the model's inputs are too short for any text, or `long` is "memory" and it has no memory.
    """

    def __init__(
        self, pretrained: Pretrained | OnnxModel, *, device: str | torch.device, long: LongTextMode | None = None
    ) -> None:
        self.device = torch.device(device)
        self.special = special_tokens(pretrained.tokenizer)
        self.memory_length = pretrained.memory_length
        if long == "memory" and not self.memory_length:
            raise CheckpointError(
                "the model has no memory to read long texts with; read them in windows (--long windows)"
            )
        self.long: LongTextMode = long or ("memory" if self.memory_length else "windows")
        self.start_token = self.special.separate if pretrained.stream else self.special.classify
        self.max_tokens = pretrained.max_length - 2  # two are special tokens
        self.length_check = TrainedLengthCheck(pretrained)
        self.trained_tokens = min(self.max_tokens, self.length_check.trained_length - 2)
        if self.max_tokens < 1:
            raise CheckpointError(
                f"the model's inputs of {pretrained.max_length} tokens are too short for any text"
            )

    def count_windowed(self, lengths: Iterable[int]) -> int:
        """Count the texts that are read in windows, because they are too long for one input.

        Args:
            lengths: the lengths of the texts, in tokens.
        """
        return sum(length > self.max_tokens for length in lengths) if self.long == "windows" else 0

    def outputs(
        self, ids: Sequence[list[int]], network: Forward, *, batch_tokens: int | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """Each window and the network's values for its row (L, ...), special tokens included.

        The order is not that of the texts: texts that are read with memory come first, then the longest windows.

        Args:
            network: such as `Backend.hidden_states`.
            ids, batch_tokens: the arguments of `batches`.
        """
        for batch in self.batches(ids, batch_tokens=batch_tokens):
            with torch.inference_mode():
                values = network(batch.ids_BL, batch.mask_BL, **batch.memory).float().cpu().numpy()
            for window, row in zip(batch.windows, values, strict=True):
                yield window, row[: window.length]

    def batches(self, ids: Sequence[list[int]], *, batch_tokens: int | None = None) -> Iterator[WindowBatch]:
        """The windows of all texts in batches.

        Each batch must go through the network before the next one is requested, because the network updates the
        `Memory` that the next batch uses.

        Args:
            ids: the token ids of each text, without special tokens.
            batch_tokens: the maximum number of tokens of a batch, padding included. None: `CPU_BATCH_TOKENS` or
                `DEVICE_BATCH_TOKENS`.
        """
        budget = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else DEVICE_BATCH_TOKENS)
        with_memory = {
            i for i, tokens in enumerate(ids) if self.long == "memory" and len(tokens) > self.max_tokens
        }
        yield from self._batches_with_memory(ids, with_memory, budget)
        others = [(i, len(tokens)) for i, tokens in enumerate(ids) if i not in with_memory]
        ordered = [window for i, tokens in others for window in overlapping_windows(i, tokens, self.max_tokens)]
        ordered.sort(key=lambda window: window.length, reverse=True)
        if ordered:
            self.length_check(ordered[0].length)
        overhead = CPU_OVERHEAD_TOKENS if self.device.type == "cpu" else DEVICE_OVERHEAD_TOKENS
        for first, end in pairwise(batch_boundaries([window.length for window in ordered], budget, overhead)):
            yield self._batch(ids, ordered[first:end])

    def _batches_with_memory(
        self, ids: Sequence[list[int]], texts: Collection[int], budget: int
    ) -> Iterator[WindowBatch]:
        """Consecutive windows of several texts; the longest texts are the first rows, so that the last rows end
        first."""
        length = self.max_tokens + 2
        ordered = sorted(texts, key=lambda text: len(ids[text]), reverse=True)
        batch_size = max(1, budget // length)
        for first in range(0, len(ordered), batch_size):
            rows = [
                consecutive_windows(text, len(ids[text]), length) for text in ordered[first : first + batch_size]
            ]
            memory = Memory(self.memory_length)
            for step in range(len(rows[0])):
                batch = [row[step] for row in rows if len(row) > step]
                if memory.states_YBMD is not None:
                    memory.states_YBMD = memory.states_YBMD[:, : len(batch)]
                yield self._batch(ids, batch, memory=memory)

    def _row(self, ids: list[int], window: Window) -> list[int]:
        before, after = [self.start_token] * window.before, [self.special.separate] * window.after
        return [*before, *ids[window.start : window.end], *after]

    def _batch(self, ids: Sequence[list[int]], batch: list[Window], **memory: Memory) -> WindowBatch:
        """A batch of windows, of which the first is the longest."""
        rows = [self._row(ids[window.text], window) for window in batch]
        lengths_B = np.array([len(row) for row in rows])
        length = int(lengths_B[0])
        ids_BL = np.full((len(rows), length), self.special.pad)
        ids_BL[np.arange(length) < lengths_B[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64)
        mask_BL = attention_mask(torch.from_numpy(lengths_B).to(self.device), length)
        return WindowBatch(batch, torch.from_numpy(ids_BL).to(self.device), mask_BL, memory)


def batch_boundaries(lengths: Sequence[int], budget: int, overhead: int) -> list[int]:
    """Where to split sorted rows into batches at the lowest total cost: 0, the end of each batch.

    A batch costs its number of rows times the length of its longest row, plus `overhead`. The minimum is found by
    dynamic programming from the last row to the first.

    Args:
        lengths: the lengths of the rows, in descending order.
        budget: the maximum number of tokens of a batch, padding included. A longer row is a batch of its own.
        overhead: the fixed cost of a batch, in tokens.
    """
    lengths_n = np.asarray(lengths, np.int64)
    costs, ends = np.zeros(len(lengths) + 1), [0] * len(lengths)  # costs[i]: of rows i and later
    for first in range(len(lengths) - 1, -1, -1):
        most = min(max(1, budget // int(lengths_n[first])), len(lengths) - first)
        total = lengths_n[first] * np.arange(1, most + 1) + costs[first + 1 : first + 1 + most]
        best = int(total.argmin())
        costs[first], ends[first] = total[best] + overhead, first + 1 + best
    boundaries = [0]
    while boundaries[-1] < len(lengths):
        boundaries.append(ends[boundaries[-1]])
    return boundaries


def overlapping_windows(text: int, tokens: int, size: int) -> list[Window]:
    """Windows of at most `size` tokens that overlap by half.

    Neighboring windows share their overlap: the first keeps the left half of it, the second the right half. An
    empty text has one empty window.

    Args:
        text: the index of the text.
        tokens: its number of tokens.
    """
    step = max(1, size // 2)
    starts = [*range(0, max(tokens - size, 0), step), max(tokens - size, 0)]
    borders = [0, *((before + size + start) // 2 for before, start in pairwise(starts)), tokens]
    return [
        Window(text, start, min(start + size, tokens), *keep)
        for start, keep in zip(starts, pairwise(borders), strict=True)
    ]


def consecutive_windows(text: int, tokens: int, length: int) -> list[Window]:
    """Consecutive windows of `length` tokens of a text with one special token before and one after it.

    The last window may contain nothing but the special token after the text.

    Args:
        text: the index of the text.
        tokens: its number of tokens.
    """
    windows = []
    for first in range(0, tokens + 2, length):
        start, end = max(0, first - 1), min(first + length - 1, tokens)
        begins, ends = first == 0, first + length >= tokens + 2
        windows.append(Window(text, start, end, start, end, before=int(begins), after=int(ends)))
    return windows


def check_texts(texts: Sequence[object], *, parts: bool = False, first: int = 1) -> None:
    """Check that `texts` is a list of texts, not one string, whose characters would be read as texts.

    Args:
        parts: whether a text may be a list of strings, such as a pair.
        first: the number of the first text in messages.

    Raises:
        TypeError: it is one string or an iterator, or a text is no string.
        DataError: a text cannot be written as UTF-8.
    """
    if isinstance(texts, str):
        raise TypeError(f"give a list of texts: [{texts[:20]!r}]")
    if isinstance(texts, Iterator):
        raise TypeError("give a list of texts, not an iterator: list(texts)")
    for number, text in enumerate(texts, start=first):
        for part in text if parts and isinstance(text, list | tuple) else (text,):
            if not isinstance(part, str):
                raise TypeError(f"text {number} is {part!r}, not a string")
            try:
                part.encode()
            except UnicodeEncodeError as error:  # half a surrogate pair, as Python reads bytes that are no UTF-8
                place = f"character {error.start + 1}"
                raise DataError(f"text {number}: broken Unicode at {place}; it must be valid UTF-8") from error
