"""Disentangled attention: the score of a query and a key also depends on their distance, in two ways.

With projections PK and PQ of a table that has a row for each distance i - j, the score of the query q_i and the
key k_j is (He et al. 2021, "DeBERTa", section 3.1)

    q_i · k_j           content to content
    q_i · PK[i - j]     content to position
    PQ[i - j] · k_j     position to content

divided by the square root of the head size times the number of terms.

The second term is one matrix product (queries, distances), the third one (keys, distances). Each row needs a
slice of its products, and the slice of the next row starts one distance earlier, so a view with a row stride that
is one smaller lines the slices up (`distance_tiles`). Distances that share a row of the table (log buckets) are
separate rows of PK and PQ: a product with a few more columns is faster than spreading the scores afterwards.

Shapes: B batch, L length, N query positions, T rows of a tile, S = 2 L - 1 distances (R: distances of a tile),
H heads, K head size; G is 3 for queries, keys and values in one tensor, and 2 for keys and values.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from electra.modeling.kernels.attention import as_bias
from electra.modeling.kernels.distance_tiles import Tile, add_tile_gradients, buffer_size, tile_products
from electra.modeling.kernels.documents import DocumentMask
from electra.modeling.kernels.dropout import DropoutMask


class PositionVectors(NamedTuple):
    """Projected rows of the relative table for the distances -(L - 1) to L - 1.

    Attributes:
        keys_SHK: for each key minus query position the vector that queries are multiplied with; None: scores have
            no such term.
        queries_SHK: for each query minus key position the vector that keys are multiplied with; None: the same.
    """

    keys_SHK: Tensor | None
    queries_SHK: Tensor | None

    def of_length(self, length: int) -> "PositionVectors":
        """Return the vectors for shorter rows."""
        return PositionVectors(*(vectors if vectors is None else _middle(vectors, length) for vectors in self))

    @property
    def terms(self) -> int:
        """How many terms a score has."""
        return 1 + sum(vectors is not None for vectors in self)


def _middle(vectors_SHK: Tensor, length: int) -> Tensor:
    """Return the vectors of the distances -(length - 1) to length - 1."""
    return vectors_SHK[len(vectors_SHK) // 2 - length + 1 : len(vectors_SHK) // 2 + length]


def attend_disentangled(
    query_BNHK: Tensor | None,
    packed_BLGHK: Tensor,
    vectors: PositionVectors,
    positions_BN: Tensor | None,
    mask_B1NL: Tensor | None,
    p: float,
) -> Tensor:
    """Return the attention output (B, N, H, K) by the fastest way that the device has.

    Args:
        query_BNHK: None: the queries are the first part of `packed_BLGHK` (G = 3).
        packed_BLGHK: the last two parts are keys and values.
        positions_BN: the positions of the queries; None: those of the row.
        mask_B1NL: True at keys that may be attended to (N may be 1), or numbers that are added to the scores.
        p: dropout probability of the attention probabilities.
    """
    on_cpu = packed_BLGHK.device.type == "cpu" and not torch.compiler.is_compiling()
    return (attend_by_head if on_cpu else attend_fused)(
        query_BNHK, packed_BLGHK, vectors, positions_BN, mask_B1NL, p
    )


def attend_documents_disentangled(
    packed_TGHK: Tensor, vectors: PositionVectors, documents: DocumentMask, p: float
) -> Tensor:
    """Return the attention output (T, H, K) of tokens that attend to the tokens of their document.

    Args:
        packed_TGHK: queries, keys and values of the tokens of `documents`.
        vectors: for rows as long as the longest document.
        p: dropout probability of the attention probabilities.
    """

    def attend_group(packed_dlGHK: Tensor, mask_dl: Tensor | None) -> Tensor:
        length = packed_dlGHK.shape[1]
        mask = documents.attention_mask(mask_dl, length)
        return attend_disentangled(None, packed_dlGHK, vectors.of_length(length), None, mask, p)

    return documents.by_group(attend_group, packed_TGHK)


def attend_by_head(
    query_BNHK: Tensor | None,
    packed_BLGHK: Tensor,
    vectors: PositionVectors,
    positions_BN: Tensor | None,
    mask_B1NL: Tensor | None,
    p: float,
) -> Tensor:
    """Compute `attend_disentangled` one head at a time, for a CPU (see `attention`).

    It equals `attend_plain` if both drop the same elements.
    """
    bias_BNL = as_bias(mask_B1NL, packed_BLGHK.dtype)
    y: Tensor = _DisentangledByHead.apply(  # type: ignore[no-untyped-call]
        query_BNHK, packed_BLGHK, *vectors, bias_BNL, positions_BN, p, torch.is_grad_enabled()
    )
    return y


def attend_fused(
    query_BNHK: Tensor | None,
    packed_BLGHK: Tensor,
    vectors: PositionVectors,
    positions_BN: Tensor | None,
    mask_B1NL: Tensor | None,
    p: float,
) -> Tensor:
    """Compute `attend_disentangled` with PyTorch's fused kernel, whose bias has the scores of distances.

    It is for accelerators and torch.compile.
    """
    query_BNHK = packed_BLGHK[:, :, 0] if query_BNHK is None else query_BNHK
    key_BLHK, value_BLHK = packed_BLGHK[:, :, -2], packed_BLGHK[:, :, -1]
    (B, N, H, K), L = query_BNHK.shape, key_BLHK.shape[1]
    positions_L = torch.arange(L, device=key_BLHK.device)
    queries_xN = positions_L[None] if positions_BN is None else positions_BN
    offsets_xNL = positions_L - queries_xN[:, :, None] + L - 1
    bias_BHNL = query_BNHK.new_zeros(())
    if vectors.keys_SHK is not None:
        products_BHNS = torch.einsum("bnhk,shk->bhns", query_BNHK, vectors.keys_SHK)
        bias_BHNL = bias_BHNL + products_BHNS.gather(3, offsets_xNL[:, None].expand(B, H, N, L))
    if vectors.queries_SHK is not None:
        products_BHLS = torch.einsum("blhk,shk->bhls", key_BLHK, vectors.queries_SHK)
        indices_xLN = (2 * L - 2 - offsets_xNL).mT
        bias_BHNL = bias_BHNL + products_BHLS.gather(3, indices_xLN[:, None].expand(B, H, L, N)).mT
    scale = (K * vectors.terms) ** -0.5
    bias_BHNL = bias_BHNL * scale
    if mask_B1NL is not None and mask_B1NL.dtype == torch.bool:
        bias_BHNL = bias_BHNL.masked_fill(~mask_B1NL, -torch.inf)
    elif mask_B1NL is not None:
        bias_BHNL = bias_BHNL + mask_B1NL.to(bias_BHNL.dtype)
    query, key, value = (x.transpose(1, 2) for x in (query_BNHK, key_BLHK, value_BLHK))
    y_BHNK = F.scaled_dot_product_attention(query, key, value, attn_mask=bias_BHNL, dropout_p=p, scale=scale)
    return y_BHNK.transpose(1, 2)


def attend_plain(
    query_BNHK: Tensor | None,
    packed_BLGHK: Tensor,
    vectors: PositionVectors,
    positions_BN: Tensor | None,
    mask_B1NL: Tensor | None,
    factors_HBNL: Tensor | float = 1.0,
) -> Tensor:
    """Compute the same in the plain form, with two vectors for every pair, for tests.

    Args:
        factors_HBNL: factors of the attention probabilities: 0, or the scale of dropout.
    """
    query_BNHK = packed_BLGHK[:, :, 0] if query_BNHK is None else query_BNHK
    key_BLHK, value_BLHK = packed_BLGHK[:, :, -2], packed_BLGHK[:, :, -1]
    L = key_BLHK.shape[1]
    positions_xN = torch.arange(L)[None] if positions_BN is None else positions_BN
    distances_xNL = positions_xN[:, :, None] - torch.arange(L)
    scores_BHNL = torch.einsum("bnhk,blhk->bhnl", query_BNHK, key_BLHK)
    if vectors.keys_SHK is not None:
        pairs_xNLHK = vectors.keys_SHK[L - 1 - distances_xNL].expand(len(key_BLHK), -1, -1, -1, -1)
        scores_BHNL = scores_BHNL + torch.einsum("bnhk,bnlhk->bhnl", query_BNHK, pairs_xNLHK)
    if vectors.queries_SHK is not None:
        pairs_xNLHK = vectors.queries_SHK[L - 1 + distances_xNL].expand(len(key_BLHK), -1, -1, -1, -1)
        scores_BHNL = scores_BHNL + torch.einsum("blhk,bnlhk->bhnl", key_BLHK, pairs_xNLHK)
    scores_BHNL = scores_BHNL / (query_BNHK.shape[-1] * vectors.terms) ** 0.5
    if mask_B1NL is not None and mask_B1NL.dtype == torch.bool:
        scores_BHNL = scores_BHNL.masked_fill(~mask_B1NL, -torch.inf)
    elif mask_B1NL is not None:
        scores_BHNL = scores_BHNL + mask_B1NL
    factors = factors_HBNL if isinstance(factors_HBNL, float) else factors_HBNL.transpose(0, 1)
    return torch.einsum("bhnl,blhk->bnhk", scores_BHNL.softmax(-1) * factors, value_BLHK)


class _DisentangledByHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_BNHK: Tensor | None,
        packed_BLGHK: Tensor,
        keys_SHK: Tensor | None,
        queries_SHK: Tensor | None,
        bias_BNL: Tensor | None,
        positions_BN: Tensor | None,
        p: float,
        needs_gradient: bool,
    ) -> Tensor:
        # Heads come first, so that each is contiguous: one copy of all is faster than one for each product.
        packed_GHBLK = packed_BLGHK.permute(2, 3, 0, 1, 4).contiguous()
        ctx.packed = query_BNHK is None
        query_HBNK = packed_GHBLK[0] if query_BNHK is None else query_BNHK.permute(2, 0, 1, 3).contiguous()
        vectors = [None if x is None else x.transpose(0, 1).contiguous() for x in (keys_SHK, queries_SHK)]
        keys_HSK, queries_HSK = vectors
        key_HBLK, value_HBLK = packed_GHBLK[-2], packed_GHBLK[-1]
        (H, B, N, K), L = query_HBNK.shape, key_HBLK.shape[2]
        ctx.scale = (K * PositionVectors(keys_SHK, queries_SHK).terms) ** -0.5
        ctx.query_tiles, ctx.key_tiles = Tile.of_queries(L, positions_BN), Tile.of_keys(L, positions_BN)
        mask_HBNL = DropoutMask.draw((H, B, N, L), p) if p else None
        weights_HBNL = dropped_HBNL = packed_BLGHK.new_empty(H if needs_gradient else 1, B, N, L)
        if mask_HBNL is not None:
            dropped_HBNL = torch.empty_like(weights_HBNL)
        ctx.dropout_scale = 1.0 if mask_HBNL is None else mask_HBNL.scale
        y_HBNK = torch.empty_like(query_HBNK)
        buffer = packed_BLGHK.new_empty(buffer_size(B, ctx.query_tiles + ctx.key_tiles))
        for head in range(H):
            weights_BNL, dropped_BNL = (x[head if needs_gradient else 0] for x in (weights_HBNL, dropped_HBNL))
            if queries_HSK is not None:
                for tile in ctx.key_tiles:
                    scores_BTR = tile_products(tile, key_HBLK[head], queries_HSK[head], buffer)
                    weights_BNL[:, :, tile.rows].copy_(tile.spread(scores_BTR).mT)
            if keys_HSK is not None:
                for tile in ctx.query_tiles:
                    scores_BTC = tile.spread(tile_products(tile, query_HBNK[head], keys_HSK[head], buffer))
                    rows_BTC = weights_BNL[:, tile.rows]
                    rows_BTC.copy_(scores_BTC) if queries_HSK is None else rows_BTC.add_(scores_BTC)
            beta = 0.0 if keys_HSK is None and queries_HSK is None else ctx.scale
            torch.baddbmm(
                weights_BNL, query_HBNK[head], key_HBLK[head].mT, beta=beta, alpha=ctx.scale, out=weights_BNL
            )
            if bias_BNL is not None:
                weights_BNL += bias_BNL
            torch.softmax(weights_BNL, -1, out=weights_BNL)
            if mask_HBNL is not None:
                mask_HBNL[head].write(dropped_BNL).mul_(weights_BNL)
            torch.bmm(dropped_BNL, value_HBLK[head], out=y_HBNK[head])
        ctx.save_for_backward(query_HBNK, packed_GHBLK, *vectors, weights_HBNL, dropped_HBNL, y_HBNK)
        return (y_HBNK * ctx.dropout_scale).permute(1, 2, 0, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BNHK: Tensor) -> tuple[Tensor | None, ...]:
        query_HBNK, packed_GHBLK, keys_HSK, queries_HSK, weights_HBNL, dropped_HBNL, y_HBNK = ctx.saved_tensors
        H, B, _, _ = query_HBNK.shape
        key_HBLK, value_HBLK = packed_GHBLK[-2], packed_GHBLK[-1]
        grad_packed_GHBLK = torch.empty_like(packed_GHBLK)
        grad_query_HBNK = grad_packed_GHBLK[0] if ctx.packed else torch.empty_like(query_HBNK)
        grad_vectors = [None if x is None else torch.zeros_like(x) for x in (keys_HSK, queries_HSK)]
        grad_HBNK = (grad_BNHK * ctx.dropout_scale).permute(2, 0, 1, 3).contiguous()
        mean_HBN1 = (y_HBNK * grad_HBNK).sum(-1, keepdim=True)  # see `attention` for the gradient of the softmax
        query_HBNK = query_HBNK * ctx.scale
        # Every head writes to the same elements of a buffer; the others stay 0.
        buffers = [
            [packed_GHBLK.new_zeros(buffer_size(B, [tile])) for tile in tiles]
            for tiles in (ctx.query_tiles, ctx.key_tiles)
        ]
        for head in range(H):
            dropped_BNL, y_BNK, key_BLK = dropped_HBNL[head], grad_HBNK[head], key_HBLK[head] * ctx.scale
            torch.bmm(dropped_BNL.mT, y_BNK, out=grad_packed_GHBLK[-1, head])
            grad_BNL = torch.bmm(y_BNK, value_HBLK[head].mT).mul_(dropped_BNL)
            grad_BNL.addcmul_(weights_HBNL[head], mean_HBN1[head], value=-1)
            torch.bmm(grad_BNL, key_BLK, out=grad_query_HBNK[head])
            torch.bmm(grad_BNL.mT, query_HBNK[head], out=grad_packed_GHBLK[-2, head])
            sides = (
                (keys_HSK, grad_vectors[0], grad_BNL, query_HBNK[head], grad_query_HBNK[head]),
                (queries_HSK, grad_vectors[1], grad_BNL.mT, key_BLK, grad_packed_GHBLK[-2, head]),
            )
            for tiles, tile_buffers, side in zip((ctx.query_tiles, ctx.key_tiles), buffers, sides, strict=True):
                vectors_HSK, grad_HSK, grad_BMC, rows_BMK, grad_BMK = side
                if vectors_HSK is None or grad_HSK is None:
                    continue
                for tile, buffer in zip(tiles, tile_buffers, strict=True):
                    inputs, grads = (rows_BMK, vectors_HSK[head]), (grad_BMK, grad_HSK[head])
                    add_tile_gradients(tile, buffer, grad_BMC, inputs, grads, scale=ctx.scale)
        return (
            None if ctx.packed else grad_query_HBNK.permute(1, 2, 0, 3).contiguous(),
            grad_packed_GHBLK.permute(2, 3, 0, 1, 4).contiguous(),
            *(None if x is None else x.transpose(0, 1) for x in grad_vectors),
            None, None, None, None,
        )  # fmt: skip
