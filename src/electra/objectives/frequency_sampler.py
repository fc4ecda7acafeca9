"""Tokens drawn by frequency, independently of their context: replacements, and negatives of a correction.

Shapes: B batch, L length, N slots a row, n = B × N, V vocabulary.
"""

import torch
from torch import Tensor, nn

from electra.objectives.masking import Masking
from electra.objectives.vocabulary import FakesKind, Vocabulary


class FrequencySampler(nn.Module):
    """Samples replacements by token frequency, independently of the context.

    Args:
        kind: uniform: every token is equally likely. unigram: tokens in proportion to (count + 1) ** power.
            same-tag: the same, among tokens with the part of speech of the original token.
        ids_n: the tokens that can be sampled. None: the ordinary ones of the vocabulary.
    """

    order_V: Tensor
    cumulative_V: Tensor
    before_V: Tensor
    total_V: Tensor

    def __init__(
        self, kind: FakesKind, vocabulary: Vocabulary, *, power: float, ids_n: Tensor | None = None
    ) -> None:
        super().__init__()
        ids_n = vocabulary.usable_n if ids_n is None else ids_n
        weights_V = torch.zeros(vocabulary.size, dtype=torch.float64)
        if kind == "uniform":
            weights_V[ids_n] = 1.0
        else:
            assert vocabulary.counts_V is not None
            weights_V[ids_n] = (vocabulary.counts_V[ids_n].double() + 1) ** power
        tags_V = torch.zeros(vocabulary.size, dtype=torch.int64)
        if kind == "same-tag":
            assert vocabulary.tags_V is not None
            tags_V = vocabulary.tags_V
        order_V = tags_V.argsort(stable=True)
        totals_T = torch.zeros(int(tags_V.max()) + 1, dtype=torch.float64).scatter_add_(0, tags_V, weights_V)
        tables = {
            "order_V": order_V,
            "cumulative_V": weights_V[order_V].cumsum(0),
            "before_V": (totals_T.cumsum(0) - totals_T)[tags_V],
            "total_V": totals_T[tags_V],
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def forward(self, ids_BL: Tensor, masking: Masking, uniforms_n: Tensor) -> Tensor:
        """Sample a replacement for each slot (n)."""
        return self.sample(masking.gather(ids_BL), uniforms_n)

    def sample(self, targets_n: Tensor, uniforms_n: Tensor) -> Tensor:
        """Sample a replacement for each original token (n)."""
        goals_n = self.before_V[targets_n] + uniforms_n.to(self.total_V.dtype) * self.total_V[targets_n]
        index_n = torch.searchsorted(self.cumulative_V, goals_n, right=True)
        return self.order_V[index_n.clamp_(max=len(self.order_V) - 1)]
