"""Attention with relative positions: scores depend on the distance of query and key, not on absolute positions.

The score of a query q and a key k is a sum of up to three products (Dai et al. 2019, "Transformer-XL", section
3.3; Yang et al. 2019, "XLNet", section 2.5). Each adds a bias vector of its head to the query:

    (q + u) · k     content: what the key is about
    (q + v) · r     distance: r is the projection of the sinusoids of the distance from the key to the query
    (q + w) · e     segment: e is one of two vectors, for the same and for another segment

The sum is divided by the square root of the head size. r depends only on the distance, so the second term is one
matrix product (queries, distances) from which each query needs a slice: the slice of the next query starts one
distance earlier. A view with a row stride that is one smaller lines the slices up (`_Tile.relative_shift`).

Shapes: B batch, L length, M memory length, C = M + L keys, X queries, T queries of a tile, R distances (r:
distances of a tile), D hidden size, E = 2 D, H heads, K head size; G is 2, for keys and values in one tensor.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from electra.modeling.kernels.dropout import Dropout, DropoutMask
from electra.modeling.kernels.relative_mask import QueryMask


class RelativeAttention(nn.Module):
    """Multi-head attention over the memory and the tokens of a row; the projections have no biases.

    Args:
        dropout: dropout probability of the attention probabilities during training.
        segments: whether scores depend on segments.
    """

    def __init__(self, hidden_size: int, heads: int, *, dropout: float, segments: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key_value = nn.Linear(hidden_size, 2 * hidden_size, bias=False)
        self.position = nn.Linear(hidden_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)
        # One axis, like other biases, so that they get no weight decay.
        self.content_bias = nn.Parameter(torch.zeros(hidden_size))
        self.position_bias = nn.Parameter(torch.zeros(hidden_size))
        self.segment_bias = nn.Parameter(torch.zeros(hidden_size)) if segments else None
        self.segments = nn.Embedding(2, hidden_size) if segments else None
        self.dropout = Dropout(dropout)

    def forward(
        self,
        query_states_BXD: Tensor,
        x_BLD: Tensor,
        memory_BMD: Tensor | None,
        sinusoids_RD: Tensor,
        query_mask: QueryMask,
    ) -> Tensor:
        """Return the attention output (B, X, D).

        Args:
            query_states_BXD: the states that queries are computed from.
            x_BLD: the states of the row that keys and values are computed from.
            memory_BMD: the states in memory; None: there is no memory.
            sinusoids_RD: the encodings of `distances`.
            query_mask: the mask of these queries.
        """
        heads = self.heads, x_BLD.shape[-1] // self.heads
        query_BXHK = self.query(query_states_BXD).unflatten(-1, heads)
        context_BCE = self.key_value(x_BLD)
        if memory_BMD is not None:
            # A separate product, because the memory needs no gradient.
            context_BCE = torch.cat([self.key_value(memory_BMD), context_BCE], 1)
        context_BCGHK = context_BCE.unflatten(-1, (2, *heads))
        position_RHK = self.position(sinusoids_RD).unflatten(-1, heads)
        content_HK, distance_HK = (
            bias.to(query_BXHK.dtype).view(heads) for bias in (self.content_bias, self.position_bias)
        )
        segment_BXH = self._segment_scores(query_BXHK) if query_mask.other_segment_BXC is not None else None
        p = self.dropout.p if self.training else 0.0
        on_cpu = x_BLD.device.type == "cpu" and not torch.compiler.is_compiling()
        attend = attend_by_head if on_cpu else attend_fused
        y_BXHK = attend(
            query_BXHK, context_BCGHK, position_RHK, (content_HK, distance_HK), segment_BXH, query_mask, p
        )
        if query_mask.fully_masked_BX is not None:
            y_BXHK = y_BXHK.masked_fill(query_mask.fully_masked_BX[:, :, None, None], 0.0)
        return self.output(y_BXHK.flatten(2))

    def _segment_scores(self, query_BXHK: Tensor) -> Tensor | None:
        """Return the score of a key in another segment minus the score of a key in the same segment, unscaled.

        The difference is enough: the softmax does not change if the same number is added to all keys.
        """
        if self.segments is None or self.segment_bias is None:
            return None
        same_D, other_D = self.segments.weight
        difference_HK = (other_D - same_D).view(query_BXHK.shape[-2:])
        constant_H = (self.segment_bias.view(difference_HK.shape) * difference_HK).sum(-1)
        scores_BXH = torch.einsum("bxhk,hk->bxh", query_BXHK, difference_HK.to(query_BXHK.dtype))
        return scores_BXH + constant_H.to(scores_BXH.dtype)


Biases = tuple[Tensor, Tensor]
"""The vectors u and v that are added to the queries for content and for distance, each (H, K)."""


def attend_by_head(
    query_BXHK: Tensor,
    context_BCGHK: Tensor,
    position_RHK: Tensor,
    biases: Biases,
    segment_BXH: Tensor | None,
    query_mask: QueryMask,
    p: float,
) -> Tensor:
    """Return the attention output (B, X, H, K), with or without dropout, for a CPU.

    It computes one head at a time, so that the matrices of a head stay in the cache (see `attention`). The matrix
    product of the content scores adds them to the distance scores.

    Args:
        context_BCGHK: keys, then values.
        position_RHK: the projected sinusoids of the distances.
        segment_BXH: the score of a key in another segment minus that of a key in the same segment; None: 0.
        p: dropout probability of the attention probabilities.

    It equals `attend_plain` if both drop the same elements.
    """
    other_segment_BXC = None
    if segment_BXH is not None and query_mask.other_segment_BXC is not None:
        other_segment_BXC = query_mask.other_segment_BXC.to(query_BXHK.dtype)
    y: Tensor = _AttentionByHead.apply(  # type: ignore[no-untyped-call]
        query_BXHK, context_BCGHK, position_RHK, *biases, segment_BXH, other_segment_BXC, query_mask, p,
        torch.is_grad_enabled(),
    )  # fmt: skip
    return y


def attend_fused(
    query_BXHK: Tensor,
    context_BCGHK: Tensor,
    position_RHK: Tensor,
    biases: Biases,
    segment_BXH: Tensor | None,
    query_mask: QueryMask,
    p: float,
) -> Tensor:
    """Compute the same with PyTorch's fused kernel, for accelerators and torch.compile.

    The scores of distances and segments are the kernel's bias. On a CPU without gradients it takes as long as
    `attend_by_head` in float32, and twice as long in bfloat16.
    """
    content_HK, distance_HK = biases
    distance_scores_BHXR = torch.einsum("bxhk,rhk->bhxr", query_BXHK + distance_HK, position_RHK)
    indices_BHXC = query_mask.distance_indices_BXC()[:, None].expand(*distance_scores_BHXR.shape[:3], -1)
    scores_BHXC = distance_scores_BHXR.gather(3, indices_BHXC)
    if segment_BXH is not None and query_mask.other_segment_BXC is not None:
        scores_BHXC = scores_BHXC + segment_BXH.transpose(1, 2)[..., None] * query_mask.other_segment_BXC[:, None]
    scores_BHXC = scores_BHXC * query_BXHK.shape[-1] ** -0.5
    if query_mask.bias_BXC is not None:
        scores_BHXC = scores_BHXC + query_mask.bias_BXC[:, None].to(scores_BHXC.dtype)
    key_BHCK, value_BHCK = (x_BCHK.transpose(1, 2) for x_BCHK in context_BCGHK.unbind(2))
    query_BHXK = (query_BXHK + content_HK).transpose(1, 2)
    y_BHXK = F.scaled_dot_product_attention(
        query_BHXK, key_BHCK, value_BHCK, attn_mask=scores_BHXC.to(query_BHXK.dtype), dropout_p=p
    )
    return y_BHXK.transpose(1, 2)


def attend_plain(
    query_BXHK: Tensor,
    context_BCGHK: Tensor,
    position_RHK: Tensor,
    biases: Biases,
    segment_BXH: Tensor | None,
    query_mask: QueryMask,
    factors_HBXC: Tensor | float,
) -> Tensor:
    """Compute the same in the plain form, with a distance vector for every pair, for tests.

    Args:
        factors_HBXC: factors of the attention probabilities: 0, or the scale of dropout.
    """
    content_HK, distance_HK = biases
    key_BCHK, value_BCHK = context_BCGHK.unbind(2)
    position_BXCHK = position_RHK[query_mask.distance_indices_BXC()]
    scores_BHXC = torch.einsum("bxhk,bchk->bhxc", query_BXHK + content_HK, key_BCHK)
    scores_BHXC = scores_BHXC + torch.einsum("bxhk,bxchk->bhxc", query_BXHK + distance_HK, position_BXCHK)
    if segment_BXH is not None and query_mask.other_segment_BXC is not None:
        scores_BHXC = scores_BHXC + segment_BXH.transpose(1, 2)[..., None] * query_mask.other_segment_BXC[:, None]
    scores_BHXC = scores_BHXC / query_BXHK.shape[-1] ** 0.5
    if query_mask.bias_BXC is not None:
        scores_BHXC = scores_BHXC + query_mask.bias_BXC[:, None].to(scores_BHXC.dtype)
    factors = factors_HBXC if isinstance(factors_HBXC, float) else factors_HBXC.transpose(0, 1)
    return torch.einsum("bhxc,bchk->bxhk", scores_BHXC.softmax(-1) * factors, value_BCHK)


CAUSAL_TILE = 128
"""Number of queries in a tile of causal attention. Smaller tiles compute fewer masked scores, but are slower."""


@dataclass(frozen=True)
class _Tile:
    """Queries that are computed together, and the keys that they may attend to: the first ones.

    Attributes:
        rows: the queries.
        keys: the number of keys.
        distances: the distances that the tile needs; the first one is from the last query to the first key.
        indices_BTC: for each query and key the index in these distances; None: the positions of the queries are
            consecutive, so `relative_shift` finds them.
    """

    rows: slice
    keys: int
    distances: slice
    indices_BTC: Tensor | None = None

    @classmethod
    def all(cls, query_mask: QueryMask, batch: int) -> "list[_Tile]":
        """Return the tiles of all queries; the one with the most keys comes first."""
        L, X, C = query_mask.length, query_mask.positions_BX.shape[1], query_mask.keys
        tiles, step = [], CAUSAL_TILE if query_mask.causal else L
        for end in range(query_mask.consecutive, 0, -step):
            rows = slice(max(end - step, 0), end)
            tiles.append(
                cls(rows, C - (L - end) if query_mask.causal else C, slice(L - end, query_mask.distances))
            )
        if query_mask.consecutive < X:
            indices_BTC = query_mask.distance_indices_BXC(query_mask.consecutive).expand(batch, -1, -1)
            tiles.append(cls(slice(query_mask.consecutive, X), C, slice(0, query_mask.distances), indices_BTC))
        return tiles

    def crop(self, x_BXC: Tensor) -> Tensor:
        return x_BXC[:, self.rows, : self.keys]

    def relative_shift(self, scores_BTR: Tensor) -> Tensor:
        """Return a view (B, T, C) of the distance scores: for each query the slice that belongs to its keys.

        The slice of the next query starts one distance earlier, so the row stride is R - 1. There are more
        distances than keys, so slices do not overlap, and gradients can be written to the same view.
        """
        B, T, R = scores_BTR.shape
        return scores_BTR.as_strided((B, T, self.keys), (T * R, R - 1, 1), T - 1)

    def gather(self, scores_BTR: Tensor, out: Tensor) -> None:
        """Copy the distance score of each query and key into `out` (B, T, C)."""
        if self.indices_BTC is None:
            out.copy_(self.relative_shift(scores_BTR))
        else:
            torch.gather(scores_BTR, 2, self.indices_BTC, out=out)

    def scatter(self, grad_BTC: Tensor, out: Tensor) -> None:
        """Copy the gradients of the scores of each query and key into `out` (B, T, R), which is 0 elsewhere."""
        if self.indices_BTC is None:
            self.relative_shift(out).copy_(grad_BTC)
        else:
            out.scatter_(2, self.indices_BTC, grad_BTC)


class _AttentionByHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_BXHK: Tensor,
        context_BCGHK: Tensor,
        position_RHK: Tensor,
        content_HK: Tensor,
        distance_HK: Tensor,
        segment_BXH: Tensor | None,
        other_segment_BXC: Tensor | None,
        query_mask: QueryMask,
        p: float,
        needs_gradient: bool,
    ) -> Tensor:
        B, _, H, K = query_BXHK.shape
        scale, dtype = K**-0.5, query_BXHK.dtype
        bias_BXC = None if query_mask.bias_BXC is None else query_mask.bias_BXC.to(dtype)
        y_BXHK = torch.empty_like(query_BXHK)
        ctx.tiles, ctx.scales, saved = _Tile.all(query_mask, B), [], []
        for tile in ctx.tiles:
            query_BTHK = query_BXHK[:, tile.rows]
            T, position_rHK = query_BTHK.shape[1], position_RHK[tile.distances]
            mask_HBTC = DropoutMask.draw((H, B, T, tile.keys), p) if p else None
            weights_HBTC = dropped_HBTC = query_BXHK.new_empty(H if needs_gradient else 1, B, T, tile.keys)
            if mask_HBTC is not None:
                dropped_HBTC = torch.empty_like(weights_HBTC)
            ctx.scales.append(1.0 if mask_HBTC is None else mask_HBTC.scale)
            scores_BTR = query_BXHK.new_empty(B, T, len(position_rHK))
            for head in range(H):
                weights_BTC, dropped_BTC = (
                    x_HBTC[head if needs_gradient else 0] for x_HBTC in (weights_HBTC, dropped_HBTC)
                )
                for_distance_BTK = query_BTHK[:, :, head] + distance_HK[head]
                for_content_BTK = query_BTHK[:, :, head] + content_HK[head]
                keys_BCK = context_BCGHK[:, : tile.keys, 0, head].contiguous()
                values_BCK = context_BCGHK[:, : tile.keys, 1, head]
                torch.mm(for_distance_BTK.view(B * T, K), position_rHK[:, head].T, out=scores_BTR.flatten(0, 1))
                tile.gather(scores_BTR, weights_BTC)
                if segment_BXH is not None and other_segment_BXC is not None:
                    weights_BTC.addcmul_(segment_BXH[:, tile.rows, head, None], tile.crop(other_segment_BXC))
                torch.baddbmm(weights_BTC, for_content_BTK, keys_BCK.mT, beta=scale, alpha=scale, out=weights_BTC)
                if bias_BXC is not None:
                    weights_BTC += tile.crop(bias_BXC)
                torch.softmax(weights_BTC, -1, out=weights_BTC)
                if mask_HBTC is not None:
                    mask_HBTC[head].write(dropped_BTC).mul_(weights_BTC)
                torch.mul(torch.bmm(dropped_BTC, values_BCK), ctx.scales[-1], out=y_BXHK[:, tile.rows, head])
            saved += [weights_HBTC, dropped_HBTC]
        ctx.save_for_backward(
            query_BXHK, context_BCGHK, position_RHK, content_HK, distance_HK, other_segment_BXC, y_BXHK, *saved
        )
        return y_BXHK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BXHK: Tensor) -> tuple[Tensor | None, ...]:
        inputs, (other_segment_BXC, y_BXHK), saved = (
            ctx.saved_tensors[:5], ctx.saved_tensors[5:7], ctx.saved_tensors[7:],
        )  # fmt: skip
        query_BXHK, context_BCGHK, position_RHK, content_HK, distance_HK = inputs
        B, _, H, K = query_BXHK.shape
        scale = K**-0.5
        grad_query_BXHK, *grads = (torch.empty_like(query_BXHK), *(torch.zeros_like(x) for x in inputs[1:]))
        grad_context_BCGHK, grad_position_RHK, grad_content_HK, grad_distance_HK = grads
        grad_segment_BXH = None if other_segment_BXC is None else query_BXHK.new_empty(query_BXHK.shape[:3])
        # See `attention` for the gradient of the softmax.
        mean_BXH = (y_BXHK * grad_BXHK).sum(-1)
        for index, tile in enumerate(ctx.tiles):
            weights_HBTC, dropped_HBTC = saved[2 * index : 2 * index + 2]
            query_BTHK, position_rHK = query_BXHK[:, tile.rows], position_RHK[tile.distances]
            T = query_BTHK.shape[1]
            # Every head writes to the same elements; the others stay 0.
            grad_scores_BTR = query_BXHK.new_zeros(B, T, len(position_rHK))
            grad_scores = grad_scores_BTR.view(B * T, -1)
            for head in range(H):
                dropped_BTC = dropped_HBTC[head]
                keys_BCK, values_BCK = context_BCGHK[:, : tile.keys, :, head].unbind(2)
                y_BTK = grad_BXHK[:, tile.rows, head] * ctx.scales[index]
                grad_context_BCGHK[:, : tile.keys, 1, head] += torch.bmm(dropped_BTC.mT, y_BTK)
                grad_BTC = torch.bmm(y_BTK, values_BCK.contiguous().mT).mul_(dropped_BTC)
                grad_BTC.addcmul_(weights_HBTC[head], mean_BXH[:, tile.rows, head, None], value=-1)
                if grad_segment_BXH is not None:
                    grad_segment_BT = (grad_BTC * tile.crop(other_segment_BXC)).sum(-1)
                    torch.mul(grad_segment_BT, scale, out=grad_segment_BXH[:, tile.rows, head])
                tile.scatter(grad_BTC, grad_scores_BTR)
                # Scaled here, because these tensors are small; everything below is a product with one of them.
                query_BTK = query_BTHK[:, :, head] * scale
                for_content_BTK = query_BTK + content_HK[head] * scale
                for_distance_BTK = query_BTK + distance_HK[head] * scale
                grad_context_BCGHK[:, : tile.keys, 0, head] += torch.bmm(grad_BTC.mT, for_content_BTK)
                grad_position_RHK[tile.distances, head] += grad_scores.T @ for_distance_BTK.view(B * T, K)
                grad_content_BTK = torch.bmm(grad_BTC, keys_BCK).mul_(scale)
                grad_distance_BTK = (grad_scores @ position_rHK[:, head]).view(B, T, K).mul_(scale)
                grad_content_HK[head] += grad_content_BTK.sum((0, 1))
                grad_distance_HK[head] += grad_distance_BTK.sum((0, 1))
                torch.add(grad_content_BTK, grad_distance_BTK, out=grad_query_BXHK[:, tile.rows, head])
        return grad_query_BXHK, *grads, grad_segment_BXH, None, None, None, None
