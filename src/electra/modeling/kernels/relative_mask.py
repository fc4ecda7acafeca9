"""Which keys the queries of relative attention may look at, and how far they are: the same for all blocks.

The keys are what the memory holds and then the tokens of the row, in their order.

Shapes: B batch, L length, M memory, C = M + L keys, N positions or targets, X queries, R distances, D hidden size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class QueryMask:
    """From where queries look, and at what.

    Attributes:
        places_BX: of each query among the tokens of its row; (1, X) where that is the same in all rows.
        running: so many of the first queries stand at 0, 1, 2 and so on: one for each token of the row, or 0.
        length, keys, distances: L, C and R.
        left: a query may look at no later position.
        bias_BXC: what is added to the scores, 0 or -inf; (1, X, C) where that is the same in all rows; None: 0.
        different_BXC: True where query and key are of different segments; None: all are of one.
        fully_masked_BX: True at queries that may look at nothing. Their bias is 0, so that everything stays
            finite, and their result is to be replaced by 0. None: there are none.
    """

    places_BX: Tensor
    running: int
    length: int
    keys: int
    distances: int
    left: bool
    bias_BXC: Tensor | None = None
    different_BXC: Tensor | None = None
    fully_masked_BX: Tensor | None = None

    def run_BXC(self, first: int = 0) -> Tensor:
        """The row of `distances` for each query from `first` on and each key.

        Those of a query run up by one with the key; they start one earlier for a query that stands one later.
        Where a query looks to the left alone, the last row stands for all the keys to its right.
        """
        starts_BX = self.length - 1 - self.places_BX[:, first:]
        keys_C = torch.arange(self.keys, device=starts_BX.device)
        return (starts_BX[:, :, None] + keys_C).clamp(max=self.distances - 1)


@dataclass(frozen=True)
class MaskSpec:
    """What may be looked at in a batch, from which the sight of any of its queries follows.

    Attributes:
        ids_BL: tell the batch's shape alone.
        segment_ids_BL: None: all tokens are of one segment. What the memory holds is of segment 0.
        attention_mask_BL: True at tokens; None: everywhere.
        held_BM: True at the slots of the memory that hold a token; None: at all of them.
        slots: of the memory, M.
        permutation_BLL: True where the first position may look at the second; None: everywhere.
        left: a query may look at no later position.
    """

    ids_BL: Tensor
    segment_ids_BL: Tensor | None = None
    attention_mask_BL: Tensor | None = None
    held_BM: Tensor | None = None
    slots: int = 0
    permutation_BLL: Tensor | None = None
    left: bool = False

    def query_mask(self, positions_BN: Tensor | None, targets_BN: Tensor | None) -> QueryMask:
        """That of the tokens at certain positions (None: of all tokens), then of targets."""
        (B, L), device = self.ids_BL.shape, self.ids_BL.device
        places_BX = torch.arange(L, device=device)[None] if positions_BN is None else positions_BN
        tokens = places_BX.shape[1]
        if targets_BN is not None:
            places_BX = torch.cat([places_BX.expand(B, -1), targets_BN], 1)
        bias_BXC = different_BXC = fully_masked_BX = None
        visible_BXC = self._visible(places_BX, tokens)
        if visible_BXC is not None:
            if targets_BN is not None:  # tokens see themselves
                fully_masked_BX = ~visible_BXC.any(-1)
                visible_BXC = visible_BXC | fully_masked_BX[:, :, None]
            bias_BXC = torch.zeros(visible_BXC.shape, device=device).masked_fill_(~visible_BXC, -torch.inf)
        if self.segment_ids_BL is not None:
            of_memory_BM = self.segment_ids_BL.new_zeros(B, self.slots)
            of_keys_BC = torch.cat([of_memory_BM, self.segment_ids_BL], 1)
            of_queries_BX = self.segment_ids_BL.gather(1, places_BX.expand(B, -1))
            different_BXC = of_queries_BX[:, :, None] != of_keys_BC[:, None]
        return QueryMask(
            places_BX=places_BX,
            running=L if positions_BN is None else 0,
            length=L,
            keys=self.slots + L,
            distances=len(distances(L, self.slots + L, left=self.left)),
            left=self.left,
            bias_BXC=bias_BXC,
            different_BXC=different_BXC,
            fully_masked_BX=None
            if fully_masked_BX is None or (can_sync(fully_masked_BX) and not fully_masked_BX.any())
            else fully_masked_BX,
        )

    def _visible(self, places_BX: Tensor, tokens: int) -> Tensor | None:
        """True where a query may look (B, X, C), or (1, X, C); None: everywhere. The first queries are tokens."""
        B, L = self.ids_BL.shape
        X, keys_L = places_BX.shape[1], torch.arange(L, device=places_BX.device)
        limits = []
        if self.left:
            limits.append(places_BX[:, :, None] >= keys_L)
        if self.permutation_BLL is not None:
            limits.append(self.permutation_BLL.gather(1, places_BX.expand(B, -1)[:, :, None].expand(-1, -1, L)))
        if self.attention_mask_BL is not None:
            limits.append(self.attention_mask_BL[:, None])
        if not limits and self.held_BM is None and tokens == X:
            return None
        own_BXL = places_BX[:, :, None] == keys_L
        visible_BXL = torch.ones_like(own_BXL)
        for limit in limits:
            visible_BXL = visible_BXL & limit
        # A token may always look at itself, a target never at its own token.
        visible_BXL = torch.cat(
            [(visible_BXL | own_BXL)[:, :tokens], (visible_BXL & ~own_BXL)[:, tokens:]], 1
        )  # fmt: skip
        if not self.slots:
            return visible_BXL
        if self.held_BM is None:
            return torch.cat([visible_BXL.new_ones(len(visible_BXL), X, self.slots), visible_BXL], 2)
        held_BXM = self.held_BM[:, None].expand(-1, X, -1)
        return torch.cat([held_BXM, visible_BXL.expand(B, -1, -1)], 2)


def distances(length: int, keys: int, *, left: bool) -> range:
    """How far before a query a key may stand, from the furthest to the nearest, and on to the other side.

    Looking both ways these are C + L - 1. To the left alone they are C and one more, -1, which no query uses: it
    keeps the runs of the queries apart in memory (`relative_attention`).
    """
    return range(keys - 1, -2 if left else -length, -1)


def sinusoids(rows: range, size: int, device: torch.device) -> Tensor:
    """The vectors of distances (R, D): sines, then cosines (Transformer-XL, section 3.3).

    In float32, whatever the network is in: 3e-5 of an angle are rounded away at a distance of 500, and weights
    that were trained with that are to give the same elsewhere.
    """
    distance_R = torch.arange(rows.start, rows.stop, rows.step, device=device, dtype=torch.float32)
    exponents = torch.arange(0, size, 2, device=device, dtype=torch.float32) / size
    angles = distance_R[:, None] * (1 / torch.pow(10_000, exponents))
    return torch.cat([angles.sin(), angles.cos()], -1)


def can_sync(values: Tensor) -> bool:
    """Whether to look at values before going on: on an accelerator that would stall the queue."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()
