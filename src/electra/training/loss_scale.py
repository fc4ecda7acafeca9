"""The loss's scale in float16, where small gradients are 0 without it (Micikevicius et al. 2018, section 3.2)."""

import torch
from torch import Tensor

FIRST, STEPS = 2.0**16, 2000
"""The scale at the start, and the steps without an infinite gradient after which it doubles."""


class LossScale:
    """Halves when a gradient overflows, and doubles when none has for long. Nothing in it waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self.value = torch.tensor(FIRST, device=device)
        self.steps = torch.tensor(0.0, device=device)

    def update(self, finite: Tensor) -> None:
        """A step was made, whose gradients were all finite or were not."""
        steps = torch.where(finite, self.steps + 1, 0.0)
        doubled = steps >= STEPS
        self.value = torch.where(finite, torch.where(doubled, 2 * self.value, self.value), self.value / 2)
        self.steps = torch.where(doubled, 0.0, steps)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {"loss_scale/value": self.value, "loss_scale/steps": self.steps}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        self.value = tensors["loss_scale/value"].to(self.value.device)
        self.steps = tensors["loss_scale/steps"].to(self.value.device)
