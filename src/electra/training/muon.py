"""Muon (Jordan et al. 2024): momentum whose matrices are orthogonalized before they are applied.

The update of a matrix is the momentum with all singular values set to about 1, so directions that rarely occur in
gradients are learned as fast as frequent ones. Its size is that of AdamW's update (Liu et al. 2025, "Muon is
Scalable for LLM Training", section 2.2), so learning rate and weight decay have the same meaning for both.

Matrices of the same shape are computed together. `torch.optim.Muon`, which computes one after another, is the
reference of the test.

Shapes: N matrices, R rows, C columns.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial that moves singular values toward 1 (Newton-Schulz iteration)."""
ITERATIONS = 5
ADAMW_SIZE = 0.2
"""Root mean square of the elements of AdamW's update, about."""


class Muon(torch.optim.Optimizer):
    """Muon for matrices, and another optimizer for all other parameters.

    As for the fused optimizers of PyTorch, `found_inf` and `grad_scale` must be set before each step.

    Args:
        groups: parameter groups of matrices. `parts` is the number of matrices that are one above another in a
            parameter, such as the projections of queries, keys and values.
        others: the fused optimizer of the other parameters. It shares state and parameter groups.
        momentum: decay of the running mean of gradients.
    """

    found_inf: Tensor
    """1 if the gradient is not finite: the step then changes nothing. 0 otherwise."""
    grad_scale: Tensor
    """The gradient is divided by it."""
    flops: float = 0.0
    """Operations of the matrix products of the last step."""

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        others: torch.optim.AdamW,
        *,
        lr: float,
        weight_decay: float,
        momentum: float,
    ) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "parts": 1})
        self.others, self.momentum, self.matrix_groups = others, momentum, list(self.param_groups)
        self.state.update(others.state)
        others.state = self.state
        self.param_groups += others.param_groups

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one update of all parameters that have a gradient."""
        assert closure is None, "a closure is not supported"
        self.others.found_inf, self.others.grad_scale = self.found_inf, self.grad_scale  # type: ignore[attr-defined]
        self.others.step()
        self.flops = 0.0
        for group in self.matrix_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            for _, same_shape in groupby(sorted(parameters, key=_shape), key=_shape):
                self.flops += self._update(list(same_shape), group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> float:
        """Update parameters of the same shape; return the operations of the matrix products."""
        buffers = [self._buffer(parameter) for parameter in parameters]
        grad = torch.stack([parameter.grad for parameter in parameters]) / self.grad_scale  # type: ignore[misc]
        momentum = torch.stack(buffers)
        is_finite = self.found_inf == 0
        grad = torch.where(is_finite, grad, momentum)  # the mean of a value and itself is that value
        momentum = momentum.lerp(grad, 1 - self.momentum)
        torch._foreach_copy_(buffers, list(momentum.unbind()))
        update = grad.lerp(momentum, self.momentum)  # Nesterov's
        matrices_NRC = update.unflatten(1, (group["parts"], -1)).flatten(0, 1)
        size = ADAMW_SIZE * max(matrices_NRC.shape[1:]) ** 0.5
        update = orthogonalize(matrices_NRC).reshape(update.shape) * (is_finite * group["lr"] * size)
        decay = 1 - is_finite * group["lr"] * group["weight_decay"]
        torch._foreach_mul_(parameters, decay)
        torch._foreach_sub_(parameters, list(update.unbind()))
        return len(matrices_NRC) * orthogonalization_flops(*matrices_NRC.shape[1:])

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def _shape(parameter: Tensor) -> tuple[int, ...]:
    return tuple(parameter.shape)


def orthogonalization_flops(rows: int, columns: int) -> float:
    """Operations of the products for one matrix; a multiply-add is 2 operations."""
    short, long = sorted((rows, columns))
    return ITERATIONS * (4.0 * short**2 * long + 2.0 * short**3)


def orthogonalize(x_NRC: Tensor) -> Tensor:
    """Return matrices with the same singular vectors, whose singular values are between about .7 and 1.2.

    Values below about a thousandth of the norm stay smaller.

    On an accelerator products are computed in bfloat16.
    """
    y = x_NRC if x_NRC.device.type == "cpu" else x_NRC.bfloat16()
    y = y / y.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    tall = x_NRC.shape[1] > x_NRC.shape[2]
    y = y.mT if tall else y
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return (y.mT if tall else y).to(x_NRC.dtype)
