"""What a generator, or any masked language model, proposes for masked tokens of held-out text.

A generator's proposals are the fakes that a discriminator learns from (paper, section 2), so it matters how often
they are the original, how like it they are, and how many of the language's tokens they are.

Shapes: n masked tokens of all texts, V vocabulary, K ways of being alike, C classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.analysis.corrupted import sampled, wanted
from electra.data.shards import Split
from electra.errors import DataError
from electra.serving.masked_token_predictor import MaskedTokenPredictor

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


def stretches(split: Split, *, texts: int, length: int) -> list[list[int]]:
    """Pieces of at most `length` tokens, each of one document, from all over a split.

    Pieces that are shorter than half of that, as the ends of documents are, count only where there are no others.

    Args:
        texts: at most so many.

    Raises:
        DataError: the split has no text.
    """
    found = []
    for number, shard in enumerate(split.shards):
        ends = np.concatenate([[0], shard.sentence_ends])[shard.document_ends].tolist()
        for start, end in zip([0, *ends[:-1]], ends, strict=False):
            found += [(number, first, min(first + length, end)) for first in range(start, end, length)]
    if not found:
        raise DataError("nothing was held out to measure on; prepare the data with a larger --heldout")
    found = [one for one in found if 2 * (one[2] - one[1]) >= length] or found
    chosen = np.linspace(0, len(found) - 1, min(texts, len(found))).round().astype(int)
    pieces = (found[i] for i in chosen.tolist())
    return [split.shards[number].tokens[start:end].tolist() for number, start, end in pieces]


@dataclass(frozen=True, eq=False)
class Masked:
    """Texts, and the places of each that are masked, in rising order; one number a place, from 0 to 1, for its
    draw."""

    ids: Sequence[list[int]]
    places: Sequence[Numbers]
    uniforms: Sequence[Floats]

    @classmethod
    def drawn(cls, ids: Sequence[list[int]], *, share: float, seed: int) -> "Masked":
        """A share of each text's tokens, one at least."""
        draws = np.random.default_rng(seed)
        places = [np.sort(draws.choice(len(one), wanted(len(one), share), replace=False)) for one in ids]
        return cls(ids, places, [draws.random(len(where)) for where in places])

    @property
    def text_n(self) -> Numbers:
        """The text of each masked token."""
        return np.repeat(np.arange(len(self.places)), [len(where) for where in self.places])

    @property
    def original_n(self) -> Numbers:
        """What stood there."""
        parts = [np.array(one, np.int64)[where] for one, where in zip(self.ids, self.places, strict=True)]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Likeness:
    """A way in which two tokens may be alike.

    Attributes:
        name: what is the same then.
        class_V: tokens are alike where it is the same; of as many tokens as the largest network has rows.
        known_V: the tokens of which that can be said.
    """

    name: str
    class_V: Numbers
    known_V: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Proposals:
    """What is proposed for each masked token (n), one text behind the other; logarithms and entropies in nats.

    Attributes:
        shown_n: the token that was drawn.
        loss_n: -log of the original's probability.
        rank_n: tokens that are held likelier than the original.
        entropy_n: of the distribution.
        top_probability_n: the largest.
        special_n: the probability of special and unknown tokens together.
        alike_Kn: of those tokens together that are like the original in some way, itself left out.
    """

    text_n: Numbers
    original_n: Numbers
    shown_n: Numbers
    loss_n: Floats
    rank_n: Numbers
    entropy_n: Floats
    top_probability_n: Floats
    special_n: Floats
    alike_Kn: Floats

    @property
    def probability_n(self) -> Floats:
        """Of the original: how often a draw is what stood there."""
        found: Floats = np.exp(-self.loss_n)
        return found


FIGURES = ("shown", "loss", "rank", "entropy", "top_probability", "special")


def proposals(
    predictor: MaskedTokenPredictor,
    masked: Masked,
    *,
    temperatures: Sequence[float],
    ways: Sequence[Likeness],
    special: Sequence[int],
) -> dict[float, Proposals]:
    """What a model proposes for the masked tokens, at each temperature.

    Args:
        temperatures: that logits are divided by.
        ways: in which a fake may be like the original.
        special: the ids of special tokens.
    """
    starts = np.cumsum([0, *map(len, masked.places)])
    original_n, uniforms_n = masked.original_n, np.concatenate(masked.uniforms)
    values = {one: np.zeros((len(FIGURES) + len(ways), starts[-1])) for one in temperatures}
    classes_KV: Tensor | None = None
    for text, part, log_probabilities_nV in predictor(masked.ids, masked.places):
        slots = starts[text] + np.searchsorted(masked.places[text], part)
        if classes_KV is None:
            classes_KV = _classes(ways, log_probabilities_nV.shape[1])
        for temperature, values_xn in values.items():
            at_nV = (log_probabilities_nV / temperature).log_softmax(-1)
            values_xn[:, slots] = _figures(
                at_nV, torch.from_numpy(original_n[slots]), uniforms_n[slots], classes_KV, special
            )
    return {
        temperature: Proposals(
            text_n=masked.text_n,
            original_n=original_n,
            shown_n=shown.astype(np.int64),
            loss_n=loss,
            rank_n=rank.astype(np.int64),
            entropy_n=entropy,
            top_probability_n=top,
            special_n=unusable,
            alike_Kn=np.array(alike).reshape(len(ways), -1),
        )
        for temperature, (shown, loss, rank, entropy, top, unusable, *alike) in values.items()
    }


def _figures(
    log_probabilities_nV: Tensor,
    original_n: Tensor,
    uniforms_n: Floats,
    classes_KV: Tensor,
    special: Sequence[int],
) -> Floats:
    """The rows of `FIGURES`, then one of each way of being alike."""
    probabilities_nV = log_probabilities_nV.exp()
    original_n1 = log_probabilities_nV.gather(1, original_n[:, None])
    figures = [
        sampled(log_probabilities_nV, uniforms_n).double(),
        -original_n1.squeeze(1),
        (log_probabilities_nV > original_n1).sum(1),
        -(probabilities_nV * log_probabilities_nV.clamp(min=-1e9)).sum(1),
        probabilities_nV.max(1).values,
        probabilities_nV[:, list(special)].sum(1),
        *alike(probabilities_nV, original_n, classes_KV),
    ]
    return torch.stack([one.double() for one in figures]).numpy()


def alike(probabilities_nV: Tensor, original_n: Tensor, classes_KV: Tensor) -> Iterator[Tensor]:
    """For each way, the probability (n) of the tokens of the original's class, but for the original."""
    own_n = probabilities_nV.gather(1, original_n[:, None]).squeeze(1)
    for classes_V in classes_KV:
        sums_nC = probabilities_nV.new_zeros(len(own_n), int(classes_V.max()) + 1)
        sums_nC.index_add_(1, classes_V, probabilities_nV)
        yield (sums_nC.gather(1, classes_V[original_n][:, None]).squeeze(1) - own_n).clamp(min=0)


def _classes(ways: Sequence[Likeness], size: int) -> Tensor:
    """The classes (K, V) of as many tokens as a network has rows."""
    rows = [torch.from_numpy(way.class_V[:size]) for way in ways]
    return torch.stack(rows) if rows else torch.zeros(0, size, dtype=torch.long)
