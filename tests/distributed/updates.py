"""Updates of an objective by one process or by its share of several, with the same four micro-batches."""

from dataclasses import replace

import torch
from contract import MODEL, batch, objective, rows
from torch import Tensor
from torch.distributed.tensor import DTensor

from electra.data.collate import StreamState
from electra.modeling.encoders.relative import RelativeEncoder
from electra.training.config import OptimizerConfig
from electra.training.optim import build_optimizer
from electra.training.precision import Precision
from electra.training.sharding import shard
from electra.training.update import Update

STEPS = (3, 8, 9)
"""Of ten: both stages of those that have two."""


def continued(first_row: int) -> StreamState:
    return StreamState(torch.full((3,), 7), torch.zeros(3, dtype=torch.bool), first_row)


def updated(
    name: str, *, rank: int = 0, world: int = 1, sharded: bool = False
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """The weights after some updates, and the figures of each."""
    ours = objective(name, model=replace(MODEL, dropout=0.1))
    if sharded:
        shard(ours, torch.device("cpu"))
    optimizer = build_optimizer(ours, OptimizerConfig(learning_rate=1e-3))
    update = Update(
        ours, optimizer, gradient_clip=1.0, precision=Precision("float32", "", 1.0), device=torch.device("cpu")
    )
    figures = []
    for step in STEPS:
        ours.begin_step(step, 10)
        whole = batch(12, seed=step)
        parts = [replace(rows(whole, slice(3 * n, 3 * n + 3)), seed=100 * step + n) for n in range(4)]
        share = len(parts) // world
        mine = parts[rank * share : (rank + 1) * share]
        if isinstance(
            next(iter(ours.exportable_networks().values())).encoder, RelativeEncoder
        ):  # their rows go on from step to step
            mine = [replace(one, stream_state=continued(3 * n)) for n, one in enumerate(mine)]
        figures.append(update(mine, 1e-3))
    held = {key: parameter.detach().clone() for key, parameter in ours.named_parameters()}
    weights = {key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in held.items()}
    return weights, [{key: float(value) for key, value in one.items()} for one in figures]
