"""Which keys each query of relative attention may attend to, and their distances. All blocks use the same mask.

The keys are the tokens in memory, then the tokens of the row, in order.

Shapes: B batch, L length, M memory length, C = M + L keys, N positions or targets, X queries, R distances,
D hidden size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class QueryMask:
    """The positions of the queries, and the keys that they may attend to.

    Attributes:
        positions_BX: position of each query in its row; (1, X) if all rows are the same.
        consecutive: number of queries at the beginning that are at positions 0, 1, 2, ...: L or 0.
        length, keys, distances: L, C and R.
        causal: a query attends to no later position.
        bias_BXC: 0 or -inf, which is added to the scores; (1, X, C) if all rows are the same; None: 0 everywhere.
        other_segment_BXC: True where query and key belong to different segments; None: there is one segment.
        fully_masked_BX: True at queries that may attend to no key. Their bias is 0, so that the softmax stays
            finite; their output must be replaced with 0. None: there are none.
    """

    positions_BX: Tensor
    consecutive: int
    length: int
    keys: int
    distances: int
    causal: bool
    bias_BXC: Tensor | None = None
    other_segment_BXC: Tensor | None = None
    fully_masked_BX: Tensor | None = None

    def distance_indices_BXC(self, first: int = 0) -> Tensor:
        """Return the index in `distances` for each query from `first` on and each key.

        The index grows by one from key to key, and is one smaller for a query one position later. In causal
        attention the last index is used for all keys after the query.
        """
        starts_BX = self.length - 1 - self.positions_BX[:, first:]
        keys_C = torch.arange(self.keys, device=starts_BX.device)
        return (starts_BX[:, :, None] + keys_C).clamp(max=self.distances - 1)


@dataclass(frozen=True)
class MaskSpec:
    """What decides the masks of a batch; `query_mask` makes the mask for some of its queries.

    Attributes:
        ids_BL: only their shape is used.
        segment_ids_BL: None: there is one segment. Tokens in memory belong to segment 0.
        attention_mask_BL: True at tokens, False at padding; None: there is no padding.
        memory_mask_BM: True at places of the memory that hold a token; None: all do.
        memory_length: M.
        permutation_BLL: True where the first position may attend to the second; None: everywhere.
        causal: a query attends to no later position.
    """

    ids_BL: Tensor
    segment_ids_BL: Tensor | None = None
    attention_mask_BL: Tensor | None = None
    memory_mask_BM: Tensor | None = None
    memory_length: int = 0
    permutation_BLL: Tensor | None = None
    causal: bool = False

    def query_mask(self, positions_BN: Tensor | None, targets_BN: Tensor | None) -> QueryMask:
        """Return the mask of the queries: the tokens at `positions_BN` (None: all tokens), then the targets.

        A token always attends to itself; a target never attends to the token at its position.
        """
        (B, L), device = self.ids_BL.shape, self.ids_BL.device
        positions_BX = torch.arange(L, device=device)[None] if positions_BN is None else positions_BN
        tokens = positions_BX.shape[1]
        if targets_BN is not None:
            positions_BX = torch.cat([positions_BX.expand(B, -1), targets_BN], 1)
        bias_BXC = other_segment_BXC = fully_masked_BX = None
        visible_BXC = self._visible(positions_BX, tokens)
        if visible_BXC is not None:
            if targets_BN is not None:  # only targets can be fully masked
                fully_masked_BX = ~visible_BXC.any(-1)
                visible_BXC = visible_BXC | fully_masked_BX[:, :, None]
            bias_BXC = torch.zeros(visible_BXC.shape, device=device).masked_fill_(~visible_BXC, -torch.inf)
        if self.segment_ids_BL is not None:
            memory_segments_BM = self.segment_ids_BL.new_zeros(B, self.memory_length)
            key_segments_BC = torch.cat([memory_segments_BM, self.segment_ids_BL], 1)
            query_segments_BX = self.segment_ids_BL.gather(1, positions_BX.expand(B, -1))
            other_segment_BXC = query_segments_BX[:, :, None] != key_segments_BC[:, None]
        return QueryMask(
            positions_BX=positions_BX,
            consecutive=L if positions_BN is None else 0,
            length=L,
            keys=self.memory_length + L,
            distances=len(distances(L, self.memory_length + L, causal=self.causal)),
            causal=self.causal,
            bias_BXC=bias_BXC,
            other_segment_BXC=other_segment_BXC,
            fully_masked_BX=None
            if fully_masked_BX is None or (can_sync(fully_masked_BX) and not fully_masked_BX.any())
            else fully_masked_BX,
        )

    def _visible(self, positions_BX: Tensor, tokens: int) -> Tensor | None:
        """Return True where a query may attend, (B, X, C) or (1, X, C); None: everywhere.

        Args:
            tokens: number of queries at the beginning that are tokens; the others are targets.
        """
        B, L = self.ids_BL.shape
        X, keys_L = positions_BX.shape[1], torch.arange(L, device=positions_BX.device)
        limits = []
        if self.causal:
            limits.append(positions_BX[:, :, None] >= keys_L)
        if self.permutation_BLL is not None:
            limits.append(self.permutation_BLL.gather(1, positions_BX.expand(B, -1)[:, :, None].expand(-1, -1, L)))
        if self.attention_mask_BL is not None:
            limits.append(self.attention_mask_BL[:, None])
        if not limits and self.memory_mask_BM is None and tokens == X:
            return None
        own_BXL = positions_BX[:, :, None] == keys_L
        visible_BXL = torch.ones_like(own_BXL)
        for limit in limits:
            visible_BXL = visible_BXL & limit
        visible_BXL = torch.cat(
            [(visible_BXL | own_BXL)[:, :tokens], (visible_BXL & ~own_BXL)[:, tokens:]], 1
        )  # fmt: skip
        if not self.memory_length:
            return visible_BXL
        if self.memory_mask_BM is None:
            return torch.cat([visible_BXL.new_ones(len(visible_BXL), X, self.memory_length), visible_BXL], 2)
        memory_mask_BXM = self.memory_mask_BM[:, None].expand(-1, X, -1)
        return torch.cat([memory_mask_BXM, visible_BXL.expand(B, -1, -1)], 2)


def distances(length: int, keys: int, *, causal: bool) -> range:
    """Return the possible distances (position of the query minus position of the key), in descending order.

    In both directions these are C + L - 1 distances. Causal attention has C, plus -1, which no query uses. The
    additional one is needed so that the views of different queries do not overlap (`relative_attention._Tile`).
    """
    return range(keys - 1, -2 if causal else -length, -1)


def sinusoids(values: range, size: int, device: torch.device) -> Tensor:
    """Return the sinusoidal encoding of each distance (R, D): sines, then cosines (Transformer-XL, section 3.3).

    Always in float32, whatever the dtype of the network: rounding changes an angle by 3e-5 at a distance of 500,
    and weights that were trained with this rounding must give the same states everywhere.
    """
    distance_R = torch.arange(values.start, values.stop, values.step, device=device, dtype=torch.float32)
    exponents = torch.arange(0, size, 2, device=device, dtype=torch.float32) / size
    angles = distance_R[:, None] * (1 / torch.pow(10_000, exponents))
    return torch.cat([angles.sin(), angles.cos()], -1)


def can_sync(values: Tensor) -> bool:
    """Whether values can be read without a stall: on an accelerator the queue would have to finish first."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()
