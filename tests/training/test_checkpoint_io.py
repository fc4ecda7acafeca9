"""What a checkpoint restores besides weights and moments: the memory of the rows of a stream."""

from dataclasses import replace
from pathlib import Path

import torch
from contract import batch, objective

from electra.data.collate import Batch, StreamState
from electra.training.checkpoint import Checkpoints
from electra.training.checkpoint_io import latest, restore, save
from electra.training.config import CheckpointConfig, OptimizerConfig
from electra.training.optim import build_optimizer
from electra.training.precision import Precision
from electra.training.update import Update


def build_update() -> Update:
    one = objective("causal-lm")
    optimizer = build_optimizer(one, OptimizerConfig())
    return Update(
        one, optimizer, gradient_clip=1.0, precision=Precision("float32", "", 0.0), device=torch.device("cpu")
    )


def window(step: int) -> Batch:
    """The same six rows of a stream in each step, further on in the text."""
    return replace(
        batch(6, seed=step), stream_state=StreamState(torch.full((6,), 7), torch.zeros(6, dtype=torch.bool))
    )


def losses(update: Update, steps: range) -> list[float]:
    return [float(update([window(step)], 1e-3)["loss"]) for step in steps]


def test_a_resumed_run_has_the_memory_of_its_rows(tmp_path: Path) -> None:
    checkpoints, update = Checkpoints(tmp_path, CheckpointConfig()), build_update()
    losses(update, range(2))
    save(checkpoints, 2, update, state={}, texts={})
    resumed, checkpoint = build_update(), latest(checkpoints)
    assert checkpoint is not None
    restore(checkpoint, resumed)
    expected = losses(update, range(2, 4))
    assert losses(resumed, range(2, 4)) == expected
    resumed = build_update()
    restore(checkpoint, resumed)
    resumed.objective.memory.restore(None)  # type: ignore[union-attr, operator]
    assert losses(resumed, range(2, 4)) != expected, "the memory matters"
