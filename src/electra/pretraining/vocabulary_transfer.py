"""A trained network for another vocabulary: the rows of its token table, and the biases of its logits.

A row of the new table is that of the same token in the old vocabulary, or the mean of the rows of the pieces into
which the old tokenizer splits the token's text. Tokens of different kinds of tokenizers are the same if their text
is, and if both begin a word or both continue one.

Shapes: V old vocabulary, W new vocabulary, E embedding size, n pieces.
"""

from dataclasses import dataclass, replace

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.token_texts import TokenText, TokenTexts
from electra.data.tokenizer import special_tokens, vocabulary_size
from electra.export.pretrained import Pretrained
from electra.modeling.encoders.base import EncoderModule


@dataclass(frozen=True)
class RowSources:
    """Where the rows of a new token table come from.

    Attributes:
        pieces: ids in the old vocabulary for each id of the new one; none: the row is new.
        special, copied, averaged, new: how many rows are those of special tokens, those of tokens that both
            vocabularies have, means of pieces, and new.
    """

    pieces: tuple[tuple[int, ...], ...]
    special: int
    copied: int
    averaged: int
    new: int

    def __str__(self) -> str:
        return (
            f"{len(self.pieces):,} tokens: {self.special} special and {self.copied:,} others have the rows of the "
            f"same token, {self.averaged:,} the mean of the old tokenizer's pieces of their text, "
            f"{self.new:,} new rows"
        )


def find_sources(old: Tokenizer, new: Tokenizer, *, fresh: bool = False) -> RowSources:
    """Return the source of each row of a token table for the tokenizer `new`.

    Args:
        old: the tokenizer of the trained network.
        fresh: only special tokens have rows of the old table.
    """
    roles = dict(zip(special_tokens(new).ids, special_tokens(old).ids, strict=True))
    before, after = TokenTexts(old), TokenTexts(new)
    pieces: list[tuple[int, ...]] = []
    copied = averaged = 0
    for number, text in enumerate(after.texts):
        if number in roles:
            pieces.append((roles[number],))
        elif fresh or text is None:
            pieces.append(())
        elif (same := _same_token(before, after, number, text)) is not None:
            pieces.append((same,))
            copied += 1
        else:
            pieces.append(before.split(text))
            averaged += bool(pieces[-1])
    new_rows = len(pieces) - len(roles) - copied - averaged
    return RowSources(tuple(pieces), len(roles), copied, averaged, new_rows)


def _same_token(old: TokenTexts, new: TokenTexts, number: int, text: TokenText) -> int | None:
    """Return the id of the same token in the old vocabulary."""
    if old.marker != new.marker:
        return old.ids.get(text)
    same = old.tokenizer.token_to_id(new.names[number])
    return None if same is None or old.texts[same] is None else same


@torch.no_grad()
def with_tokenizer(pretrained: Pretrained, tokenizer: Tokenizer, sources: RowSources, *, seed: int) -> Pretrained:
    """Return a trained network with the token table and the output biases for another tokenizer.

    New rows are drawn from a normal distribution with the mean and standard deviation of each column of the old
    table (Hewitt 2021). The biases of new tokens are the mean of the old ones.

    Args:
        seed: of the new rows, so that two networks with equal tables get equal tables.
    """
    encoder, head = pretrained.encoder, pretrained.head
    used_V = vocabulary_size(pretrained.tokenizer)  # rows behind the vocabulary were not trained
    table_VE = encoder.token_table.weight.detach()
    random = torch.Generator().manual_seed(seed)
    mean_E, deviation_E = table_VE[:used_V].mean(0), table_VE[:used_V].std(0)
    drawn_WE = mean_E + deviation_E * torch.randn(len(sources.pieces), len(mean_E), generator=random)
    _replace_table(encoder, _combine(table_VE, sources, drawn_WE))
    if isinstance(bias_V := getattr(head, "bias", None), nn.Parameter) and len(bias_V) == len(table_VE):
        assert head is not None
        transfer_bias(head, sources, used=used_V)
    return replace(pretrained, tokenizer=tokenizer)


@torch.no_grad()
def transfer_bias(head: nn.Module, sources: RowSources, *, used: int) -> None:
    """Replace the bias of a head, a number for each token, by one for another tokenizer.

    Args:
        used: size of the old vocabulary; the bias may have more numbers, which were not trained.
    """
    bias_V = head.bias
    assert isinstance(bias_V, nn.Parameter)
    average_W1 = bias_V[:used].mean().expand(len(sources.pieces), 1)
    head.bias = nn.Parameter(_combine(bias_V.detach()[:, None], sources, average_W1)[:, 0].contiguous())


def _combine(values_VE: Tensor, sources: RowSources, otherwise_WE: Tensor) -> Tensor:
    """Return the mean of the values of each token's pieces, or the other values where it has none (W, E)."""
    lengths_W = torch.tensor([len(ids) for ids in sources.pieces])
    indices_n = torch.tensor([number for ids in sources.pieces for number in ids])
    means_WE = F.embedding_bag(indices_n, values_VE, lengths_W.cumsum(0) - lengths_W, mode="mean")
    return torch.where(lengths_W[:, None] > 0, means_WE, otherwise_WE)


def _replace_table(encoder: EncoderModule, table_WE: Tensor) -> None:
    """Replace the token table of an encoder, which may get another number of rows."""
    encoder.embeddings.token = nn.Embedding.from_pretrained(table_WE, freeze=False)
    encoder.config = replace(encoder.config, vocabulary_size=len(table_WE))
