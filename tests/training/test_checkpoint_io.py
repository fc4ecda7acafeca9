"""What a checkpoint restores besides weights and moments: the memory of the rows of a stream."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contract import batch, objective

from electra.data.collate import Batch, StreamState
from electra.errors import CheckpointError
from electra.json_files import write_json
from electra.training.checkpoint import STATE, Checkpoints
from electra.training.checkpoint_io import check_newest, latest, restore, save
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


def test_the_newest_checkpoint_says_which_data_a_run_has(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    check_newest(checkpoints, {"data": "new"})
    for step, identity in ((10, {"data": "old"}), (20, {"data": "new"})):
        (folder := tmp_path / f"step-{step:08d}").mkdir()
        write_json(folder / STATE, {"identity": identity})
    check_newest(checkpoints, {"data": "new"})
    with pytest.raises(
        CheckpointError, match=r"step-00000020 was trained with other data \(.*new before, old now"
    ):
        check_newest(checkpoints, {"data": "old"})
