"""Tables over the vocabulary that objectives need: special tokens, counts, parts of speech, trigrams.

Shapes: V entries of the vocabulary, n ordinary (not special) entries, M trigrams of the text.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from electra.data.tokenizer import SpecialTokens

FakesKind = Literal["generator", "frozen", "uniform", "unigram", "bigram", "trigram", "same-tag"]
"""Source of replaced tokens (see objective.fakes)."""
NGRAMS: tuple[FakesKind, ...] = ("bigram", "trigram")
"""Those that are drawn from trigrams of the training text."""


class Vocabulary(nn.Module):
    """Tables over the vocabulary, as buffers that are not saved in checkpoints.

    Args:
        size: rows of the table of the vocabulary.
        entries: entries of the tokenizer; the rows after them pad the table and are never sampled. None: all rows.
        counts_V: the number of occurrences of each token in the training text.
        continues_V: True if a token continues the word before it (such as WordPiece's "##ing").
        tags_V: the part of speech of each token, as a number.
        trigrams_M: the trigrams of the training text (data/ngrams.py), with `size` as factor.
    """

    usable_n: Tensor
    """All ids of the tokenizer except those of special tokens."""
    counts_V: Tensor | None
    continues_V: Tensor | None
    tags_V: Tensor | None
    trigrams_M: Tensor | None

    def __init__(
        self,
        special: SpecialTokens,
        size: int,
        *,
        entries: int | None = None,
        counts_V: Tensor | None = None,
        continues_V: Tensor | None = None,
        tags_V: Tensor | None = None,
        trigrams_M: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.special, self.size = special, size
        self.entries = size if entries is None else min(entries, size)
        usable = torch.tensor([token for token in range(self.entries) if token not in special.ids])
        tables = {
            "usable_n": usable, "counts_V": counts_V, "continues_V": continues_V, "tags_V": tags_V,
            "trigrams_M": trigrams_M,
        }  # fmt: skip
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    @property
    def text_n(self) -> Tensor:
        """All ids that a text can have: the ordinary ones and that of [UNK] (see `masking.text_mask`)."""
        return torch.cat([self.usable_n, self.usable_n.new_tensor([self.special.unknown])])

    @property
    def sampled_entries(self) -> int:
        """Number of the first rows that can be sampled; 0: all."""
        return self.entries if self.entries < self.size else 0

    def can_sample(self, fakes: FakesKind) -> bool:
        """Whether these tables are enough to sample replacements of this kind."""
        needed = {
            "uniform": self.usable_n, "unigram": self.counts_V, "same-tag": self.tags_V,
            "bigram": self.trigrams_M, "trigram": self.trigrams_M,
        }[fakes]  # fmt: skip
        return needed is not None and not self.usable_n.is_meta
