"""The loss of a causal language model by context length (Transformer-XL, Dai et al. 2019, sections 4.2-4.4).

Documents are read in one row each, from their beginning, so that the position of each token in its document is
known. A row starts with [SEP], as a document in the training stream does; the first token is predicted from it.

Two ways of reading a text longer than a row are compared. *With memory*: window by window, where each block also
attends to its own states of a number of earlier tokens. *With a sliding window*: for each token, its whole context
is computed again, as a network without memory must do to give each token the same context.

Shapes: B documents read together, L window, T tokens of a document, N selected tokens, M memory, C context, D
hidden size, V vocabulary, Y blocks. A tensor's name ends with its shape (`ids_BL`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.serving.causal_language_model import BATCH_TOKENS, CausalLanguageModel

FIRST_RANGE = 32
"""The first tokens of a document, which form one range; each later range is twice as long as the one before."""
LATE = (256, 512, 1024)
"""Positions in a document from which on the mean loss is reported."""


@torch.inference_mode()
def sliding_window_losses(
    model: CausalLanguageModel, document: Tensor, positions_N: Sequence[int], *, context: int
) -> Tensor:
    """The losses (N,) of some tokens of a document, each predicted only from the `context` tokens before it.

    All states are computed again for each token, except those of the last block that are not used.

    Args:
        document: (1 + T,) ids, with [SEP] first.
        positions_N: the positions of the tokens, counted from 0 after [SEP].
        context: the number of tokens read; fewer at the beginning of the document.
    """
    losses = []
    rows = max(1, BATCH_TOKENS // context)
    for positions in (positions_N[first : first + rows] for first in range(0, len(positions_N), rows)):
        contexts = [document[max(0, position + 1 - context) : position + 1] for position in positions]
        lengths_B = torch.tensor([len(tokens) for tokens in contexts], device=model.device)
        ids_BL = torch.nn.utils.rnn.pad_sequence(contexts, batch_first=True).to(model.device)
        # Padding is after the last token, which does not attend to it.
        states_BND = model.encoder.encode(ids_BL, memory_length=0, positions_BN=lengths_B[:, None] - 1).states_BND
        targets_B = document[[position + 1 for position in positions]].to(model.device)
        losses.append(model.losses(states_BND[:, 0], targets_B).cpu())
    return torch.cat(losses)


@dataclass(frozen=True)
class PositionRange:
    """The tokens in a range of positions of their documents, and their mean loss.

    Attributes:
        first, last: the positions, from 0.
        tokens: the number of tokens in all documents.
        loss: in nats per token.
    """

    first: int
    last: int
    tokens: int
    loss: float


def losses_by_position(losses: Sequence[Tensor]) -> list[PositionRange]:
    """The mean loss by position in the document: the first tokens, then octaves (32-63, 64-127, ...).

    Args:
        losses: the losses (T,) of each document.
    """
    longest = max(map(len, losses))
    total_T, count_T = np.zeros(longest), np.zeros(longest, np.int64)
    for losses_T in losses:
        total_T[: len(losses_T)] += losses_T.double().numpy()
        count_T[: len(losses_T)] += 1
    return [
        PositionRange(first, end - 1, int(count_T[first:end].sum()), _mean(total_T[first:end], count_T[first:end]))
        for first, end in _octaves(longest)
    ]


def _mean(total_T: NDArray[np.float64], count_T: NDArray[np.int64]) -> float:
    return float(total_T.sum() / count_T.sum())


def _octaves(longest: int) -> Iterator[tuple[int, int]]:
    first, end = 0, FIRST_RANGE
    while first < longest:
        yield first, min(end, longest)
        first, end = end, 2 * end


def merge_ranges(
    ranges: Iterable[PositionRange], *, first: int = 0, last: int | None = None
) -> PositionRange | None:
    """Merge the ranges between two positions (None: the end) into one; None if there is none."""
    inside = [part for part in ranges if part.first >= first and (last is None or part.last <= last)]
    if not inside:
        return None
    tokens = sum(part.tokens for part in inside)
    loss = sum(part.tokens * part.loss for part in inside) / tokens
    return PositionRange(inside[0].first, inside[-1].last, tokens, loss)


@dataclass(frozen=True)
class ContextLosses:
    """The losses of a model with a memory of some length; all in nats per token.

    Attributes:
        early: the mean loss of the tokens before the first position of `LATE`.
        late: the mean loss of the tokens from each position of `LATE` on that documents reach.
    """

    memory: int
    loss: float
    perplexity: float
    early: float
    late: dict[int, float]
    by_position: list[PositionRange]

    @classmethod
    def summarize(cls, memory: int, losses: Sequence[Tensor]) -> "ContextLosses":
        """Summarize the losses (T,) of each document."""
        ranges = losses_by_position(losses)
        overall, early = merge_ranges(ranges), merge_ranges(ranges, last=LATE[0] - 1)
        assert overall is not None and early is not None, "every document has a first range"
        late = {first: part.loss for first in LATE if (part := merge_ranges(ranges, first=first))}
        return cls(memory, overall.loss, math.exp(min(overall.loss, 700.0)), early.loss, late, ranges)
