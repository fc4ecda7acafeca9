"""What a causal language model makes of what came long before (Transformer-XL, Dai et al. 2019, sections 4.2-4.4).

Documents are read one row each, from their beginning, so that it is known where in its document each token stands.
A row begins with [SEP], as a document in the stream of training does, and the first token is predicted from that.

Two ways of reading a text that is longer than a row are compared. *With memory*: window by window, and each block
also sees its own states of so many earlier tokens. *By a sliding window*: for each token all that it may see is
computed anew, which is what a network without memory has to do to give each token the same context.

Shapes: B documents read together, L window, T tokens of a document, N chosen tokens, M memory, C context, D hidden
size, V vocabulary, Y blocks. A tensor's name ends with its shape (`ids_BL`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.data.shards import Shard, Split
from electra.errors import DataError
from electra.serving.causal_language_model import BATCH_TOKENS, CausalLanguageModel

FIRST_OCTAVE = 32
"""Tokens of a document that are taken together as its beginning; behind them the stretches double."""
LATE = (256, 512, 1024)
"""Places in a document behind which the loss is summed up."""


def held_out(split: Split, *, separate: int, documents: int, length: int) -> list[Tensor]:
    """The longest documents of a split, each [SEP] and its first tokens (1 + T,), the longest first.

    Args:
        separate: the id of [SEP].
        documents: at most so many.
        length: tokens of each at most.

    Raises:
        DataError: the split has no text.
    """
    found: list[tuple[int, Shard, int]] = []
    for shard in split.shards:
        ends = np.concatenate([[0], shard.sentence_ends])[shard.document_ends]
        starts = np.concatenate([[0], ends[:-1]])
        found.extend((int(end - start), shard, int(start)) for start, end in zip(starts, ends, strict=True))
    longest = sorted((one for one in found if one[0]), key=lambda one: -one[0])[:documents]
    if not longest:
        raise DataError("nothing was held out to measure on; prepare the data with a larger --heldout")
    rows = [shard.tokens[start : start + min(size, length)] for size, shard, start in longest]
    return [torch.cat([torch.tensor([separate]), torch.from_numpy(row.astype(np.int64))]) for row in rows]


@torch.inference_mode()
def losses_of_sliding_window(
    model: CausalLanguageModel, document: Tensor, places_N: Sequence[int], *, context: int
) -> Tensor:
    """The losses (N,) of some tokens of a document, each predicted from the `context` tokens before it alone.

    All states are computed anew for each token, but for those of the last block that nobody looks at.

    Args:
        document: (1 + T,) ids, with [SEP] first.
        places_N: of the tokens, counted from 0 behind [SEP].
        context: tokens that are read; fewer at the beginning of the document.
    """
    found = []
    rows = max(1, BATCH_TOKENS // context)
    for places in (places_N[first : first + rows] for first in range(0, len(places_N), rows)):
        parts = [document[max(0, place + 1 - context) : place + 1] for place in places]
        lengths_B = torch.tensor([len(part) for part in parts], device=model.device)
        ids_BL = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(model.device)
        states_BND = model.encoder.read(  # padding is behind the last token, which does not look there
            ids_BL, memory_length=0, positions_BN=lengths_B[:, None] - 1
        ).states_BND
        targets_B = document[[place + 1 for place in places]].to(model.device)
        found.append(model.losses(states_BND[:, 0], targets_B).cpu())
    return torch.cat(found)


@dataclass(frozen=True)
class Stretch:
    """The tokens at some places of their documents, and their mean loss.

    Attributes:
        first, last: the places, from 0.
        tokens: how many there are, of all documents together.
        loss: in nats a token.
    """

    first: int
    last: int
    tokens: int
    loss: float


def by_position(losses: Sequence[Tensor]) -> list[Stretch]:
    """The mean loss by where in its document a token stands: the beginning, then octaves (32-63, 64-127, ...).

    Args:
        losses: (T,) of each document.
    """
    longest = max(map(len, losses))
    total_T, count_T = np.zeros(longest), np.zeros(longest, np.int64)
    for one in losses:
        total_T[: len(one)] += one.double().numpy()
        count_T[: len(one)] += 1
    return [
        Stretch(first, end - 1, int(count_T[first:end].sum()), _mean(total_T[first:end], count_T[first:end]))
        for first, end in _octaves(longest)
    ]


def _mean(total_T: NDArray[np.float64], count_T: NDArray[np.int64]) -> float:
    return float(total_T.sum() / count_T.sum())


def _octaves(longest: int) -> Iterator[tuple[int, int]]:
    first, end = 0, FIRST_OCTAVE
    while first < longest:
        yield first, min(end, longest)
        first, end = end, 2 * end


def together(stretches: Iterable[Stretch], *, first: int = 0, last: int | None = None) -> Stretch | None:
    """The stretches from one place to another (None: the end) as one; None: there are none."""
    inside = [one for one in stretches if one.first >= first and (last is None or one.last <= last)]
    if not inside:
        return None
    tokens = sum(one.tokens for one in inside)
    loss = sum(one.tokens * one.loss for one in inside) / tokens
    return Stretch(inside[0].first, inside[-1].last, tokens, loss)


@dataclass(frozen=True)
class Reading:
    """The losses of a model that remembers so many tokens; all in nats a token.

    Attributes:
        early: of the tokens before the first of `LATE`.
        late: of the tokens from each of `LATE` on, to which documents come.
    """

    memory: int
    loss: float
    perplexity: float
    early: float
    late: dict[int, float]
    by_position: list[Stretch]

    @classmethod
    def of(cls, memory: int, losses: Sequence[Tensor]) -> "Reading":
        """That of the losses (T,) of each document."""
        stretches = by_position(losses)
        whole, early = together(stretches), together(stretches, last=LATE[0] - 1)
        assert whole is not None and early is not None, "a stretch begins with each document"
        late = {first: found.loss for first in LATE if (found := together(stretches, first=first))}
        return cls(memory, whole.loss, math.exp(min(whole.loss, 700.0)), early.loss, late, stretches)
