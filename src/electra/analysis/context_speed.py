"""How quickly a text is read with a memory, beside a sliding window that is computed anew for each token.

Shapes: L window, T tokens of a document, N chosen tokens, M memory, Y blocks.
"""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch import Tensor

from electra.analysis.context import losses_of_sliding_window
from electra.serving.causal_language_model import CausalLanguageModel, compute_token_losses, forward_window

ROUNDS = 3
"""In which the two ways of reading are timed, in turn."""


@dataclass(frozen=True)
class Speed:
    """What each token costs, read with memory and by a sliding window (Dai et al. 2019, table 9).

    Attributes:
        memory: tokens that are remembered.
        context: of the sliding window: as many as a token that is read with memory sees on average.
        tokens: whose losses are compared, the same in both, each with its whole context.
        memory_seconds, sliding_seconds: a token, medians of `ROUNDS`.
        memory_loss, sliding_loss: of those tokens, in nats.
        difference: the largest between the losses of single tokens at a document's beginning, all of which both
            see: that of rounding.
    """

    memory: int
    context: int
    tokens: int
    memory_seconds: float
    sliding_seconds: float
    memory_loss: float
    sliding_loss: float
    difference: float

    @property
    def times(self) -> float:
        """So many times as quick is reading with memory."""
        return self.sliding_seconds / self.memory_seconds


def speed(model: CausalLanguageModel, document: Tensor, *, window: int, memory: int, tokens: int) -> Speed | None:
    """Time both ways of reading a document; None where it is too short for the context.

    One document is a batch of one row for the memory, but sliding windows are computed as many at once as suits
    the machine: what is said of the memory's speed is rather too little.

    Args:
        document: (1 + T,) ids, with [SEP] first.
        memory: tokens that are remembered, at least 1.
        tokens: that are read by sliding windows, spread over where the whole context is there.
    """
    context = memory + (window + 1) // 2
    # From where both see all that they may, to the end of the document, in whole windows.
    start = -(-context // window) * window
    count = (len(document) - 1 - start) // window * window
    if count < 1:
        return None
    places = np.linspace(start, start + count - 1, min(tokens, count), dtype=int).tolist()
    read_seconds, sliding_seconds = [], []
    for _ in range(ROUNDS):
        seconds, losses_T = _timed_from(model, document[: start + count + 1], start, window, memory)
        read_seconds.append(seconds / count)
        began = time.perf_counter()
        sliding_N = losses_of_sliding_window(model, document, places, context=context)
        sliding_seconds.append((time.perf_counter() - began) / len(places))
    beginning = list(range(0, min(memory, len(document) - 1), max(1, memory // 8)))
    same_N = losses_of_sliding_window(model, document, beginning, context=memory)
    [read_T] = compute_token_losses(model, [document[: memory + 1]], window=window, memory=memory)
    return Speed(
        memory, context, len(places), median(read_seconds), median(sliding_seconds),
        float(losses_T[[place - start for place in places]].mean()), float(sliding_N.mean()),
        float((read_T[beginning] - same_N).abs().max()),
    )  # fmt: skip


@torch.inference_mode()
def _timed_from(
    model: CausalLanguageModel, document: Tensor, start: int, window: int, memory: int
) -> tuple[float, Tensor]:
    """Seconds in which a document is read from a place on, where the memory is full, and the losses there."""
    remembered_YBMD, found, began = None, [], time.perf_counter()
    for place in range(0, len(document) - 1, window):
        if place == start:
            began = time.perf_counter()
        part = document[place : place + window + 1]
        losses_BL, remembered_YBMD = forward_window(model, [part], remembered_YBMD, memory)
        found.append(losses_BL[0])
    return time.perf_counter() - began, torch.cat(found)[start:]
