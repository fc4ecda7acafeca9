"""Weights in several places: tables that one network takes from another, blocks that share what they learn.

Shapes: V rows, E embedding size; `*` any leading dimensions.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LayerSharing = Literal["none", "all", "attention", "feed-forward"]
"""What the blocks of one encoder have in common (Lan et al. 2020, ALBERT, section 3.1)."""
SHARED_PARTS: dict[LayerSharing, tuple[str, ...]] = {
    "none": (),
    "all": ("attention", "attention_norm", "feed_forward", "feed_forward_norm"),
    "attention": ("attention", "attention_norm"),
    "feed-forward": ("feed_forward", "feed_forward_norm"),
}

Share = Literal["tables", "tokens", "detached", "disentangled"]
"""Of another network's embeddings: all three tables; that of the tokens alone; all three, but without a gradient
from this network; or all three without a gradient, each with a difference that is this network's own."""


class BorrowedEmbedding(nn.Module):
    """Rows of another network's table, which gets no gradient from here, plus a difference of this network's own.

    The difference starts at 0 (He et al. 2021, DeBERTaV3: gradient-disentangled embedding sharing).

    Args:
        table: the other network's.
        learns: whether there is a difference; without, the rows are read as they are.
    """

    def __init__(self, table: nn.Embedding, *, learns: bool) -> None:
        super().__init__()
        self.table = table
        self.difference = nn.Parameter(torch.zeros_like(table.weight)) if learns else None

    @property
    def weight(self) -> Tensor:
        """The rows as this network sees them (V, E)."""
        borrowed_VE = self.table.weight.detach()
        return borrowed_VE if self.difference is None else borrowed_VE + self.difference

    def forward(self, ids: Tensor) -> Tensor:
        """Rows (*, E)."""
        rows = F.embedding(ids, self.table.weight.detach())
        return rows if self.difference is None else rows + F.embedding(ids, self.difference)


AnyEmbedding = nn.Embedding | BorrowedEmbedding


def shared(table: AnyEmbedding, share: Share) -> AnyEmbedding:
    """What a network has in place of a table of its own."""
    if share in ("tables", "tokens"):
        return table
    assert isinstance(table, nn.Embedding)
    return BorrowedEmbedding(table, learns=share == "disentangled")


def share_parts(blocks: list[nn.Module], sharing: LayerSharing, groups: int) -> None:
    """Let the blocks of each group use the parts of its first one.

    Args:
        groups: how many runs of as many blocks each there are; none shares anything with another.
    """
    firsts: dict[int, nn.Module] = {}
    for number, block in enumerate(blocks):
        first = firsts.setdefault(group_of(number, layers=len(blocks), groups=groups), block)
        for name in SHARED_PARTS[sharing]:
            setattr(block, name, getattr(first, name))


def group_of(layer: int, *, layers: int, groups: int) -> int:
    """The group that a block belongs to."""
    return layer * groups // layers


def plain_parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a network by name, borrowed tables as what they amount to, and what blocks share once for
    each: for a copy that stands alone."""
    borrowed = {name: inner for name, inner in module.named_modules() if isinstance(inner, BorrowedEmbedding)}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if not name.startswith(tuple(f"{outer}." for outer in borrowed)):
            yield name, parameter
    for name, inner in borrowed.items():
        yield f"{name}.weight", inner.weight
