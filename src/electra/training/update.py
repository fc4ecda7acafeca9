"""One update of the weights: forward, backward, clip, AdamW. Nothing in it waits for the device.

Of several processes each computes its part of the batch: losses are divided by the counts of all, gradients and
figures are summed over all, and every process makes the same update.
"""

import contextlib
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from electra.data.collate import Batch
from electra.modeling.encoders.base import EncoderModule
from electra.objectives.base import Counts, StepOutput
from electra.training import distributed
from electra.training.loss_scale import LossScale
from electra.training.optim import optimizer_tensors, restore_optimizer
from electra.training.precision import Precision
from electra.training.sharding import attach_local_gradients, global_norm, is_sharded, local_shard, sum_gradients

DROPOUT = 0x5DEECE66D
"""Turns a batch's seed, which masking draws from, into the unrelated one of its dropout."""

Figures = dict[str, Tensor]
"""Scalars on the device, by the name that they have in metrics.jsonl; besides, `tokens`, `positions` (tokens and
padding) and `applied` (0 or 1)."""


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
        self.forward = _distributed(objective)
        self.scale = LossScale(device) if precision.name == "float16" else None

    def __call__(self, batches: Sequence[Batch], rate: float) -> Figures:
        """One step over micro-batches, at a learning rate."""
        counts = self._counts(batches)
        figures: Figures = {}
        for batch in batches:
            torch.manual_seed(batch.seed ^ DROPOUT)
            with self._summing(last=batch is batches[-1]):
                with self.precision.autocast(self.device):
                    output: StepOutput = self.forward(batch, counts)
                loss = output.loss * distributed.world_size()  # of which DDP takes the mean over processes
                (loss if self.scale is None else loss * self.scale.value).backward()
            positions = torch.full_like(output.loss, batch.input_ids_BL.numel())
            seen = {"tokens": batch.lengths_B.sum(), "positions": positions}
            for name, value in {"loss": output.loss.detach(), **output.parts, **seen}.items():
                figures[name] = figures[name] + value if name in figures else value
        figures = distributed.all_reduce_sum(figures)
        scale = 1.0 if self.scale is None else self.scale.value
        attach_local_gradients(self.objective)
        norm = clip(
            self.optimizer, map(local_shard, self.objective.parameters()), self.gradient_clip, scale=scale,
            sharded=is_sharded(self.objective),
        )  # fmt: skip
        figures["gradient_norm"] = norm
        finite = torch.isfinite(figures["loss"] + norm)
        if self.scale is not None:
            figures["loss_scale"] = self.scale.value
            self.scale.update(finite)
        self.optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {**figures, "applied": finite}

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state, and that of the loss's scale, for a checkpoint."""
        scale = {} if self.scale is None else self.scale.tensors()
        return {**optimizer_tensors(self.objective, self.optimizer), **scale}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        of_scale = {name: value for name, value in tensors.items() if name.startswith("loss_scale/")}
        if self.scale is not None and of_scale:
            self.scale.restore(of_scale)
        others = {name: value for name, value in tensors.items() if name not in of_scale}
        restore_optimizer(self.objective, self.optimizer, others)

    def _counts(self, batches: Sequence[Batch]) -> Counts | None:
        """Totals over all micro-batches of all processes; None where there is one, which counts for itself."""
        if len(batches) == distributed.world_size() == 1:
            return None
        each = [self.objective.counts(batch) for batch in batches]  # type: ignore[operator]
        return distributed.all_reduce_sum(
            {name: torch.stack([counts[name] for counts in each]).sum() for name in each[0]}
        )

    def _summing(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients go to the other processes once a step, with the last micro-batch."""
        if is_sharded(self.objective):
            sum_gradients(self.objective, wanted=last)
        if last or not isinstance(self.forward, DistributedDataParallel):
            return contextlib.nullcontext()
        return self.forward.no_sync()


def _distributed(objective: nn.Module) -> nn.Module:
    """The objective, whose gradients are those of all processes."""
    if distributed.world_size() == 1 or is_sharded(objective):
        return objective
    # Buffers are constants of the data; the setting has another name since torch 2.13.
    known = inspect.signature(DistributedDataParallel).parameters
    buffers: dict[str, Any] = {
        "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False
    }
    return DistributedDataParallel(
        objective,
        **buffers,
        gradient_as_bucket_view=True,
        find_unused_parameters=getattr(objective, "has_unused_parameters", False),
    )


def clip(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[nn.Parameter],
    largest: float,
    *,
    scale: float | Tensor = 1.0,
    sharded: bool = False,
) -> Tensor:
    """Have the next step of a fused optimiser divide the gradient, if it is longer than `largest`.

    That spares a pass over the gradient. The norm comes back, as it is without the scale that gradients have.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norm = (global_norm(norm) if sharded else norm) / scale
    optimizer.grad_scale = (norm / largest).clamp(min=1.0) * scale  # type: ignore[attr-defined]
    return norm


def compile_encoders(objective: nn.Module, *, backend: str = "inductor") -> None:
    """Let torch compile an objective's encoders when they are first called; what is between them stays as it is.

    What was compiled before in this process is forgotten: torch makes no more than eight versions of one function,
    and to it all encoders are one.
    """
    torch.compiler.reset()
    for module in objective.modules():
        if isinstance(module, EncoderModule):
            module.compile_forward(fullgraph=True, dynamic=False, backend=backend)
