"""Attention that knows how far a key stands from a query, not where either stands.

The score of a query q and a key k is a sum of up to three products (Dai et al. 2019, "Transformer-XL", section
3.3; Yang et al. 2019, "XLNet", section 2.5), each with a vector of its head's that is added to the query:

    (q + u) · k     what the key is about
    (q + v) · r     how far before the query the key stands; r is the projection of that distance's sinusoids
    (q + w) · e     whether both belong to the same segment (e has one vector for yes, one for no)

It is divided by the root of the head size. There is one r for a distance, whatever the query, so the second term
is one product for all pairs, (queries, distances), of which each query needs a run of its own: that of a query one
place further on starts one distance earlier. Reading the product with its rows one shorter lines the runs up.

Shapes: B batch, L length, M memory, C = M + L keys, X queries, T queries of a tile, R distances (r: those of a
tile), D hidden size, E = 2 D, H heads, K head size; G is 2, for keys and values in one tensor.
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
    """Multi-head attention over the memory and the tokens of a row; no projection has a bias.

    Args:
        dropout: the share of the probabilities that is dropped while training.
        segments: whether scores know of segments.
    """

    def __init__(self, hidden_size: int, heads: int, *, dropout: float, segments: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key_value = nn.Linear(hidden_size, 2 * hidden_size, bias=False)
        self.position = nn.Linear(hidden_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)
        # Flat, as biases are: weight decay passes over what has one axis.
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
        sight: QueryMask,
    ) -> Tensor:
        """Mixtures (B, X, D) of values of memory and tokens for each of the asking states."""
        heads = self.heads, x_BLD.shape[-1] // self.heads
        query_BXHK = self.query(query_states_BXD).unflatten(-1, heads)
        context_BCE = self.key_value(x_BLD)
        if memory_BMD is not None:
            # By itself, since no gradient of the memory is to be made.
            context_BCE = torch.cat([self.key_value(memory_BMD), context_BCE], 1)
        context_BCGHK = context_BCE.unflatten(-1, (2, *heads))
        position_RHK = self.position(sinusoids_RD).unflatten(-1, heads)
        content_HK, distance_HK = (
            bias.to(query_BXHK.dtype).view(heads) for bias in (self.content_bias, self.position_bias)
        )
        segment_BXH = self._segment_scores(query_BXHK) if sight.different_BXC is not None else None
        share = self.dropout.p if self.training else 0.0
        on_cpu = x_BLD.device.type == "cpu" and not torch.compiler.is_compiling()
        attend = attend_by_head if on_cpu else attend_fused
        y_BXHK = attend(
            query_BXHK, context_BCGHK, position_RHK, (content_HK, distance_HK), segment_BXH, sight, share
        )
        if sight.fully_masked_BX is not None:
            y_BXHK = y_BXHK.masked_fill(sight.fully_masked_BX[:, :, None, None], 0.0)
        return self.output(y_BXHK.flatten(2))

    def _segment_scores(self, query_BXHK: Tensor) -> Tensor | None:
        """What a key of another segment scores more than one of the same, before scaling.

        The softmax does not feel what is added to all keys, so the two scores themselves are not needed.
        """
        if self.segments is None or self.segment_bias is None:
            return None
        same_D, other_D = self.segments.weight
        difference_HK = (other_D - same_D).view(query_BXHK.shape[-2:])
        constant_H = (self.segment_bias.view(difference_HK.shape) * difference_HK).sum(-1)
        scores_BXH = torch.einsum("bxhk,hk->bxh", query_BXHK, difference_HK.to(query_BXHK.dtype))
        return scores_BXH + constant_H.to(scores_BXH.dtype)


Biases = tuple[Tensor, Tensor]
"""What is added to the queries for contents and for distances, each (H, K)."""


def attend_by_head(
    query_BXHK: Tensor,
    context_BCGHK: Tensor,
    position_RHK: Tensor,
    biases: Biases,
    segment_BXH: Tensor | None,
    sight: QueryMask,
    share: float,
) -> Tensor:
    """Mixtures (B, X, H, K) of values, with or without dropout of the probabilities, for a CPU.

    Head by head: the matrices of one head stay in the cache (see `attention`). The scores of contents are added to
    those of distances by the product itself.

    Args:
        context_BCGHK: keys, then values.
        position_RHK: the vectors of the distances.
        segment_BXH: what a key of another segment scores more than one of the same; None: nothing.
        share: of the probabilities that is dropped.

    Equals `attend_plain` where that drops the same elements.
    """
    different_BXC = None
    if segment_BXH is not None and sight.different_BXC is not None:
        different_BXC = sight.different_BXC.to(query_BXHK.dtype)
    y: Tensor = _Attended.apply(  # type: ignore[no-untyped-call]
        query_BXHK, context_BCGHK, position_RHK, *biases, segment_BXH, different_BXC, sight, share,
        torch.is_grad_enabled(),
    )  # fmt: skip
    return y


def attend_fused(
    query_BXHK: Tensor,
    context_BCGHK: Tensor,
    position_RHK: Tensor,
    biases: Biases,
    segment_BXH: Tensor | None,
    sight: QueryMask,
    share: float,
) -> Tensor:
    """The same by PyTorch's kernel, whose bias are distances and segments: for accelerators and to be compiled.

    On a CPU it takes as long in float32 and twice as long in bfloat16, without a gradient.
    """
    content_HK, distance_HK = biases
    products_BHXR = torch.einsum("bxhk,rhk->bhxr", query_BXHK + distance_HK, position_RHK)
    runs_BHXC = sight.run_BXC()[:, None].expand(*products_BHXR.shape[:3], -1)
    scores_BHXC = products_BHXR.gather(3, runs_BHXC)
    if segment_BXH is not None and sight.different_BXC is not None:
        scores_BHXC = scores_BHXC + segment_BXH.transpose(1, 2)[..., None] * sight.different_BXC[:, None]
    scores_BHXC = scores_BHXC * query_BXHK.shape[-1] ** -0.5
    if sight.bias_BXC is not None:
        scores_BHXC = scores_BHXC + sight.bias_BXC[:, None].to(scores_BHXC.dtype)
    key_BHCK, value_BHCK = (x_BCHK.transpose(1, 2) for x_BCHK in context_BCGHK.unbind(2))
    query_BHXK = (query_BXHK + content_HK).transpose(1, 2)
    y_BHXK = F.scaled_dot_product_attention(
        query_BHXK, key_BHCK, value_BHCK, attn_mask=scores_BHXC.to(query_BHXK.dtype), dropout_p=share
    )
    return y_BHXK.transpose(1, 2)


def attend_plain(
    query_BXHK: Tensor,
    context_BCGHK: Tensor,
    position_RHK: Tensor,
    biases: Biases,
    segment_BXH: Tensor | None,
    sight: QueryMask,
    factors_HBXC: Tensor | float,
) -> Tensor:
    """The same as one would write it, a vector of distance for every pair, for tests.

    Args:
        factors_HBXC: of the probabilities: 0 or the scale of the dropout.
    """
    content_HK, distance_HK = biases
    key_BCHK, value_BCHK = context_BCGHK.unbind(2)
    of_pairs_BXCHK = position_RHK[sight.run_BXC()]
    scores_BHXC = torch.einsum("bxhk,bchk->bhxc", query_BXHK + content_HK, key_BCHK)
    scores_BHXC = scores_BHXC + torch.einsum("bxhk,bxchk->bhxc", query_BXHK + distance_HK, of_pairs_BXCHK)
    if segment_BXH is not None and sight.different_BXC is not None:
        scores_BHXC = scores_BHXC + segment_BXH.transpose(1, 2)[..., None] * sight.different_BXC[:, None]
    scores_BHXC = scores_BHXC / query_BXHK.shape[-1] ** 0.5
    if sight.bias_BXC is not None:
        scores_BHXC = scores_BHXC + sight.bias_BXC[:, None].to(scores_BHXC.dtype)
    factors = factors_HBXC if isinstance(factors_HBXC, float) else factors_HBXC.transpose(0, 1)
    return torch.einsum("bhxc,bchk->bxhk", scores_BHXC.softmax(-1) * factors, value_BCHK)


QUERIES = 128
"""In a tile of queries that look to the left alone. Of fewer, less is computed that they may not look at, but more
slowly."""


@dataclass(frozen=True)
class _Tile:
    """Queries that are worked at together, and the first keys, which are all that they may look at.

    Attributes:
        rows: the queries.
        keys: the number of keys.
        distances: rows of the distances, from that of the last query to the first key on.
        runs_BTC: among these, the row for each query and key; None: the queries follow each other, so the run of
            each starts one row before that of the query before it.
    """

    rows: slice
    keys: int
    distances: slice
    runs_BTC: Tensor | None = None

    @classmethod
    def all(cls, sight: QueryMask, batch: int) -> "list[_Tile]":
        """Those of all queries; the longest comes first."""
        L, X, C = sight.length, sight.places_BX.shape[1], sight.keys
        tiles, step = [], QUERIES if sight.left else L
        for end in range(sight.running, 0, -step):
            rows = slice(max(end - step, 0), end)
            tiles.append(cls(rows, C - (L - end) if sight.left else C, slice(L - end, sight.distances)))
        if sight.running < X:
            runs_BTC = sight.run_BXC(sight.running).expand(batch, -1, -1)
            tiles.append(cls(slice(sight.running, X), C, slice(0, sight.distances), runs_BTC))
        return tiles

    def of(self, x_BXC: Tensor) -> Tensor:
        return x_BXC[:, self.rows, : self.keys]

    def following(self, products_BTR: Tensor) -> Tensor:
        """The runs (B, T, C) in the products with all distances, without a copy.

        Each starts one product earlier in its row than that of the query before: an offset of one less than a row.
        Where there are more distances than keys, no two runs share memory, so gradients can be written there too.
        """
        B, T, R = products_BTR.shape
        return products_BTR.as_strided((B, T, self.keys), (T * R, R - 1, 1), T - 1)

    def take(self, products_BTR: Tensor, out: Tensor) -> None:
        """The runs, in `out` (B, T, C)."""
        if self.runs_BTC is None:
            out.copy_(self.following(products_BTR))
        else:
            torch.gather(products_BTR, 2, self.runs_BTC, out=out)

    def give(self, grad_BTC: Tensor, out: Tensor) -> None:
        """The gradients of the runs to those of the products (B, T, R), which are 0 elsewhere."""
        if self.runs_BTC is None:
            self.following(out).copy_(grad_BTC)
        else:
            out.scatter_(2, self.runs_BTC, grad_BTC)


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_BXHK: Tensor,
        context_BCGHK: Tensor,
        position_RHK: Tensor,
        content_HK: Tensor,
        distance_HK: Tensor,
        segment_BXH: Tensor | None,
        different_BXC: Tensor | None,
        sight: QueryMask,
        share: float,
        learning: bool,
    ) -> Tensor:
        B, _, H, K = query_BXHK.shape
        scale, dtype = K**-0.5, query_BXHK.dtype
        bias_BXC = None if sight.bias_BXC is None else sight.bias_BXC.to(dtype)
        y_BXHK = torch.empty_like(query_BXHK)
        ctx.tiles, ctx.scales, saved = _Tile.all(sight, B), [], []
        for tile in ctx.tiles:
            query_BTHK = query_BXHK[:, tile.rows]
            T, position_rHK = query_BTHK.shape[1], position_RHK[tile.distances]
            kept_HBTC = DropoutMask.draw((H, B, T, tile.keys), share) if share else None
            weights_HBTC = dropped_HBTC = query_BXHK.new_empty(H if learning else 1, B, T, tile.keys)
            if kept_HBTC is not None:
                dropped_HBTC = torch.empty_like(weights_HBTC)
            ctx.scales.append(1.0 if kept_HBTC is None else kept_HBTC.scale)
            products_BTR = query_BXHK.new_empty(B, T, len(position_rHK))
            for head in range(H):
                weights_BTC, dropped_BTC = (
                    x_HBTC[head if learning else 0] for x_HBTC in (weights_HBTC, dropped_HBTC)
                )
                for_distance_BTK = query_BTHK[:, :, head] + distance_HK[head]
                for_content_BTK = query_BTHK[:, :, head] + content_HK[head]
                keys_BCK = context_BCGHK[:, : tile.keys, 0, head].contiguous()
                values_BCK = context_BCGHK[:, : tile.keys, 1, head]
                torch.mm(for_distance_BTK.view(B * T, K), position_rHK[:, head].T, out=products_BTR.flatten(0, 1))
                tile.take(products_BTR, weights_BTC)
                if segment_BXH is not None and different_BXC is not None:
                    weights_BTC.addcmul_(segment_BXH[:, tile.rows, head, None], tile.of(different_BXC))
                torch.baddbmm(weights_BTC, for_content_BTK, keys_BCK.mT, beta=scale, alpha=scale, out=weights_BTC)
                if bias_BXC is not None:
                    weights_BTC += tile.of(bias_BXC)
                torch.softmax(weights_BTC, -1, out=weights_BTC)
                if kept_HBTC is not None:
                    kept_HBTC[head].write(dropped_BTC).mul_(weights_BTC)
                torch.mul(torch.bmm(dropped_BTC, values_BCK), ctx.scales[-1], out=y_BXHK[:, tile.rows, head])
            saved += [weights_HBTC, dropped_HBTC]
        ctx.save_for_backward(
            query_BXHK, context_BCGHK, position_RHK, content_HK, distance_HK, different_BXC, y_BXHK, *saved
        )
        return y_BXHK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BXHK: Tensor) -> tuple[Tensor | None, ...]:
        inputs, (different_BXC, y_BXHK), saved = (
            ctx.saved_tensors[:5], ctx.saved_tensors[5:7], ctx.saved_tensors[7:],
        )  # fmt: skip
        query_BXHK, context_BCGHK, position_RHK, content_HK, distance_HK = inputs
        B, _, H, K = query_BXHK.shape
        scale = K**-0.5
        grad_query_BXHK, *grads = (torch.empty_like(query_BXHK), *(torch.zeros_like(x) for x in inputs[1:]))
        grad_context_BCGHK, grad_position_RHK, grad_content_HK, grad_distance_HK = grads
        grad_segment_BXH = None if different_BXC is None else query_BXHK.new_empty(query_BXHK.shape[:3])
        # The softmax takes the mean of its gradient away (see `attention`).
        mean_BXH = (y_BXHK * grad_BXHK).sum(-1)
        for number, tile in enumerate(ctx.tiles):
            weights_HBTC, dropped_HBTC = saved[2 * number : 2 * number + 2]
            query_BTHK, position_rHK = query_BXHK[:, tile.rows], position_RHK[tile.distances]
            T = query_BTHK.shape[1]
            # Every head writes to the same places, so what lies between them stays 0.
            grad_products_BTR = query_BXHK.new_zeros(B, T, len(position_rHK))
            grad_products = grad_products_BTR.view(B * T, -1)
            for head in range(H):
                dropped_BTC = dropped_HBTC[head]
                keys_BCK, values_BCK = context_BCGHK[:, : tile.keys, :, head].unbind(2)
                y_BTK = grad_BXHK[:, tile.rows, head] * ctx.scales[number]
                grad_context_BCGHK[:, : tile.keys, 1, head] += torch.bmm(dropped_BTC.mT, y_BTK)
                grad_BTC = torch.bmm(y_BTK, values_BCK.contiguous().mT).mul_(dropped_BTC)
                grad_BTC.addcmul_(weights_HBTC[head], mean_BXH[:, tile.rows, head, None], value=-1)
                if grad_segment_BXH is not None:
                    of_segments_BT = (grad_BTC * tile.of(different_BXC)).sum(-1)
                    torch.mul(of_segments_BT, scale, out=grad_segment_BXH[:, tile.rows, head])
                tile.give(grad_BTC, grad_products_BTR)
                # Scaled here, where it is small: everything below is a product with one of these.
                query_BTK = query_BTHK[:, :, head] * scale
                for_content_BTK = query_BTK + content_HK[head] * scale
                for_distance_BTK = query_BTK + distance_HK[head] * scale
                grad_context_BCGHK[:, : tile.keys, 0, head] += torch.bmm(grad_BTC.mT, for_content_BTK)
                grad_position_RHK[tile.distances, head] += grad_products.T @ for_distance_BTK.view(B * T, K)
                grad_content_BTK = torch.bmm(grad_BTC, keys_BCK).mul_(scale)
                grad_distance_BTK = (grad_products @ position_rHK[:, head]).view(B, T, K).mul_(scale)
                grad_content_HK[head] += grad_content_BTK.sum((0, 1))
                grad_distance_HK[head] += grad_distance_BTK.sum((0, 1))
                torch.add(grad_content_BTK, grad_distance_BTK, out=grad_query_BXHK[:, tile.rows, head])
        return grad_query_BXHK, *grads, grad_segment_BXH, None, None, None, None
