"""What an objective knows of the tokens beside their ids.

Shapes: V entries of the vocabulary, n those that may stand in a text.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from electra.data.tokenizer import SpecialTokens

FakesKind = Literal["generator", "frozen", "uniform", "unigram", "same-tag"]
"""Where replacement tokens come from."""


class Vocabulary(nn.Module):
    """Tables over the vocabulary. They are no weights: neither trained nor kept in checkpoints.

    Args:
        size: entries of the vocabulary.
        counts_V: how often each token occurs in the text to learn from.
        continues_V: True where a token goes on with the word before it.
        tags_V: the part of speech of each token, as a number.
    """

    usable_n: Tensor
    """All ids but the special ones."""
    counts_V: Tensor | None
    continues_V: Tensor | None
    tags_V: Tensor | None

    def __init__(
        self,
        special: SpecialTokens,
        size: int,
        *,
        counts_V: Tensor | None = None,
        continues_V: Tensor | None = None,
        tags_V: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.special, self.size = special, size
        usable = torch.tensor([token for token in range(size) if token not in special.ids])
        tables = {"usable_n": usable, "counts_V": counts_V, "continues_V": continues_V, "tags_V": tags_V}
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def gives(self, fakes: FakesKind) -> bool:
        """Whether fakes of this kind can be drawn from the tables that are there."""
        needed = {"uniform": self.usable_n, "unigram": self.counts_V, "same-tag": self.tags_V}[fakes]
        return needed is not None and not self.usable_n.is_meta
