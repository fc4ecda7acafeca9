"""Texts of any length through a network in full batches.

Shapes: B batch, L length. Here L counts [CLS] and [SEP], elsewhere in `serving` the tokens of the text alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError
from electra.export.huggingface import Pretrained
from electra.modeling.encoder import attention_mask

CPU_TOKENS = 2048
"""Tokens of a batch on a CPU: enough for the products' full speed; with more the states leave the cache."""
DEVICE_TOKENS = 16_384
"""Tokens of a batch elsewhere: 32 inputs of 512."""

Network = Callable[[Tensor, Tensor | None], Tensor]
"""From ids (B, L) and an attention mask (B, L) to values (B, L, ...)."""


@dataclass(frozen=True)
class Window:
    """A part of a text that goes through the network at once, and the tokens whose values are kept.

    Attributes:
        text: the text's number.
        start, end: the tokens that are read.
        keep_start, keep_end: the tokens of which the values are kept.
    """

    text: int
    start: int
    end: int
    keep_start: int
    keep_end: int

    @property
    def length(self) -> int:
        """Tokens of its row, [CLS] and [SEP] with them."""
        return self.end - self.start + 2

    @property
    def kept(self) -> slice:
        """The kept tokens in the text."""
        return slice(self.keep_start, self.keep_end)

    @property
    def kept_of_row(self) -> slice:
        """The kept tokens in the row of the window, which begins with [CLS]."""
        return slice(self.keep_start - self.start + 1, self.keep_end - self.start + 1)


class Batcher:
    """Puts texts through a network: those of like length together, so that hardly any padding is computed.

    A text longer than the network's input is read in windows that overlap by half; each token is kept once, where
    it has the most context.

    Args:
        device: such as "cpu" or "cuda"; None: the GPU where there is one.

    Raises:
        CheckpointError: the model's inputs are too short for a text.
    """

    def __init__(self, pretrained: Pretrained, *, device: str | torch.device | None) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.special = special_tokens(pretrained.tokenizer)
        self.size = pretrained.max_length - 2  # [CLS] and [SEP] take two
        if self.size < 1:
            raise CheckpointError(f"the model's inputs of {pretrained.max_length} tokens leave no room for a text")

    def rows(
        self, ids: Sequence[list[int]], network: Network, *, batch_tokens: int | None = None
    ) -> Iterator[tuple[Window, NDArray[np.float32]]]:
        """The network's values of every window, (L, ...) from [CLS] to [SEP], the longest windows first.

        Args:
            ids: of each text, without special tokens.
            batch_tokens: tokens of a batch, padding included; None: `CPU_TOKENS` or `DEVICE_TOKENS`.
        """
        budget = batch_tokens or (CPU_TOKENS if self.device.type == "cpu" else DEVICE_TOKENS)
        ordered = [window for i, tokens in enumerate(ids) for window in windows(i, len(tokens), self.size)]
        ordered.sort(key=lambda window: window.length, reverse=True)
        first = 0
        while first < len(ordered):
            longest = ordered[first].length
            count = max(1, budget // longest)
            batch = ordered[first : first + count]
            # Half a batch is about as quick a token as a whole one, and needs no mask where all are of one length:
            # what is shorter waits for the next.
            alike = sum(window.length == longest for window in batch)
            batch = batch[: max(alike, (count + 1) // 2)]
            values = self._values([self._row(ids[window.text], window) for window in batch], network)
            for window, row in zip(batch, values, strict=True):
                yield window, row[: window.length]
            first += len(batch)

    def _row(self, ids: list[int], window: Window) -> list[int]:
        return [self.special.classify, *ids[window.start : window.end], self.special.separate]

    @torch.inference_mode()
    def _values(self, rows: list[list[int]], network: Network) -> NDArray[np.float32]:
        """Values (B, longest row, ...); what lies behind a row's end means nothing."""
        lengths_B = np.array([len(row) for row in rows])
        length = int(lengths_B[0])
        ids_BL = np.full((len(rows), length), self.special.pad)
        ids_BL[np.arange(length) < lengths_B[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64)
        mask_BL = attention_mask(torch.from_numpy(lengths_B).to(self.device), length)
        values = network(torch.from_numpy(ids_BL).to(self.device), mask_BL)
        found: NDArray[np.float32] = values.float().cpu().numpy()
        return found


def windows(text: int, tokens: int, size: int) -> list[Window]:
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


def check_texts(texts: Sequence[str]) -> None:
    """Refuse a single text, whose characters would be taken for the texts.

    Raises:
        TypeError: a single text was given where a list of texts belongs.
    """
    if isinstance(texts, str):
        raise TypeError(f"give a list of texts: [{texts[:20]!r}]")
