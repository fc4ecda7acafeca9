"""Shared weights: embedding tables of another network, and blocks that share their weights.

Shapes: V rows, E embedding size; `*` any leading dimensions.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LayerSharing = Literal["none", "all", "attention", "feed-forward"]
"""Which weights the blocks of an encoder share (Lan et al. 2020, ALBERT, section 3.1)."""
SHARED_MODULES: dict[LayerSharing, tuple[str, ...]] = {
    "none": (),
    "all": ("attention", "attention_norm", "feed_forward", "feed_forward_norm"),
    "attention": ("attention", "attention_norm"),
    "feed-forward": ("feed_forward", "feed_forward_norm"),
}

EmbeddingSharing = Literal["tables", "tokens", "detached", "disentangled"]
"""How the embedding tables of another network are used. tables: all three tables. tokens: the token table only.
detached: all three, without a gradient from this network. disentangled: as detached, plus a trained difference."""


class DetachedEmbedding(nn.Module):
    """The embedding table of another network, without a gradient, plus a trained difference.

    The difference of new networks starts at 0 (gradient-disentangled embedding sharing: He et al. 2021, DeBERTaV3,
    section 3.3).

    Args:
        table: the table of the other network.
        with_difference: whether there is a difference.
    """

    def __init__(self, table: nn.Embedding, *, with_difference: bool) -> None:
        super().__init__()
        self.table = table
        self.difference = nn.Parameter(torch.zeros_like(table.weight)) if with_difference else None

    @property
    def weight(self) -> Tensor:
        """The sum of table and difference (V, E)."""
        table_VE = self.table.weight.detach()
        return table_VE if self.difference is None else table_VE + self.difference

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings (*, E)."""
        rows = F.embedding(ids, self.table.weight.detach())
        return rows if self.difference is None else rows + F.embedding(ids, self.difference)

    @torch.no_grad()
    def start_from(self, weight_VE: Tensor, *, keep_table: bool) -> None:
        """Give the sum these values, by the difference or by the table of the other network.

        Args:
            keep_table: the table keeps its values. Without a difference they are the sum.
        """
        if not keep_table:
            self.table.weight.copy_(weight_VE)
        elif self.difference is not None:
            self.difference.copy_(weight_VE - self.table.weight)


AnyEmbedding = nn.Embedding | DetachedEmbedding


def share_embedding(table: AnyEmbedding, sharing: EmbeddingSharing) -> AnyEmbedding:
    """Return the module that a network uses in place of a table of its own."""
    if sharing in ("tables", "tokens"):
        return table
    assert isinstance(table, nn.Embedding)
    return DetachedEmbedding(table, with_difference=sharing == "disentangled")


def share_layers(blocks: list[nn.Module], sharing: LayerSharing, groups: int) -> None:
    """Make the blocks of each group use modules of the first block of the group.

    Args:
        groups: number of groups of consecutive blocks; blocks share modules within their group only.
    """
    firsts: dict[int, nn.Module] = {}
    for number, block in enumerate(blocks):
        first = firsts.setdefault(layer_group(number, layers=len(blocks), groups=groups), block)
        for name in SHARED_MODULES[sharing]:
            setattr(block, name, getattr(first, name))


def layer_group(layer: int, *, layers: int, groups: int) -> int:
    """Return the group of a block."""
    return layer * groups // layers


def standalone_parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters by name, for a copy of the network without shared weights.

    Shared weights of blocks are yielded once for each block, and a `DetachedEmbedding` as one table.
    """
    detached = _detached_embeddings(module)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if not name.startswith(tuple(f"{outer}." for outer in detached)):
            yield name, parameter
    for name, inner in detached.items():
        yield f"{name}.weight", inner.weight


def load_standalone(module: nn.Module, state_dict: dict[str, Tensor], *, keep_tables: bool) -> None:
    """Load the weights of a network without shared weights.

    Args:
        state_dict: of a network of the same shape, which has a table in place of each `DetachedEmbedding`.
        keep_tables: as `keep_table` of `DetachedEmbedding.start_from`.
    """
    detached = _detached_embeddings(module)
    others = dict(state_dict)
    for name, inner in detached.items():
        inner.start_from(others.pop(f"{name}.weight"), keep_table=keep_tables)
    own = {f"{name}.{part}" for name, inner in detached.items() for part in inner.state_dict()}
    missing, unknown = module.load_state_dict(others, strict=False)
    assert set(missing) == own and not unknown, f"missing: {set(missing) - own}; unknown: {unknown}"


def _detached_embeddings(module: nn.Module) -> dict[str, DetachedEmbedding]:
    return {name: inner for name, inner in module.named_modules() if isinstance(inner, DetachedEmbedding)}
