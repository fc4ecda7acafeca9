"""The config of masking. It needs no torch, so that a wrong setting is refused before torch is imported."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MaskingConfig:
    """Which positions are predicted, and what the input shows there."""

    kind: Literal["uniform", "frequency", "words", "spans", "ngrams"] = "uniform"
    """uniform: every token is equally likely. frequency: rare tokens are more likely (see frequency_power). words:
    whole words, as many as fit (none in a row so short that no word fits into its share). spans: spans of tokens
    of random length (see span_length). ngrams: spans of 1 to ngram_length whole words, where n words have a
    probability proportional to 1 / n (ALBERT)."""
    frequency_power: float = 0.5
    """For kind frequency: the probability of a token is proportional to its frequency to minus this power."""
    span_length: float = 3.0
    """For kind spans: mean number of tokens in a span (a geometric distribution)."""
    ngram_length: int = 3
    """For kind ngrams: number of words in the longest span."""
    copies: int = 0
    """Static masking: number of different masks for each example, used in turn (10 for BERT, according to
    RoBERTa). 0: dynamic masking, new masks in every epoch."""
    share: float = 0.15
    """Share of the tokens (except special ones) that are chosen for prediction."""
    mask_share: float = 0.85
    """Share of the chosen positions that show [MASK]. The rest keep their token, which helps the generator at the
    start."""
    random_share: float = 0.0
    """Share of the chosen positions that show a random token (BERT: 0.1, with a mask_share of 0.8)."""
    replacement: bool = False
    """Draw positions with replacement: one drawn twice counts twice in the generator's loss (original: true)."""
    count_special: bool = False
    """Take the share of all tokens of a row, including [CLS] and [SEP], not of its text only (original: true)."""
    average_repeats: bool = False
    """Where a position was drawn more than once, write the floored mean of the sampled ids, which can be a token
    that was not sampled, instead of the first sample (original: true)."""
    spare_first_position: bool = False
    """Never write to position 0, which the original uses for unused slots (original: true)."""

    def problems(self) -> Iterator[str]:
        if not 0 < self.share < 1:
            yield f"share: must lie between 0 and 1, got {self.share}"
        if not 0 < self.mask_share <= 1:
            yield f"mask_share: must lie in (0, 1], got {self.mask_share}"
        if not 0 <= self.random_share <= 1 - self.mask_share + 1e-9:
            yield f"random_share: must lie between 0 and 1 - mask_share, got {self.random_share}"
        if self.copies < 0:
            yield f"copies: must not be negative, got {self.copies}"
        if not self.span_length >= 1:
            yield f"span_length: must be at least 1, got {self.span_length}"
        if self.ngram_length < 1:
            yield f"ngram_length: must be at least 1, got {self.ngram_length}"
        if not self.frequency_power >= 0:
            yield f"frequency_power: must not be negative, got {self.frequency_power}"
        if self.replacement and self.random_share:
            yield "random_share: must be 0 with replacement, where a position could show [MASK] and a random token"
        if self.replacement and self.kind != "uniform":
            yield f"replacement: needs kind uniform, as in the original; kind is {self.kind}"
