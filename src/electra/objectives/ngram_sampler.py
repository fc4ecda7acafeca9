"""Replaced tokens from n-grams of the training text: fakes that fit their neighbors, without a network.

Shapes: B batch, L length, N slots a row, n = B × N, M trigrams, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.modeling.device import widest_float
from electra.objectives.frequency_sampler import FrequencySampler
from electra.objectives.masking import Masking
from electra.objectives.vocabulary import NGRAMS, FakesKind, Vocabulary


class NgramSampler(nn.Module):
    """Samples replacements that the training text has between the same neighbors.

    The neighbors are those of the original text. The distributions are those of a trigram or bigram model without
    smoothing.

    Args:
        kind: trigram: another token that stands between the same two tokens; if the text has none, as for bigram.
            bigram: a token that follows the same token, which can be the original one; if there is none, as for
            unigram.
        power: exponent of the frequencies for unigram.
    """

    def __init__(self, kind: FakesKind, vocabulary: Vocabulary, *, power: float) -> None:
        super().__init__()
        assert vocabulary.trigrams_M is not None and len(vocabulary.trigrams_M) > 0 and kind in NGRAMS
        self.kind, self.vocabulary = kind, vocabulary
        self.unigram = FrequencySampler("unigram", vocabulary, power=power)

    @property
    def trigrams_M(self) -> Tensor:
        """The table; it is not a buffer of its own, because it is large."""
        assert self.vocabulary.trigrams_M is not None
        return self.vocabulary.trigrams_M

    def forward(self, ids_BL: Tensor, masking: Masking, uniforms_n: Tensor) -> Tensor:
        """Sample a replacement for each slot (n)."""
        targets_n, size, pad = masking.gather(ids_BL), self.vocabulary.size, self.vocabulary.special.pad
        around_BL = F.pad(ids_BL, (1, 1), value=pad)
        first_n = masking.gather(around_BL[:, :-2]) * size
        samples_n, found_n = self._draw(first_n * size, (first_n + size) * size, uniforms_n)
        samples_n = torch.where(found_n, samples_n, self.unigram.sample(targets_n, uniforms_n))
        if self.kind == "trigram":
            start_n = (first_n + masking.gather(around_BL[:, 2:])) * size
            others_n, found_n = self._draw(start_n, start_n + size, uniforms_n, start_n + targets_n)
            samples_n = torch.where(found_n, others_n, samples_n)
        return samples_n

    def _draw(
        self, start_n: Tensor, end_n: Tensor, uniforms_n: Tensor, excluded_n: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw the middle token of a trigram with start ≤ code < end, and tell where there is one.

        Args:
            excluded_n: a code that is not drawn.
        """
        first_n, last_n = (torch.searchsorted(self.trigrams_M, code_n) for code_n in (start_n, end_n))
        count_n = last_n - first_n
        if excluded_n is not None:
            left_n, right_n = (torch.searchsorted(self.trigrams_M, excluded_n + step) for step in (0, 1))
            skipped_n = right_n - left_n
            count_n = count_n - skipped_n
        index_n = first_n + (uniforms_n.to(widest_float(uniforms_n.device)) * count_n).long()
        if excluded_n is not None:
            index_n = torch.where(index_n >= left_n, index_n + skipped_n, index_n)
        index_n = index_n.clamp(max=len(self.trigrams_M) - 1)
        return self.trigrams_M[index_n] % self.vocabulary.size, count_n > 0
