"""One update of the weights: forward, backward, gradient clipping, AdamW. Nothing in it waits for the device.

With several processes, each one computes its part of the batch: losses are divided by the counts of all processes,
gradients and metrics are summed over all, and every process makes the same update.
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
from electra.objectives.base import Counts, StepOutput, TrainableModule
from electra.training import distributed
from electra.training.loss_scale import LossScale
from electra.training.muon import Muon
from electra.training.optim import load_optimizer_state_dict, optimizer_state_dict
from electra.training.precision import Precision
from electra.training.sharding import (
    attach_local_gradients,
    global_norm,
    is_sharded,
    local_shard,
    set_gradient_sync,
)

DROPOUT = 0x5DEECE66D
"""XORed with the seed of a batch, which masking uses, to get an independent seed for dropout."""

Metrics = dict[str, Tensor]
"""Scalars on the device, by their names in metrics.jsonl, and `tokens`, `positions` (tokens and padding) and
`applied` (0 or 1)."""


class Update:
    """Updates the weights of an objective.

    A step whose loss or gradient is not finite does not change the weights. The device decides this without
    waiting for the host; the metric `applied` is then 0.

    Args:
        gradient_clip: maximum norm of the gradient, over all networks together.
    """

    def __init__(
        self,
        objective: TrainableModule,
        optimizer: torch.optim.Optimizer,
        *,
        gradient_clip: float,
        precision: Precision,
        device: torch.device,
    ) -> None:
        self.objective, self.optimizer, self.gradient_clip = objective, optimizer, gradient_clip
        self.precision, self.device = precision, device
        self.forward = _wrap_ddp(objective)
        self.loss_scale = LossScale(device) if precision.name == "float16" else None

    def __call__(self, batches: Sequence[Batch], rate: float) -> Metrics:
        """Make one step over micro-batches, with a learning rate; return its metrics."""
        counts = self._counts(batches)
        metrics: Metrics = {}
        for batch in batches:
            torch.manual_seed(batch.seed ^ DROPOUT)
            with self._gradient_sync(last=batch is batches[-1]):
                with self.precision.autocast(self.device):
                    output: StepOutput = self.forward(batch, counts)
                loss = output.loss * distributed.world_size()  # because DDP takes the mean over processes
                (loss if self.loss_scale is None else loss * self.loss_scale.value).backward()
            positions = torch.full_like(output.loss, batch.input_ids_BL.numel())
            sizes = {"tokens": batch.lengths_B.sum(), "positions": positions}
            for name, value in {"loss": output.loss.detach(), **output.parts, **sizes}.items():
                metrics[name] = metrics[name] + value if name in metrics else value
        metrics = distributed.all_reduce_sum(metrics)
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        attach_local_gradients(self.objective)
        norm = clip_grad_norm(
            self.optimizer, map(local_shard, self.objective.parameters()), self.gradient_clip, scale=scale,
            sharded=is_sharded(self.objective),
        )  # fmt: skip
        metrics["gradient_norm"] = norm
        finite = torch.isfinite(metrics["loss"] + norm)
        if self.loss_scale is not None:
            metrics["loss_scale"] = self.loss_scale.value
            self.loss_scale.update(finite)
        self.optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {**metrics, "applied": finite}

    @property
    def flops(self) -> float:
        """Operations of the matrix products of the last update, which only Muon has."""
        return self.optimizer.flops if isinstance(self.optimizer, Muon) else 0.0

    def state_dict(self) -> dict[str, Tensor]:
        """The states of the optimizer and the loss scale, for a checkpoint."""
        scale = {} if self.loss_scale is None else self.loss_scale.state_dict()
        return {**optimizer_state_dict(self.objective, self.optimizer), **scale}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Load the result of `state_dict`."""
        loss_scale = {name: value for name, value in tensors.items() if name.startswith("loss_scale/")}
        if self.loss_scale is not None and loss_scale:
            self.loss_scale.load_state_dict(loss_scale)
        others = {name: value for name, value in tensors.items() if name not in loss_scale}
        load_optimizer_state_dict(self.objective, self.optimizer, others)

    def _counts(self, batches: Sequence[Batch]) -> Counts | None:
        """Totals over all micro-batches of all processes; None if there is only one, which computes its own."""
        if len(batches) == distributed.world_size() == 1:
            return None
        each = [self.objective.counts(batch) for batch in batches]
        return distributed.all_reduce_sum(
            {name: torch.stack([counts[name] for counts in each]).sum() for name in each[0]}
        )

    def _gradient_sync(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """A context in which gradients are summed over processes only after the last micro-batch of a step."""
        if is_sharded(self.objective):
            set_gradient_sync(self.objective, enabled=last)
        if last or not isinstance(self.forward, DistributedDataParallel):
            return contextlib.nullcontext()
        return self.forward.no_sync()


def _wrap_ddp(objective: TrainableModule) -> nn.Module:
    """Wrap the objective in DistributedDataParallel, unless it is sharded or the process is alone."""
    if distributed.world_size() == 1 or is_sharded(objective):
        return objective
    # Buffers are constant, so they need no broadcast. The argument has another name since torch 2.13.
    parameters = inspect.signature(DistributedDataParallel).parameters
    buffers: dict[str, Any] = {
        "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers": False
    }
    return DistributedDataParallel(
        objective,
        **buffers,
        gradient_as_bucket_view=True,
        find_unused_parameters=objective.has_unused_parameters,
    )


def clip_grad_norm(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[nn.Parameter],
    max_norm: float,
    *,
    scale: float | Tensor = 1.0,
    sharded: bool = False,
) -> Tensor:
    """Let the next step of a fused optimizer scale the gradient down to `max_norm`; return the norm.

    This saves a pass over the gradient, compared with `torch.nn.utils.clip_grad_norm_`.

    Args:
        scale: the loss scale of the gradients. The returned norm is without it.
        sharded: whether the parameters are local shards.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norm = (global_norm(norm) if sharded else norm) / scale
    optimizer.grad_scale = (norm / max_norm).clamp(min=1.0) * scale  # type: ignore[attr-defined]
    return norm


def compile_encoders(objective: nn.Module, **options: Any) -> None:
    """Let torch compile the encoders of an objective in their first forward pass; nothing else is compiled.

    Earlier compilations in this process are discarded, because torch compiles at most eight versions of one
    function, and all encoders of a class are one function.

    Args:
        options: of torch.compile, such as `mode` or `backend`.
    """
    torch.compiler.reset()
    for module in objective.modules():
        if isinstance(module, EncoderModule):
            module.compile_forward(fullgraph=True, dynamic=False, **options)
