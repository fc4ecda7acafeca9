"""Replaced tokens from n-grams of the training text: fakes that fit their neighbors, without a network.

Shapes: B batch, L length, N slots a row, n = B × N, M trigrams, V vocabulary.
"""

import torch
from torch import Tensor, nn

from electra.objectives.frequency_sampler import FrequencySampler
from electra.objectives.masking import Masking
from electra.objectives.vocabulary import FakesKind, Vocabulary


class NgramSampler(nn.Module):
    """Samples replacements that the training text has between the same neighbors.

    The neighbors are those of the original text. The distributions are those of a trigram or bigram model without
    smoothing; where the text has no other token, the next shorter context is used, at last none.

    Args:
        kind: trigram: a token that stands between the same two tokens, never the original one; if there is none,
            as for bigram. bigram: a token that follows the same token, which can be the original one; if there is
            none, as for unigram.
        power: exponent of the frequencies for unigram.
    """

    trigrams_M: Tensor

    def __init__(self, kind: FakesKind, vocabulary: Vocabulary, *, power: float) -> None:
        super().__init__()
        assert vocabulary.trigrams_M is not None and kind in ("bigram", "trigram")
        self.kind, self.size = kind, vocabulary.size
        self.unigram = FrequencySampler("unigram", vocabulary, power=power)
        self.register_buffer("trigrams_M", vocabulary.trigrams_M, persistent=False)

    def forward(self, ids_BL: Tensor, masking: Masking, uniforms_n: Tensor) -> Tensor:
        """Sample a replacement for each slot (n)."""
        targets_n, size = masking.gather(ids_BL), self.size
        first_n = masking.gather(ids_BL.roll(1, 1)) * size
        samples_n, found_n = self._draw(first_n * size, (first_n + size) * size, uniforms_n)
        samples_n = torch.where(found_n, samples_n, self.unigram.sample(targets_n, uniforms_n))
        if self.kind == "trigram":
            start_n = (first_n + masking.gather(ids_BL.roll(-1, 1))) * size
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
        index_n = first_n + (uniforms_n.double() * count_n).long()
        if excluded_n is not None:
            index_n = torch.where(index_n >= left_n, index_n + skipped_n, index_n)
        index_n = index_n.clamp(max=len(self.trigrams_M) - 1)
        return self.trigrams_M[index_n] % self.size, count_n > 0
