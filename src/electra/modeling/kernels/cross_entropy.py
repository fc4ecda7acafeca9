"""Inner loops that are written for speed, each beside the plain version that it must equal.

Shapes: N positions, n positions of one block, E embedding size, V vocabulary, S slices of the vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 256
"""Positions whose logits are held at once: 256 × 30,522 in fp32 are 31 MB, about a level-3 cache."""

_SLICE = 256
"""Tokens in a slice of the vocabulary, for the two-level search for a sample."""


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from a distribution over the vocabulary.

    Attributes:
        temperature: the logits are divided by it.
        disallow_targets: never the true token.
        top_k: one of the so many likeliest tokens only; 0: any.
    """

    temperature: float = 1.0
    disallow_targets: bool = False
    top_k: int = 0

    @property
    def plain(self) -> bool:
        """Whether the distribution is drawn from as it is."""
        return self == Sampling()

    def weights(self, logits_Vn: Tensor, targets_n: Tensor) -> Tensor:
        """In proportion to which tokens are drawn (V, n).

        Args:
            logits_Vn: at most 0, the largest of a column being 0.
        """
        logits_Vn = logits_Vn / self.temperature
        if self.disallow_targets:
            logits_Vn.scatter_(0, targets_n[None], -torch.inf)
        if 0 < self.top_k < len(logits_Vn):
            least_n = logits_Vn.topk(self.top_k, dim=0).values[-1]
            logits_Vn.masked_fill_(logits_Vn < least_n, -torch.inf)
        return logits_Vn.exp_()


PLAIN = Sampling()

Reweigh = Callable[[Tensor, Tensor], Tensor]
"""From rows (n,) and their log-likelihoods (n,) to what their weights are multiplied with in the gradient (n,)."""


