"""Inner loops that are written for speed, each beside the plain version that it must equal.

Shapes: N positions, E embedding size, V vocabulary, S samples' block.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 256
"""Rows of logits that are held at once: 256 × 30,522 in fp32 are 31 MB, about a level-3 cache."""

_BLOCK = 256
"""Width of the blocks of the two-level search for a sample."""


def sampled_cross_entropy(
    hidden_NE: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    uniforms_N: Tensor,
    *,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Softmax cross-entropy of every row and one sample from it, in a single pass over the logits.

    The logits (N, V) never exist as a whole: a block of rows is multiplied out, turned into probabilities,
    sampled, and turned into its gradient before the next block is begun. That saves memory (four copies of
    N × V in fp32) and, on a CPU, most of the time that a softmax, a sampler and their backward pass take.

    Args:
        targets_N: the true ids.
        weights_N: the weight of each row in the loss, 0 for rows that do not count.
        uniforms_N: one number in [0, 1) a row; it picks the sample by inverting the distribution function.
        temperature: the logits are divided by it for the sample, not for the loss.

    Returns:
        The weighted sum of the negative log-likelihoods (a scalar with a gradient), and the samples (N,).

    Equals `sampled_cross_entropy_plain` up to rounding.
    """
    loss, samples_N = _SampledCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_NE, table_VE, bias_V, targets_N, weights_N, uniforms_N, temperature
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
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The same as `sampled_cross_entropy`, as one would write it: the reference in its tests."""
    logits_NV = F.linear(hidden_NE, table_VE, bias_V).float()
    loss = (weights_N * F.cross_entropy(logits_NV, targets_N, reduction="none")).sum()
    cumulative_NV = (logits_NV.detach() / temperature).softmax(-1).cumsum(-1)
    samples_N = torch.searchsorted(cumulative_NV, uniforms_N[:, None] * cumulative_NV[:, -1:], right=True)
    return loss, samples_N.squeeze(1).clamp_(max=table_VE.shape[0] - 1)


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
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        learning = any(ctx.needs_input_grad[:3])
        # Under autocast the products run in its dtype, as those of F.linear would; sums are made in fp32.
        device = hidden_NE.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else table_VE.dtype
        hidden_NE, table_ve, bias_v = hidden_NE.to(dtype), table_VE.to(dtype), bias_V.to(dtype)
        weighted_NE = weights_N.to(dtype)[:, None] * hidden_NE
        grad_hidden_NE = torch.zeros_like(hidden_NE)
        grad_table_VE, grad_bias_V = torch.zeros_like(table_VE), torch.zeros_like(bias_V)
        loss = hidden_NE.new_zeros((), dtype=torch.float32)
        samples_N = torch.empty_like(targets_N)
        for start in range(0, len(targets_N), ROWS):
            rows = slice(start, start + ROWS)
            targets_n1, weights_n = targets_N[rows, None], weights_N[rows].float()
            logits_nV = torch.addmm(bias_v, hidden_NE[rows], table_ve.T).float()
            probabilities_nV = logits_nV.softmax(-1)
            # log(sum of exp) by way of the likeliest token, whose probability cannot vanish
            total_n = logits_nV.amax(-1) - probabilities_nV.amax(-1).log()
            loss += (weights_n * (total_n - logits_nV.gather(1, targets_n1).squeeze(1))).sum()
            drawn_nV = probabilities_nV if temperature == 1.0 else (logits_nV / temperature).softmax(-1)
            samples_N[rows] = _invert(drawn_nV, uniforms_N[rows])
            if learning:
                # The gradient of the logits is weight × (probability − [target]). The weights are taken into the
                # small factors of the products, and the targets below, so that nothing (n, V) is written again.
                grad_bias_V += weights_n @ probabilities_nV
                probabilities_nv = probabilities_nV.to(dtype)
                grad_hidden_NE[rows] = probabilities_nv @ table_ve
                if dtype == grad_table_VE.dtype:
                    grad_table_VE.addmm_(probabilities_nv.T, weighted_NE[rows])
                else:
                    grad_table_VE += probabilities_nv.T @ weighted_NE[rows]
        if learning:
            grad_hidden_NE -= table_ve[targets_N]
            grad_hidden_NE *= weights_N.to(dtype)[:, None]
            grad_table_VE.index_add_(0, targets_N, -weighted_NE.to(grad_table_VE.dtype))
            grad_bias_V.index_add_(0, targets_N, -weights_N.to(bias_V.dtype))
        ctx.save_for_backward(grad_hidden_NE, grad_table_VE, grad_bias_V)
        ctx.mark_non_differentiable(samples_N)
        return loss, samples_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # The loss is a plain sum, so its gradient was complete but for the factor that arrives here.
        hidden_NE, table_VE, bias_V = (saved * grads[0] for saved in ctx.saved_tensors)
        return hidden_NE, table_VE, bias_V, None, None, None, None


def _invert(weights_nV: Tensor, uniforms_n: Tensor) -> Tensor:
    """Samples in proportion to `weights_nV` (not negative, not normalised) by inverse distribution function.

    Two levels: the sums of blocks find the block, then only that block's running sum is made. Reading the
    row once is all that is dear; noise for every entry, as in the Gumbel trick, costs several times that.
    """
    n, V = weights_nV.shape
    whole = V // _BLOCK * _BLOCK
    sums = weights_nV[:, :whole].view(n, -1, _BLOCK).sum(-1)
    if whole < V:
        sums = torch.cat([sums, weights_nV[:, whole:].sum(-1, keepdim=True)], dim=1)
    cumulative_nS = sums.cumsum(1)
    goal_n1 = uniforms_n[:, None] * cumulative_nS[:, -1:]
    last = cumulative_nS.shape[1] - 1
    block_n1 = torch.searchsorted(cumulative_nS, goal_n1, right=True).clamp_(max=last)
    before_n1 = cumulative_nS.gather(1, block_n1) - sums.gather(1, block_n1)
    ids_nS = block_n1 * _BLOCK + torch.arange(_BLOCK, device=weights_nV.device)
    inside_nS = weights_nV.gather(1, ids_nS.clamp(max=V - 1)).masked_fill_(ids_nS >= V, 0.0)
    offset_n = (inside_nS.cumsum(1) <= goal_n1 - before_n1).sum(1).clamp_(max=_BLOCK - 1)
    return (block_n1.squeeze(1) * _BLOCK + offset_n).clamp_(max=V - 1)
