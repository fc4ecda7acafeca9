"""The tokens that a generator, or any masked language model, proposes at masked positions of held-out text.

A generator's samples are the fakes that a discriminator learns from (paper, section 2). So it matters how often
they are the original token, how similar to it they are, and how diverse they are.

Shapes: n masked tokens of all texts, V vocabulary, K classifications of tokens, C classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.analysis.corruption import sample_mask_positions, sample_tokens
from electra.data.tokenizer import vocabulary_size
from electra.serving.masked_token_predictor import MaskedTokenPredictor

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MaskedTexts:
    """Texts, the sorted masked positions of each, and a uniform number per position for sampling its token."""

    ids: Sequence[list[int]]
    positions: Sequence[Numbers]
    uniforms: Sequence[Floats]

    @classmethod
    def sample(cls, ids: Sequence[list[int]], *, share: float, seed: int) -> "MaskedTexts":
        """Mask a fraction of each text's tokens, at least one."""
        rng = np.random.default_rng(seed)
        positions = sample_mask_positions(ids, share, rng)
        return cls(ids, positions, [rng.random(len(masked)) for masked in positions])

    @property
    def text_n(self) -> Numbers:
        """The text of each masked token."""
        return np.repeat(np.arange(len(self.positions)), [len(masked) for masked in self.positions])

    @property
    def original_n(self) -> Numbers:
        """The original token at each masked position."""
        parts = [np.array(ids, np.int64)[masked] for ids, masked in zip(self.ids, self.positions, strict=True)]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """A classification of tokens: two tokens of the same class are similar in this respect.

    Attributes:
        name: the name of the property that defines the classes.
        class_V: the class of each token, for as many tokens as the largest network has rows.
        known_V: the tokens whose class is known.
    """

    name: str
    class_V: Numbers
    known_V: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Proposals:
    """The proposals for each masked token (n), one text after the other; logarithms and entropies in nats.

    Attributes:
        sampled_n: the sampled token.
        loss_n: the negative log-probability of the original.
        rank_n: the number of tokens with a higher probability than the original.
        entropy_n: the entropy of the distribution.
        top_probability_n: the largest probability.
        special_n: the total probability of special and unknown tokens.
        same_class_Kn: the total probability of the tokens in the original's class, without the original.
    """

    text_n: Numbers
    original_n: Numbers
    sampled_n: Numbers
    loss_n: Floats
    rank_n: Numbers
    entropy_n: Floats
    top_probability_n: Floats
    special_n: Floats
    same_class_Kn: Floats

    @property
    def probability_n(self) -> Floats:
        """The probability of the original: how often a sample equals it."""
        probability_n: Floats = np.exp(-self.loss_n)
        return probability_n


VALUES = ("sampled", "loss", "rank", "entropy", "top_probability", "special")


def measure_proposals(
    predictor: MaskedTokenPredictor,
    masked: MaskedTexts,
    *,
    temperatures: Sequence[float],
    classes: Sequence[TokenClasses],
    special: Sequence[int],
) -> dict[float, Proposals]:
    """Measure what a model proposes for the masked tokens, at each temperature.

    Args:
        classes: the classifications by which a fake may be similar to the original.
        special: the ids of special tokens.
    """
    starts = np.cumsum([0, *map(len, masked.positions)])
    original_n, uniforms_n = masked.original_n, np.concatenate(masked.uniforms)
    entries = vocabulary_size(predictor.tokenizer)
    values = {temperature: np.zeros((len(VALUES) + len(classes), starts[-1])) for temperature in temperatures}
    class_KV: Tensor | None = None
    for text, part, log_probabilities_nV in predictor(masked.ids, masked.positions):
        slots = starts[text] + np.searchsorted(masked.positions[text], part)
        if class_KV is None:
            class_KV = _stack_classes(classes, log_probabilities_nV.shape[1])
        for temperature, values_xn in values.items():
            scaled_nV = (log_probabilities_nV / temperature).log_softmax(-1)
            values_xn[:, slots] = _proposal_values(
                scaled_nV, torch.from_numpy(original_n[slots]), uniforms_n[slots], class_KV, special,
                entries=entries,
            )  # fmt: skip
    return {
        temperature: Proposals(
            text_n=masked.text_n,
            original_n=original_n,
            sampled_n=sampled.astype(np.int64),
            loss_n=loss,
            rank_n=rank.astype(np.int64),
            entropy_n=entropy,
            top_probability_n=top,
            special_n=special_probability,
            same_class_Kn=np.array(same_class).reshape(len(classes), -1),
        )
        for temperature, (sampled, loss, rank, entropy, top, special_probability, *same_class) in values.items()
    }


def _proposal_values(
    log_probabilities_nV: Tensor,
    original_n: Tensor,
    uniforms_n: Floats,
    class_KV: Tensor,
    special: Sequence[int],
    *,
    entries: int,
) -> Floats:
    """The rows of `VALUES`, then one for each classification.

    Args:
        entries: entries of the tokenizer; as in training, the rows behind them are never sampled.
    """
    probabilities_nV = log_probabilities_nV.exp()
    original_n1 = log_probabilities_nV.gather(1, original_n[:, None])
    rows = [
        sample_tokens(log_probabilities_nV[:, :entries], uniforms_n).double(),
        -original_n1.squeeze(1),
        (log_probabilities_nV > original_n1).sum(1),
        -(probabilities_nV * log_probabilities_nV.clamp(min=-1e9)).sum(1),
        probabilities_nV.max(1).values,
        probabilities_nV[:, list(special)].sum(1),
        *same_class_probability(probabilities_nV, original_n, class_KV),
    ]
    return torch.stack([row.double() for row in rows]).numpy()


def same_class_probability(probabilities_nV: Tensor, original_n: Tensor, class_KV: Tensor) -> Iterator[Tensor]:
    """For each classification, the probability (n) of the tokens in the original's class, without the original."""
    own_n = probabilities_nV.gather(1, original_n[:, None]).squeeze(1)
    for class_V in class_KV:
        sums_nC = probabilities_nV.new_zeros(len(own_n), int(class_V.max()) + 1)
        sums_nC.index_add_(1, class_V, probabilities_nV)
        yield (sums_nC.gather(1, class_V[original_n][:, None]).squeeze(1) - own_n).clamp(min=0)


def _stack_classes(classes: Sequence[TokenClasses], size: int) -> Tensor:
    """The classes (K, V) of as many tokens as a network has rows."""
    rows = [torch.from_numpy(one.class_V[:size]) for one in classes]
    return torch.stack(rows) if rows else torch.zeros(0, size, dtype=torch.long)
