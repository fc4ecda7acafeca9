"""One update of the weights: forward, backward, clip, AdamW. Nothing in it waits for the device."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from electra.data.collate import Batch
from electra.modeling.encoder import Encoder
from electra.objectives.base import Counts, StepOutput
from electra.training.precision import Precision

DROPOUT = 0x5DEECE66D
"""Turns a batch's seed, which masking draws from, into the unrelated one of its dropout."""

Figures = dict[str, Tensor]
"""Scalars on the device, by the name that they have in metrics.jsonl; `tokens` and `applied` (0 or 1) besides."""


class Update:
    """Makes updates of an objective's weights.

    A step whose loss or gradient is not finite changes nothing, which the device finds out for itself: the host
    is told by `applied` when it asks.

    Args:
        gradient_clip: the largest norm of the gradient, all networks together.
    """

    def __init__(
        self,
        objective: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_clip: float,
        precision: Precision,
        device: torch.device,
    ) -> None:
        self.objective, self.optimizer, self.gradient_clip = objective, optimizer, gradient_clip
        self.precision, self.device = precision, device

    def __call__(self, batches: Sequence[Batch], rate: float) -> Figures:
        """One step over micro-batches, at a learning rate."""
        counts = self._counts(batches)
        figures: Figures = {}
        for batch in batches:
            torch.manual_seed(batch.seed ^ DROPOUT)
            with self.precision.autocast(self.device):
                output: StepOutput = self.objective(batch, counts)
            output.loss.backward()
            for name, value in {"loss": output.loss.detach(), **output.parts}.items():
                figures[name] = figures[name] + value if name in figures else value
        figures["gradient_norm"] = clip(self.optimizer, self.objective.parameters(), self.gradient_clip)
        finite = torch.isfinite(figures["loss"] + figures["gradient_norm"])
        self.optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = torch.stack([batch.lengths_B.sum() for batch in batches]).sum()
        return {**figures, "tokens": tokens, "applied": finite}

    def _counts(self, batches: Sequence[Batch]) -> Counts | None:
        """Totals over the micro-batches; None where there is only one, which counts for itself."""
        if len(batches) == 1:
            return None
        each = [self.objective.counts(batch) for batch in batches]  # type: ignore[operator]
        return {name: torch.stack([counts[name] for counts in each]).sum() for name in each[0]}


def clip(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], largest: float) -> Tensor:
    """Have the next step of a fused optimiser divide the gradient, if it is longer than `largest`.

    That spares a pass over the gradient. The norm comes back.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    optimizer.grad_scale = (norm / largest).clamp(min=1.0)  # type: ignore[attr-defined]
    return norm


def compile_encoders(objective: nn.Module, *, backend: str = "inductor") -> None:
    """Let torch compile an objective's encoders when they are first called; what is between them stays as it is.

    What was compiled before in this process is forgotten: torch makes no more than eight versions of one function,
    and to it all encoders are one.
    """
    torch.compiler.reset()
    for module in objective.modules():
        if isinstance(module, Encoder):
            module.compile(fullgraph=True, dynamic=False, backend=backend)
