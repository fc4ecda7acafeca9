"""Texts of any length through a network in full batches.

A network with a memory was trained on a stream, window behind window, with [SEP] behind each document and no [CLS]
(`electra.data.streams`). So its texts stand between two [SEP]s: the one before says that a document begins here.

Shapes: B batch, L length. Here L counts special tokens, elsewhere in `serving` the tokens of the text alone.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError
from electra.export.huggingface import Pretrained
from electra.export.onnx.model import OnnxModel
from electra.modeling.encoders.bert import attention_mask
from electra.modeling.encoders.relative import Memory

CPU_BATCH_TOKENS = 2048
"""Tokens of a batch on a CPU: enough for the products' full speed; with more the states leave the cache."""
DEVICE_BATCH_TOKENS = 16_384
"""Tokens of a batch elsewhere: 32 inputs of 512."""

CPU_OVERHEAD_TOKENS = 32
"""Tokens that cost on a CPU what a batch costs beside its tokens: 8 ms for 12 layers, at 0.24 ms a token."""
DEVICE_OVERHEAD_TOKENS = 8192
"""The same elsewhere, where starting a network takes as long as thousands of tokens."""

Forward = Callable[..., Tensor]
"""From ids (B, L) and an attention mask (B, L) or None to values (B, L, ...); of texts that are read with memory,
also from a `Memory`, by the name `past`."""

LongTextMode = Literal["memory", "windows"]
"""How a text is read that is longer than the network's input."""


