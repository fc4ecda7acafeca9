"""Texts in which a generator replaced some tokens, as in training, scored by generator and discriminator.

Positions are sampled, the generator samples a token for each from the text with masks there, and the discriminator
reads the result (paper, section 2). The discriminator also reads each original text.

Shapes: N tokens of all texts, n masked positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from electra.data.tokenizer import vocabulary_size
from electra.errors import DataError
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer

Numbers = NDArray[np.int64]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CorruptedTokens:
    """All tokens (N) of the texts, concatenated, and the masked positions (n) in the same order.

    Attributes:
        text_N, position_N: each token's text and position in it.
        original_N, corrupted_N: its id, and the id that the discriminator read.
        masked_N: whether the generator sampled a token at its position.
        logits_N: the discriminator's logits of being replaced, for the corrupted text.
        clean_logits_N: the same for the original text.
        original_log_probability_n, sampled_log_probability_n: the generator's log-probabilities, in nats, of the
            original token and of the sampled one.
        entropy_n: the entropy of its distribution, in nats.
        rank_n: the number of tokens that it gave a higher probability than the original.
    """

    text_N: Numbers
    position_N: Numbers
    original_N: Numbers
    corrupted_N: Numbers
    masked_N: Flags
    logits_N: Floats
    clean_logits_N: Floats
    original_log_probability_n: Floats
    sampled_log_probability_n: Floats
    entropy_n: Floats
    rank_n: Numbers

    @property
    def replaced_N(self) -> Flags:
        """Whether the token differs from the original; a sample that equals the original replaces nothing."""
        replaced: Flags = self.original_N != self.corrupted_N
        return replaced


def corrupt_texts(
    scorer: Scorer,
    generator: MaskedTokenPredictor,
    ids: Sequence[list[int]],
    *,
    share: float = 0.15,
    temperature: float = 1.0,
    seed: int = 0,
) -> CorruptedTokens:
    """Replace a fraction of the tokens of each text (at least one), and score the original and the corrupted text.

    Args:
        ids: the token ids of each text, without special tokens; texts may be empty.
        share: the fraction of tokens that are masked.
        temperature: the temperature of sampling; log-probabilities and entropies are those at temperature 1.

    Raises:
        DataError: the vocabularies differ.
    """
    if scorer.tokenizer.get_vocab() != generator.tokenizer.get_vocab():
        raise DataError("the discriminator and the generator have different vocabularies; give two of one run")
    rng = np.random.default_rng(seed)
    positions = sample_mask_positions(ids, share, rng)
    # One uniform number per position, drawn in advance: samples must not depend on the order of reading texts.
    uniforms = [rng.random(len(masked)) for masked in positions]
    corrupted = [list(tokens) for tokens in ids]
    values = [np.zeros((4, len(masked))) for masked in positions]
    entries = vocabulary_size(generator.tokenizer)  # the rows behind them pad the table and are never sampled
    for text, part, log_probabilities_nV in generator(ids, positions):
        slots = np.searchsorted(positions[text], part)
        original_n = torch.tensor([ids[text][position] for position in part])
        sampled_n = sample_tokens(log_probabilities_nV[:, :entries] / temperature, uniforms[text][slots])
        values[text][:, slots] = _generator_values(log_probabilities_nV, original_n, sampled_n)
        for position, token in zip(part, sampled_n.tolist(), strict=True):
            corrupted[text][position] = token
    lengths = [len(tokens) for tokens in ids]
    starts = np.cumsum([0, *lengths])
    masked_N = np.zeros(starts[-1], bool)
    for start, masked in zip(starts, positions, strict=False):
        masked_N[start + masked] = True
    original, sampled, entropy, rank = np.concatenate([np.zeros((4, 0)), *values], 1)
    return CorruptedTokens(
        text_N=np.repeat(np.arange(len(ids)), lengths),
        position_N=np.arange(starts[-1]) - np.repeat(starts[:-1], lengths),
        original_N=flatten(ids),
        corrupted_N=flatten(corrupted),
        masked_N=masked_N,
        logits_N=np.concatenate([np.zeros(0, np.float32), *scorer.logits(corrupted)]),
        clean_logits_N=np.concatenate([np.zeros(0, np.float32), *scorer.logits(ids)]),
        original_log_probability_n=original.astype(np.float32),
        sampled_log_probability_n=sampled.astype(np.float32),
        entropy_n=entropy.astype(np.float32),
        rank_n=rank.astype(np.int64),
    )


def sample_mask_positions(ids: Sequence[list[int]], share: float, rng: np.random.Generator) -> list[Numbers]:
    """Sample the positions to mask in each text, sorted: a fraction of its tokens, at least one if it has any."""
    counts = [min(len(tokens), max(1, round(share * len(tokens)))) for tokens in ids]
    return [
        np.sort(rng.choice(len(tokens), count, replace=False)) for tokens, count in zip(ids, counts, strict=True)
    ]


def flatten(ids: Sequence[list[int]]) -> Numbers:
    """The tokens of all texts, concatenated."""
    return np.fromiter(chain.from_iterable(ids), np.int64)


def sample_tokens(logits_nV: torch.Tensor, uniforms_n: NDArray[np.float64]) -> torch.Tensor:
    """Sample a token for each row by inverting the cumulative distribution at a uniform number."""
    cumulative_nV = logits_nV.double().softmax(-1).cumsum(-1)
    targets_n1 = torch.from_numpy(uniforms_n)[:, None] * cumulative_nV[:, -1:]
    return torch.searchsorted(cumulative_nV, targets_n1, right=True).squeeze(-1).clamp(max=logits_nV.shape[1] - 1)


def _generator_values(
    log_probabilities_nV: torch.Tensor, original_n: torch.Tensor, sampled_n: torch.Tensor
) -> NDArray[np.float64]:
    """Log-probability of the original and of the sample, entropy, rank of the original (4, n)."""
    original = log_probabilities_nV.gather(1, original_n[:, None])
    sampled = log_probabilities_nV.gather(1, sampled_n[:, None])
    entropy = -(log_probabilities_nV.exp() * log_probabilities_nV).sum(1)
    rank = (log_probabilities_nV > original).sum(1)
    return torch.stack([original.squeeze(1), sampled.squeeze(1), entropy, rank]).double().numpy()
