"""Cross-entropy over the vocabulary and one sample per position, in one pass over the logits.

Shapes: N positions, n positions of one block, E embedding size, V vocabulary, S slices of the vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 256
"""Positions whose logits are in memory at once: 256 × 30,522 in fp32 are 31 MB, about a level-3 cache."""

_SLICE = 256
"""Tokens in a slice of the vocabulary; `draw` finds a sample in two steps: first the slice, then the token."""


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from a distribution over the vocabulary.

    Attributes:
        temperature: divisor of the logits.
        disallow_targets: never draw the target.
        top_k: draw from this number of most probable tokens only; 0: from all.
        entries: draw from this number of first rows of the table only, because the others pad it; 0: from all.
    """

    temperature: float = 1.0
    disallow_targets: bool = False
    top_k: int = 0
    entries: int = 0

    @property
    def plain(self) -> bool:
        """Whether samples are drawn from the softmax of the logits, unchanged."""
        return self == Sampling()

    def weights(self, logits_Vn: Tensor, targets_n: Tensor) -> Tensor:
        """Return the unnormalized probabilities of all tokens (V, n).

        Args:
            logits_Vn: logits minus the maximum of their column, so that the maximum is 0.
        """
        logits_Vn = logits_Vn / self.temperature
        if self.disallow_targets:
            logits_Vn.scatter_(0, targets_n[None], -torch.inf)
        if self.entries:
            logits_Vn[self.entries :] = -torch.inf
        if 0 < self.top_k < len(logits_Vn):
            minimum_n = logits_Vn.topk(self.top_k, dim=0).values[-1]
            logits_Vn.masked_fill_(logits_Vn < minimum_n, -torch.inf)
        return logits_Vn.exp_()


PLAIN = Sampling()

Reweigh = Callable[[Tensor, Tensor], Tensor]
"""Function of row indices (n,) and their log-likelihoods (n,): factors of their weights in the gradient (n,)."""


def sampled_cross_entropy(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    uniforms_N: Tensor,
    *,
    sampling: Sampling = PLAIN,
) -> tuple[Tensor, Tensor]:
    """Compute the softmax cross-entropy and draw one sample for each row, in one pass over the logits.

    The logits (N, V) are never in memory as a whole. Each block of positions is multiplied with the table,
    exponentiated, sampled, and turned into its gradient before the next block. This saves memory (four times N × V
    in fp32) and, on a CPU, most of the time of softmax, sampler and backward pass. A block has the shape (V, n),
    because matrix products with so few columns are up to twice as fast in this layout.

    Args:
        targets_N: the true ids.
        weights_N: weight of each row in the loss. Rows of weight 0 may be skipped; their samples have no meaning.
        uniforms_N: one number in [0, 1) per row, which selects the sample by inverting the distribution function.
        sampling: how samples are drawn; the loss does not depend on it.

    Returns:
        The weighted sum of the negative log-likelihoods (a scalar with a gradient), and the samples (N,).

    It equals `sampled_cross_entropy_plain` up to rounding.
    """
    loss, samples_N = _cross_entropy(
        hidden_NE, table_VE, bias_V, targets_N, weights_N, uniforms_N, sampling, reweigh=None
    )
    assert samples_N is not None
    return loss, samples_N


def cross_entropy(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    *,
    reweigh: Reweigh | None = None,
) -> Tensor:
    """Compute the softmax cross-entropy as `sampled_cross_entropy` does, without samples.

    Args:
        reweigh: for losses that are functions of the log-likelihoods. It is called for every row whose weight is
            not 0 before its gradient is computed, so no second pass is needed.

    Returns:
        The weighted sum of the negative log-likelihoods (a scalar with a gradient).
    """
    return _cross_entropy(hidden_NE, table_VE, bias_V, targets_N, weights_N, None, PLAIN, reweigh=reweigh)[0]


def _cross_entropy(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    uniforms_N: Tensor | None,
    sampling: Sampling,
    *,
    reweigh: Reweigh | None,
) -> tuple[Tensor, Tensor | None]:
    # Read here, because gradients are always disabled inside an autograd function.
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (hidden_NE, table_VE, bias_V))
    loss, samples_N = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_NE, table_VE, bias_V, targets_N, weights_N, uniforms_N, sampling, reweigh, needs_gradient
    )
    return loss, samples_N


