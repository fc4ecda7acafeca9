"""Texts with some tokens replaced by a generator's, as in training, and what both networks make of them.

Tokens are chosen, the generator fills their places from the text without them, and the discriminator reads the
result (paper, section 2). Each text is also read as it is.

Shapes: N tokens of all texts, n chosen ones, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from electra.errors import DataError
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer

Numbers = NDArray[np.int64]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CorruptedTokens:
    """All tokens (N) of the texts, one text behind the other, and the chosen ones (n) in the same order.

    Attributes:
        text_N, place_N: each token's text and place in it.
        original_N, shown_N: its id, and the one that the discriminator saw.
        chosen_N: whether the generator filled its place.
        logits_N: the discriminator's, of having been replaced, where it read the corrupted text.
        clean_logits_N: the same where it read the text as it is.
        original_log_probability_n, shown_log_probability_n: the generator's, in nats, of what stood there and of
            what it drew.
        entropy_n: of its distribution, in nats.
        rank_n: tokens that it held likelier than the original.
    """

    text_N: Numbers
    place_N: Numbers
    original_N: Numbers
    shown_N: Numbers
    chosen_N: Flags
    logits_N: Floats
    clean_logits_N: Floats
    original_log_probability_n: Floats
    shown_log_probability_n: Floats
    entropy_n: Floats
    rank_n: Numbers

    @property
    def replaced_N(self) -> Flags:
        """Whether another token stands there than before: a draw that is the original is none."""
        found: Flags = self.original_N != self.shown_N
        return found


def corrupted(
    scorer: Scorer,
    generator: MaskedTokenPredictor,
    ids: Sequence[list[int]],
    *,
    share: float = 0.15,
    temperature: float = 1.0,
    seed: int = 0,
) -> CorruptedTokens:
    """Replace a share of the tokens of each text (one at least), and read both.

    Args:
        ids: of each text, without special tokens; empty ones say nothing.
        temperature: that the draws' logits are divided by; log-probabilities and entropies are those at 1.

    Raises:
        DataError: the vocabularies differ.
    """
    if scorer.tokenizer.get_vocab() != generator.tokenizer.get_vocab():
        raise DataError("the discriminator and the generator have different vocabularies; give two of one run")
    draws = np.random.default_rng(seed)
    places = [np.sort(draws.choice(len(one), wanted(len(one), share), replace=False)) for one in ids]
    # One number a place, drawn before: what is drawn must not depend on the order in which texts are read.
    uniforms = [draws.random(len(where)) for where in places]
    shown = [list(tokens) for tokens in ids]
    figures = [np.zeros((4, len(where))) for where in places]
    for text, part, log_probabilities_nV in generator(ids, places):
        slots = np.searchsorted(places[text], part)
        original_n = torch.tensor([ids[text][place] for place in part])
        drawn_n = sampled(log_probabilities_nV / temperature, uniforms[text][slots])
        figures[text][:, slots] = _figures(log_probabilities_nV, original_n, drawn_n)
        for place, token in zip(part, drawn_n.tolist(), strict=True):
            shown[text][place] = token
    lengths = [len(tokens) for tokens in ids]
    starts = np.cumsum([0, *lengths])
    chosen_N = np.zeros(starts[-1], bool)
    for start, where in zip(starts, places, strict=False):
        chosen_N[start + where] = True
    original, drawn, entropy, rank = np.concatenate([np.zeros((4, 0)), *figures], 1)
    return CorruptedTokens(
        text_N=np.repeat(np.arange(len(ids)), lengths),
        place_N=np.arange(starts[-1]) - np.repeat(starts[:-1], lengths),
        original_N=_flat(ids),
        shown_N=_flat(shown),
        chosen_N=chosen_N,
        logits_N=np.concatenate([np.zeros(0, np.float32), *scorer.logits(shown)]),
        clean_logits_N=np.concatenate([np.zeros(0, np.float32), *scorer.logits(ids)]),
        original_log_probability_n=original.astype(np.float32),
        shown_log_probability_n=drawn.astype(np.float32),
        entropy_n=entropy.astype(np.float32),
        rank_n=rank.astype(np.int64),
    )


def wanted(length: int, share: float) -> int:
    """Tokens to be replaced: at least one, where there is one."""
    return min(length, max(1, round(share * length)))


def _flat(parts: Sequence[list[int]]) -> Numbers:
    return np.fromiter(chain.from_iterable(parts), np.int64)


def sampled(logits_nV: torch.Tensor, uniforms_n: NDArray[np.float64]) -> torch.Tensor:
    """A token of each row by its probability: where the cumulated probabilities pass the number."""
    cumulated_nV = logits_nV.double().softmax(-1).cumsum(-1)
    wanted_n1 = torch.from_numpy(uniforms_n)[:, None] * cumulated_nV[:, -1:]
    return torch.searchsorted(cumulated_nV, wanted_n1, right=True).squeeze(-1).clamp(max=logits_nV.shape[1] - 1)


def _figures(
    log_probabilities_nV: torch.Tensor, original_n: torch.Tensor, drawn_n: torch.Tensor
) -> NDArray[np.float64]:
    """Log-probability of the original and of the draw, entropy, rank of the original (4, n)."""
    original = log_probabilities_nV.gather(1, original_n[:, None])
    drawn = log_probabilities_nV.gather(1, drawn_n[:, None])
    entropy = -(log_probabilities_nV.exp() * log_probabilities_nV).sum(1)
    rank = (log_probabilities_nV > original).sum(1)
    return torch.stack([original.squeeze(1), drawn.squeeze(1), entropy, rank]).double().numpy()