@dataclass(frozen=True)
class Window:
    """A part of a text that goes through the network at once, and the tokens whose values are kept.

    Attributes:
        text: the text's number.
        start, end: the tokens that are read.
        keep_start, keep_end: the tokens of which the values are kept.
        before, after: special tokens of its row, in front and at the end.
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
        """Tokens of its row, special ones with them."""
        return self.before + self.end - self.start + self.after

    @property
    def kept(self) -> slice:
        """The kept tokens in the text."""
        return slice(self.keep_start, self.keep_end)

    @property
    def kept_in_row(self) -> slice:
        """The kept tokens in the row of the window."""
        first = self.before - self.start
        return slice(self.keep_start + first, self.keep_end + first)


@dataclass(frozen=True)
class WindowBatch:
    """Windows as a network reads them at once.

    Attributes:
        ids_BL: padded behind the rows' ends, where values mean nothing.
        mask_BL: True at tokens; None: there is no padding.
        past: what the network remembers, by the name `past`; empty where nothing is.
    """

    windows: list[Window]
    ids_BL: Tensor
    mask_BL: Tensor | None
    past: dict[str, Memory]


class Batcher:
    """Puts texts through a network: those of like length together, so that hardly any padding is computed.

    Args:
        device: where the network is.
        long: how a text longer than the network's input is read. windows: they overlap by half, and each token is
            kept once, where it has the most context. memory: window behind window, each token once, and each
            window remembers those before. None: with memory, where the network has one.

    Raises:
        CheckpointError: the model's inputs are too short for a text, or it has no memory to read with.
    """

    def __init__(
        self, pretrained: Pretrained | OnnxModel, *, device: str | torch.device, long: LongTextMode | None = None
    ) -> None:
        self.device = torch.device(device)
        self.special = special_tokens(pretrained.tokenizer)
        self.memory_length = pretrained.memory_length
        if long == "memory" and not self.memory_length:
            raise CheckpointError("the model has no memory to read long texts with; they can be read in windows")
        self.long: LongTextMode = long or ("memory" if self.memory_length else "windows")
        self.start_token = self.special.separate if pretrained.stream else self.special.classify
        self.max_tokens = pretrained.max_length - 2  # special tokens take two
        if self.max_tokens < 1:
            raise CheckpointError(f"the model's inputs of {pretrained.max_length} tokens leave no room for a text")

    def count_windowed(self, lengths: Iterable[int]) -> int:
        """How many texts of so many tokens are longer than the network's input, and are read in windows."""
        return sum(length > self.max_tokens for length in lengths) if self.long == "windows" else 0

    def outputs(
        self, ids: Sequence[list[int]], network: Forward, *, batch_tokens: int | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """The network's values of every window, (L, ...) with those of special tokens; those that are read with
        memory come first, then the longest.

        Args:
            ids, batch_tokens: as of `batches`.
        """
        for batch in self.batches(ids, batch_tokens=batch_tokens):
            with torch.inference_mode():
                values = network(batch.ids_BL, batch.mask_BL, **batch.past).float().cpu().numpy()
            for window, row in zip(batch.windows, values, strict=True):
                yield window, row[: window.length]

    def batches(self, ids: Sequence[list[int]], *, batch_tokens: int | None = None) -> Iterator[WindowBatch]:
        """The windows of texts in batches. Each is to go through the network before the next one is asked for: it
        leaves in `past` what that one remembers.

        Args:
            ids: of each text, without special tokens.
            batch_tokens: tokens of a batch, padding included; None: `CPU_BATCH_TOKENS` or `DEVICE_BATCH_TOKENS`.
        """
        budget = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else DEVICE_BATCH_TOKENS)
        remembered = {i for i, tokens in enumerate(ids) if self.long == "memory" and len(tokens) > self.max_tokens}
        yield from self._remembered(ids, remembered, budget)
        others = [(i, len(tokens)) for i, tokens in enumerate(ids) if i not in remembered]
        ordered = [window for i, tokens in others for window in overlapping_windows(i, tokens, self.max_tokens)]
        ordered.sort(key=lambda window: window.length, reverse=True)
        call = CPU_OVERHEAD_TOKENS if self.device.type == "cpu" else DEVICE_OVERHEAD_TOKENS
        for first, end in pairwise(batch_boundaries([window.length for window in ordered], budget, call)):
            yield self._batch(ids, ordered[first:end])

    def _remembered(self, ids: Sequence[list[int]], texts: Collection[int], budget: int) -> Iterator[WindowBatch]:
        """Texts side by side, the longest above, so that those that are at their end drop out below."""
        length = self.max_tokens + 2
        ordered = sorted(texts, key=lambda text: len(ids[text]), reverse=True)
        together = max(1, budget // length)
        for first in range(0, len(ordered), together):
            rows = [
                consecutive_windows(text, len(ids[text]), length) for text in ordered[first : first + together]
            ]
            past = Memory(self.memory_length)
            for step in range(len(rows[0])):
                batch = [row[step] for row in rows if len(row) > step]
                if past.memory_YBMD is not None:
                    past.memory_YBMD = past.memory_YBMD[:, : len(batch)]
                yield self._batch(ids, batch, past=past)

    def _row(self, ids: list[int], window: Window) -> list[int]:
        before, after = [self.start_token] * window.before, [self.special.separate] * window.after
        return [*before, *ids[window.start : window.end], *after]

    def _batch(self, ids: Sequence[list[int]], batch: list[Window], **past: Memory) -> WindowBatch:
        """Windows of which the first one is a longest."""
        rows = [self._row(ids[window.text], window) for window in batch]
        lengths_B = np.array([len(row) for row in rows])
        length = int(lengths_B[0])
        ids_BL = np.full((len(rows), length), self.special.pad)
        ids_BL[np.arange(length) < lengths_B[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64)
        mask_BL = attention_mask(torch.from_numpy(lengths_B).to(self.device), length)
        return WindowBatch(batch, torch.from_numpy(ids_BL).to(self.device), mask_BL, past)


def batch_boundaries(lengths: Sequence[int], budget: int, call: int) -> list[int]:
    """Where to cut rows into batches, so that the least is computed: 0, the ends of batches but the last, the end.

    A batch computes all its rows at the length of the longest, and costs `call` tokens more.

    Args:
        lengths: of the rows, falling.
        budget: tokens of a batch, padding included; a longer row is a batch alone.
    """
    lengths_n = np.asarray(lengths, np.int64)
    costs, ends = np.zeros(len(lengths) + 1), [0] * len(lengths)  # from each row to the end
    for first in range(len(lengths) - 1, -1, -1):
        most = min(max(1, budget // int(lengths_n[first])), len(lengths) - first)
        total = lengths_n[first] * np.arange(1, most + 1) + costs[first + 1 : first + 1 + most]
        best = int(total.argmin())
        costs[first], ends[first] = total[best] + call, first + 1 + best
    found = [0]
    while found[-1] < len(lengths):
        found.append(ends[found[-1]])
    return found


def overlapping_windows(text: int, tokens: int, size: int) -> list[Window]:
    """Windows of at most `size` tokens that overlap by half; neighbours part in the middle of the overlap.

    There is always one: that of an empty text is empty.
    """
    step = max(1, size // 2)
    starts = [*range(0, max(tokens - size, 0), step), max(tokens - size, 0)]
    borders = [0, *((before + size + start) // 2 for before, start in pairwise(starts)), tokens]
    return [
        Window(text, start, min(start + size, tokens), *keep)
        for start, keep in zip(starts, pairwise(borders), strict=True)
    ]


def consecutive_windows(text: int, tokens: int, length: int) -> list[Window]:
    """Windows of `length` tokens, one behind the other, of a text and the special token on either side of it.

    The last one may hold nothing but the token behind the text.
    """
    found = []
    for first in range(0, tokens + 2, length):
        start, end = max(0, first - 1), min(first + length - 1, tokens)
        begins, ends = first == 0, first + length >= tokens + 2
        found.append(Window(text, start, end, start, end, before=int(begins), after=int(ends)))
    return found


def check_texts(texts: Sequence[str]) -> None:
    """Refuse a single text, whose characters would be taken for the texts.

    Raises:
        TypeError: a single text was given where a list of texts belongs.
    """
    if isinstance(texts, str):
        raise TypeError(f"give a list of texts: [{texts[:20]!r}]")