def sampled_cross_entropy_plain(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    uniforms_N: Tensor,
    *,
    sampling: Sampling = PLAIN,
) -> tuple[Tensor, Tensor]:
    """Compute the same as `sampled_cross_entropy` in the plain form, for tests."""
    logits_NV = F.linear(hidden_NE, table_VE, bias_V).float()
    loss = (weights_N * F.cross_entropy(logits_NV, targets_N, reduction="none")).sum()
    sampling_logits_NV = logits_NV.detach() / sampling.temperature
    if sampling.disallow_targets:
        sampling_logits_NV = sampling_logits_NV.scatter(1, targets_N[:, None], -torch.inf)
    if sampling.entries:
        sampling_logits_NV[:, sampling.entries :] = -torch.inf
    if sampling.top_k:
        minimum_N1 = sampling_logits_NV.topk(min(sampling.top_k, sampling_logits_NV.shape[1])).values[:, -1:]
        sampling_logits_NV = sampling_logits_NV.masked_fill(sampling_logits_NV < minimum_N1, -torch.inf)
    cumulative_NV = sampling_logits_NV.softmax(-1).cumsum(-1)
    samples_N = torch.searchsorted(cumulative_NV, uniforms_N[:, None] * cumulative_NV[:, -1:], right=True)
    return loss, samples_N.squeeze(1).clamp_(max=table_VE.shape[0] - 1)


@torch.no_grad()
def log_probabilities(hidden_NE: Tensor, table_VE: Tensor, bias_V: Tensor, ids_N: Tensor) -> Tensor:
    """Return the log-probability (N,) of one id per row in fp32, without a gradient, block by block."""
    blocks = []
    for start in range(0, len(ids_N), ROWS):
        rows = slice(start, start + ROWS)
        logits_nV = F.linear(hidden_NE[rows], table_VE, bias_V).float()
        blocks.append(logits_nV.gather(1, ids_N[rows, None]).squeeze(1) - logits_nV.logsumexp(-1))
    return torch.cat(blocks) if blocks else hidden_NE.new_zeros(0, dtype=torch.float32)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NE: Tensor,
        table_VE: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        weights_N: Tensor,
        uniforms_N: Tensor | None,
        sampling: Sampling,
        reweigh: Reweigh | None,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor | None]:
        # Under autocast matrix products have its dtype, as in F.linear; everything else is in fp32.
        device = hidden_NE.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else table_VE.dtype
        with torch.autocast(device, enabled=False):
            loss, samples_N, gradients = _in_blocks(
                hidden_NE.to(dtype), table_VE.to(dtype), bias_V, targets_N, weights_N.float(), uniforms_N,
                sampling, reweigh, needs_gradient=needs_gradient,
            )  # fmt: skip
        ctx.save_for_backward(*gradients)
        if samples_N is not None:
            ctx.mark_non_differentiable(samples_N)
        return loss, samples_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        # The loss is a sum, so the gradients that were computed in forward only need the incoming factor.
        hidden_NE, table_VE, bias_V = (saved * grads[0] for saved in ctx.saved_tensors)
        return hidden_NE, table_VE, bias_V, None, None, None, None, None, None


def _in_blocks(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    uniforms_N: Tensor | None,
    sampling: Sampling,
    reweigh: Reweigh | None,
    *,
    needs_gradient: bool,
) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor, Tensor]]:
    """Return the loss, the samples (None without `uniforms_N`), and the gradients of hidden states, table and bias
    in fp32.

    The gradients are zeros unless `needs_gradient`.
    """
    dtype, V = table_VE.dtype, len(table_VE)
    grad_hidden_NE, grad_table_VE, grad_bias_V = (
        torch.zeros_like(tensor, dtype=torch.float32) for tensor in (hidden_NE, table_VE, bias_V)
    )
    loss = weights_N.new_zeros(())
    samples_N = None if uniforms_N is None else targets_N.clone()
    # All blocks use the same memory for their logits: new memory pages would cost a third of the matrix product.
    memory = table_VE.new_empty(V * min(ROWS, len(hidden_NE)))
    for rows_n in _weighted_rows(weights_N).split(ROWS):
        hidden_nE, targets_n, weights_n = hidden_NE[rows_n], targets_N[rows_n], weights_N[rows_n]
        products_Vn = memory[: V * len(rows_n)].view(V, len(rows_n))
        logits_Vn = torch.mm(table_VE, hidden_nE.T, out=products_Vn).float().add_(bias_V[:, None])
        target_logits_n = logits_Vn.gather(0, targets_n[None]).squeeze(0)
        largest_n = logits_Vn.amax(0)
        if samples_N is not None and uniforms_N is not None and not sampling.plain:
            sampling_weights_Vn = sampling.weights(logits_Vn - largest_n, targets_n)
            samples_N[rows_n] = draw(sampling_weights_Vn, sum_slices(sampling_weights_Vn), uniforms_N[rows_n])
        weights_Vn = logits_Vn.sub_(largest_n).exp_()  # the logits are not needed anymore
        sums_nS = sum_slices(weights_Vn)
        total_n = sums_nS.cumsum(1)[:, -1]
        if samples_N is not None and uniforms_N is not None and sampling.plain:
            samples_N[rows_n] = draw(weights_Vn, sums_nS, uniforms_N[rows_n])
        log_likelihood_n = target_logits_n - (largest_n + total_n.log())
        loss -= weights_n @ log_likelihood_n
        if reweigh is not None:
            weights_n = weights_n * reweigh(rows_n, log_likelihood_n)
            weights_N = weights_N.index_copy(0, rows_n, weights_n)
        if needs_gradient:
            # The gradient of the logits is weight × (probability − [token is the target]). Weights and totals are
            # multiplied into the small factors, and targets are subtracted below, so that no tensor (V, n) is
            # written again.
            scale_n = weights_n / total_n
            grad_bias_V += weights_Vn @ scale_n
            weights_Vn = weights_Vn.to(dtype)
            grad_nE = scale_n[:, None] * (weights_Vn.T @ table_VE)
            grad_hidden_NE[rows_n] = grad_nE - weights_n[:, None] * table_VE[targets_n]
            factor_nE = (scale_n[:, None] * hidden_nE).to(dtype)
            _add_product(grad_table_VE, weights_Vn, factor_nE)
    if needs_gradient:
        grad_table_VE.index_add_(0, targets_N, -weights_N[:, None] * hidden_NE)
        grad_bias_V.index_add_(0, targets_N, -weights_N)
    return loss, samples_N, (grad_hidden_NE, grad_table_VE, grad_bias_V)


