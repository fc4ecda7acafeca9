"""The speed of reading a text with a memory, compared with a sliding window computed again for each token.

Shapes: L window, T tokens of a document, N selected tokens, M memory, Y blocks.
"""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch import Tensor

from electra.analysis.context import sliding_window_losses
from electra.serving.causal_language_model import CausalLanguageModel, compute_token_losses, forward_window

ROUNDS = 3
"""Repetitions of the two timings, which alternate."""


@dataclass(frozen=True)
class ReadingSpeed:
    """The cost per token of reading with memory and with a sliding window (Dai et al. 2019, table 9).

    Attributes:
        memory: the number of remembered tokens.
        context: the length of the sliding window: the mean context of a token that is read with memory.
        tokens: the tokens whose losses are compared, the same for both, each with its whole context.
        memory_seconds, sliding_seconds: per token, medians of `ROUNDS`.
        memory_loss, sliding_loss: the mean loss of those tokens, in nats.
        difference: the largest difference between the losses of a token at the document's beginning, where both
            see all earlier tokens; it comes from rounding.
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
        """The speedup of reading with memory."""
        return self.sliding_seconds / self.memory_seconds


def measure_speed(
    model: CausalLanguageModel, document: Tensor, *, window: int, memory: int, tokens: int
) -> ReadingSpeed | None:
    """Time both ways of reading a document; None if the document is too short for the context.

    With memory, one document is a batch of one row, but sliding windows are computed in batches of the size that
    suits the machine: the reported speedup is therefore rather too low.

    Args:
        document: (1 + T,) ids, with [SEP] first.
        memory: the number of remembered tokens, at least 1.
        tokens: the number of tokens read with sliding windows, spread over the part with a whole context.
    """
    context = memory + (window + 1) // 2
    # From the position where both have their whole context to the end of the document, in whole windows.
    start = -(-context // window) * window
    count = (len(document) - 1 - start) // window * window
    if count < 1:
        return None
    positions = np.linspace(start, start + count - 1, min(tokens, count), dtype=int).tolist()
    memory_seconds, sliding_seconds = [], []
    for _ in range(ROUNDS):
        seconds, losses_T = _time_reading_from(model, document[: start + count + 1], start, window, memory)
        memory_seconds.append(seconds / count)
        started = time.perf_counter()
        sliding_N = sliding_window_losses(model, document, positions, context=context)
        sliding_seconds.append((time.perf_counter() - started) / len(positions))
    beginning = list(range(0, min(memory, len(document) - 1), max(1, memory // 8)))
    same_N = sliding_window_losses(model, document, beginning, context=memory)
    [with_memory_T] = compute_token_losses(model, [document[: memory + 1]], window=window, memory=memory)
    return ReadingSpeed(
        memory, context, len(positions), median(memory_seconds), median(sliding_seconds),
        float(losses_T[[position - start for position in positions]].mean()), float(sliding_N.mean()),
        float((with_memory_T[beginning] - same_N).abs().max()),
    )  # fmt: skip


@torch.inference_mode()
def _time_reading_from(
    model: CausalLanguageModel, document: Tensor, start: int, window: int, memory: int
) -> tuple[float, Tensor]:
    """The seconds to read a document from a position on, where the memory is full, and the losses there."""
    memory_YBMD, losses, started = None, [], time.perf_counter()
    for position in range(0, len(document) - 1, window):
        if position == start:
            started = time.perf_counter()
        part = document[position : position + window + 1]
        losses_BL, memory_YBMD = forward_window(model, [part], memory_YBMD, memory)
        losses.append(losses_BL[0])
    return time.perf_counter() - started, torch.cat(losses)[start:]
