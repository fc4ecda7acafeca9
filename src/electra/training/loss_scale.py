"""Loss scaling for float16, without which small gradients are 0 (Micikevicius et al. 2018, section 3.2)."""

import torch
from torch import Tensor

INITIAL_SCALE, GROWTH_INTERVAL = 2.0**16, 2000
"""The scale at the start, and the number of steps without an overflow after which it doubles."""


class LossScale:
    """A scale that halves when a gradient overflows, and doubles after many steps without an overflow.

    It stays on the device, so no step waits for it (`torch.amp.GradScaler` copies it to the host).
    """

    def __init__(self, device: torch.device) -> None:
        self.value = torch.tensor(INITIAL_SCALE, device=device)
        self.steps = torch.tensor(0.0, device=device)

    def update(self, finite: Tensor) -> None:
        """Update the scale after a step, given whether its gradients were finite."""
        steps = torch.where(finite, self.steps + 1, 0.0)
        doubled = steps >= GROWTH_INTERVAL
        self.value = torch.where(finite, torch.where(doubled, 2 * self.value, self.value), self.value / 2)
        self.steps = torch.where(doubled, 0.0, steps)

    def state_dict(self) -> dict[str, Tensor]:
        """The state to save in a checkpoint."""
        return {"loss_scale/value": self.value, "loss_scale/steps": self.steps}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Load the result of `state_dict`."""
        self.value = tensors["loss_scale/value"].to(self.value.device)
        self.steps = tensors["loss_scale/steps"].to(self.value.device)