def _add_product(sum_VE: Tensor, first_Vn: Tensor, second_nE: Tensor) -> None:
    """Add a matrix product to an fp32 tensor, in place."""
    if first_Vn.dtype == torch.float32:
        sum_VE.addmm_(first_Vn, second_nE)
    else:
        sum_VE += first_Vn @ second_nE


def _weighted_rows(weights_N: Tensor) -> Tensor:
    """Return the rows whose weight is not 0, and a few others so that their number is a multiple of 32.

    Matrix products are faster with such sizes. On an accelerator all rows are returned, because reading their
    number would stall the queue.
    """
    order_N = (weights_N == 0).to(torch.uint8).argsort(stable=True)
    if weights_N.device.type != "cpu":
        return order_N
    count = int(weights_N.count_nonzero())
    return order_N[: (count + 31) // 32 * 32]


def sum_slices(weights_Vn: Tensor) -> Tensor:
    """Return the sums of each column over slices of the vocabulary (n, S)."""
    V, n = weights_Vn.shape
    slices, rest = divmod(V, _SLICE)
    sums_Sn = weights_Vn[: V - rest].view(slices, _SLICE, n).sum(1)
    if rest:
        sums_Sn = torch.cat([sums_Sn, weights_Vn[V - rest :].sum(0, keepdim=True)])
    return sums_Sn.T.contiguous()


def draw(weights_Vn: Tensor, sums_nS: Tensor, uniforms_n: Tensor) -> Tensor:
    """Return one sample of each column (n,), in proportion to its nonnegative weights.

    The distribution function is inverted in two steps: the sums of slices select a slice, then the cumulative sum
    of this slice selects the token. Only reading the weights once takes time; noise for every entry, as in the
    Gumbel trick, takes several times as long.

    Args:
        sums_nS: `sum_slices` of the weights.
    """
    V, n = weights_Vn.shape
    cumulative_nS = sums_nS.cumsum(1)
    threshold_n1 = uniforms_n[:, None] * cumulative_nS[:, -1:]
    slice_n1 = torch.searchsorted(cumulative_nS, threshold_n1, right=True).clamp_(max=sums_nS.shape[1] - 1)
    before_n1 = cumulative_nS.gather(1, slice_n1) - sums_nS.gather(1, slice_n1)
    ids_nK = slice_n1 * _SLICE + torch.arange(_SLICE, device=weights_Vn.device)
    columns_n1 = torch.arange(n, device=weights_Vn.device)[:, None]
    inside_nK = weights_Vn[ids_nK.clamp(max=V - 1), columns_n1].masked_fill_(ids_nK >= V, 0.0)
    offset_n1 = (inside_nK.cumsum(1) <= threshold_n1 - before_n1).sum(1, keepdim=True).clamp_(max=_SLICE - 1)
    return (slice_n1 * _SLICE + offset_n1).squeeze(1).clamp_(max=V - 1)