def sampled_cross_entropy(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    uniforms_N: Tensor,
    *,
    sampling: Sampling = PLAIN,
    reweigh: Reweigh | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax cross-entropy of every row and one sample from it, in a single pass over the logits.

    The logits (N, V) never exist as a whole: those of a block of positions are multiplied out, exponentiated,
    sampled, and turned into their gradient before the next block is begun. That saves memory (four copies of
    N × V in fp32) and, on a CPU, most of the time that a softmax, a sampler and their backward pass take. A block
    is held as (V, n), the vocabulary first: products with so thin a table run up to twice as fast that way.

    Args:
        targets_N: the true ids.
        weights_N: the weight of each row in the loss. Rows of weight 0 may be passed over; their samples mean
            nothing.
        uniforms_N: one number in [0, 1) a row; it picks the sample by inverting the distribution function.
        sampling: how the sample is drawn; the loss does not depend on it.
        reweigh: for losses that are functions of the log-likelihoods: called for every row of a weight other than
            0 before its gradient is formed, which is therefore no second pass.

    Returns:
        The weighted sum of the negative log-likelihoods (a scalar with a gradient), and the samples (N,).

    Equals `sampled_cross_entropy_plain` up to rounding.
    """
    # Asked here, since inside of an autograd function no gradient is ever enabled.
    learning = torch.is_grad_enabled() and any(x.requires_grad for x in (hidden_NE, table_VE, bias_V))
    loss, samples_N = _SampledCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_NE, table_VE, bias_V, targets_N, weights_N, uniforms_N, sampling, reweigh, learning
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
    """The same as `sampled_cross_entropy`, as one would write it: the reference in its tests."""
    logits_NV = F.linear(hidden_NE, table_VE, bias_V).float()
    loss = (weights_N * F.cross_entropy(logits_NV, targets_N, reduction="none")).sum()
    drawn_NV = logits_NV.detach() / sampling.temperature
    if sampling.disallow_targets:
        drawn_NV = drawn_NV.scatter(1, targets_N[:, None], -torch.inf)
    if sampling.top_k:
        least_N1 = drawn_NV.topk(min(sampling.top_k, drawn_NV.shape[1])).values[:, -1:]
        drawn_NV = drawn_NV.masked_fill(drawn_NV < least_N1, -torch.inf)
    cumulative_NV = drawn_NV.softmax(-1).cumsum(-1)
    samples_N = torch.searchsorted(cumulative_NV, uniforms_N[:, None] * cumulative_NV[:, -1:], right=True)
    return loss, samples_N.squeeze(1).clamp_(max=table_VE.shape[0] - 1)


@torch.no_grad()
def log_probabilities(hidden_NE: Tensor, table_VE: Tensor, bias_V: Tensor, ids_N: Tensor) -> Tensor:
    """Log-probability (N,) of one id a row, in fp32, without a gradient; logits of a block of rows at a time."""
    found = []
    for start in range(0, len(ids_N), ROWS):
        rows = slice(start, start + ROWS)
        logits_nV = F.linear(hidden_NE[rows], table_VE, bias_V).float()
        found.append(logits_nV.gather(1, ids_N[rows, None]).squeeze(1) - logits_nV.logsumexp(-1))
    return torch.cat(found) if found else hidden_NE.new_zeros(0, dtype=torch.float32)


class _SampledCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NE: Tensor,
        table_VE: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        weights_N: Tensor,
        uniforms_N: Tensor,
        sampling: Sampling,
        reweigh: Reweigh | None,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        # Under autocast the products run in its dtype, as those of F.linear would; everything else is in fp32.
        device = hidden_NE.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else table_VE.dtype
        with torch.autocast(device, enabled=False):
            loss, samples_N, gradients = _in_blocks(
                hidden_NE.to(dtype), table_VE.to(dtype), bias_V, targets_N, weights_N.float(), uniforms_N,
                sampling, reweigh, learning=learning,
            )  # fmt: skip
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(samples_N)
        return loss, samples_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # The loss is a plain sum, so its gradient was complete but for the factor that arrives here.
        hidden_NE, table_VE, bias_V = (saved * grads[0] for saved in ctx.saved_tensors)
        return hidden_NE, table_VE, bias_V, None, None, None, None, None, None


def _in_blocks(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    uniforms_N: Tensor,
    sampling: Sampling,
    reweigh: Reweigh | None,
    *,
    learning: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Loss, samples, and the gradients of hidden states, table and bias in fp32 (zeros unless `learning`)."""
    dtype, V = table_VE.dtype, len(table_VE)
    grad_hidden_NE, grad_table_VE, grad_bias_V = (
        torch.zeros_like(tensor, dtype=torch.float32) for tensor in (hidden_NE, table_VE, bias_V)
    )
    loss = weights_N.new_zeros(())
    samples_N = targets_N.clone()
    # The blocks' logits use the same memory in turn: to be given fresh pages costs a third of the product.
    memory = table_VE.new_empty(V * min(ROWS, len(hidden_NE)))
    for rows_n in _counting(weights_N).split(ROWS):
        hidden_nE, targets_n, weights_n = hidden_NE[rows_n], targets_N[rows_n], weights_N[rows_n]
        products_Vn = memory[: V * len(rows_n)].view(V, len(rows_n))
        logits_Vn = torch.mm(table_VE, hidden_nE.T, out=products_Vn).float().add_(bias_V[:, None])
        of_targets_n = logits_Vn.gather(0, targets_n[None]).squeeze(0)
        largest_n = logits_Vn.amax(0)
        if not sampling.plain:
            _, samples_N[rows_n] = draw(sampling.weights(logits_Vn - largest_n, targets_n), uniforms_N[rows_n])
        weights_Vn = logits_Vn.sub_(largest_n).exp_()  # the logits are not needed any more
        total_n, samples_n = draw(weights_Vn, uniforms_N[rows_n])
        if sampling.plain:
            samples_N[rows_n] = samples_n
        likelihood_n = of_targets_n - (largest_n + total_n.log())
        loss -= weights_n @ likelihood_n
        if reweigh is not None:
            weights_n = weights_n * reweigh(rows_n, likelihood_n)
            weights_N = weights_N.index_copy(0, rows_n, weights_n)
        if learning:
            # The gradient of the logits is weight × (probability − [target]). Weights and totals are taken into
            # the small factors of the products, and the targets below: nothing (V, n) is written again.
            share_n = weights_n / total_n
            grad_bias_V += weights_Vn @ share_n
            weights_Vn = weights_Vn.to(dtype)
            grad_nE = share_n[:, None] * (weights_Vn.T @ table_VE)
            grad_hidden_NE[rows_n] = grad_nE - weights_n[:, None] * table_VE[targets_n]
            factor_nE = (share_n[:, None] * hidden_nE).to(dtype)
            if dtype == torch.float32:
                grad_table_VE.addmm_(weights_Vn, factor_nE)
            else:
                grad_table_VE += weights_Vn @ factor_nE
    if learning:
        grad_table_VE.index_add_(0, targets_N, -weights_N[:, None] * hidden_NE)
        grad_bias_V.index_add_(0, targets_N, -weights_N)
    return loss, samples_N, (grad_hidden_NE, grad_table_VE, grad_bias_V)


def _counting(weights_N: Tensor) -> Tensor:
    """Rows whose weight is not 0, and a few others that make their number a multiple of 32, which products like.

    On an accelerator all rows: to ask how many there are would stall the queue.
    """
    order_N = (weights_N == 0).to(torch.uint8).argsort(stable=True)
    if weights_N.device.type != "cpu":
        return order_N
    counting = int(weights_N.count_nonzero())
    return order_N[: (counting + 31) // 32 * 32]


def draw(weights_Vn: Tensor, uniforms_n: Tensor) -> tuple[Tensor, Tensor]:
    """Totals (n,) of weights that are not negative, and one sample a column in proportion to them (n,).

    The distribution function is inverted on two levels: the sums of slices find the slice, then only that
    slice's running sum is made. Reading the weights once is all that is dear; noise for every entry, as in the
    Gumbel trick, costs several times that.
    """
    V, n = weights_Vn.shape
    slices, left = divmod(V, _SLICE)
    sums_Sn = weights_Vn[: V - left].view(slices, _SLICE, n).sum(1)
    if left:
        sums_Sn = torch.cat([sums_Sn, weights_Vn[V - left :].sum(0, keepdim=True)])
    sums_nS = sums_Sn.T.contiguous()
    cumulative_nS = sums_nS.cumsum(1)
    total_n1 = cumulative_nS[:, -1:]
    goal_n1 = uniforms_n[:, None] * total_n1
    slice_n1 = torch.searchsorted(cumulative_nS, goal_n1, right=True).clamp_(max=sums_nS.shape[1] - 1)
    before_n1 = cumulative_nS.gather(1, slice_n1) - sums_nS.gather(1, slice_n1)
    ids_nK = slice_n1 * _SLICE + torch.arange(_SLICE, device=weights_Vn.device)
    columns_n1 = torch.arange(n, device=weights_Vn.device)[:, None]
    inside_nK = weights_Vn[ids_nK.clamp(max=V - 1), columns_n1].masked_fill_(ids_nK >= V, 0.0)
    offset_n1 = (inside_nK.cumsum(1) <= goal_n1 - before_n1).sum(1, keepdim=True).clamp_(max=_SLICE - 1)
    return total_n1.squeeze(1), (slice_n1 * _SLICE + offset_n1).squeeze(1).clamp_(max=V - 1)
