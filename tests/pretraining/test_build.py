"""The parts of a run: the masks of its batches, the held-out batches, and what a measurement leaves behind."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_run import config

from electra.config import load_config
from electra.data.shards import TokenData
from electra.objectives.stream_memory import stream_memories
from electra.pretraining import build as building
from electra.pretraining.build import build, build_batches, heldout_batches
from electra.pretraining.config import PretrainConfig, with_vocabulary
from electra.training.precision import Precision

CPU = torch.device("cpu")


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_static_masks_repeat_after_their_copies(data_folder: Path, tmp_path: Path, copies: int) -> None:
    data = TokenData.open(data_folder)
    settings = config(data_folder, tmp_path, f"masking.copies={copies}", "train.batch_size=100", "train.steps=1")
    batches = build_batches(settings, data, CPU)
    seeds: dict[tuple[int, ...], list[int]] = {}
    steps = next(steps for steps in range(1, 1000) if batches.epochs(steps) > 4)
    for step in range(steps):
        (batch,) = batches.micro_batches(step)
        for row, seed in zip(batch.input_ids_BL.tolist(), batch.row_seeds.tolist(), strict=True):
            seeds.setdefault(tuple(token for token in row if token), []).append(seed)
    each = [found for found in seeds.values() if len(found) == 4]  # rows that occur once in the text
    assert len(each) > 100
    for first, second, third, fourth in each:
        assert (first == third, second == fourth, first == second) == (copies > 0, copies > 0, copies == 1)


def test_held_out_batches_do_not_follow_the_seed_of_the_run(data_folder: Path, tmp_path: Path) -> None:
    data, found = TokenData.open(data_folder), []
    for seed in (0, 1):
        settings = config(data_folder, tmp_path, f"train.seed={seed}", "train.steps=1")
        found.append(list(heldout_batches(settings, data, CPU)))
    assert found[0] and len(found[0]) == len(found[1])
    for pair in zip(*found, strict=True):
        for one, two in zip(*pair, strict=True):
            assert torch.equal(one.input_ids_BL, two.input_ids_BL) and torch.equal(one.row_seeds, two.row_seeds)


def test_the_batch_of_a_measurement_is_not_remembered(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: list[bool] = []
    settings = load_config(PretrainConfig, "txl-tiny", [
        "model.layers=1", "model.hidden_size=32", "model.embedding_size=32", "model.heads=2",
        "model.feed_forward_size=64", "model.memory_length=16", "packing.sequence_length=16",
        "train.batch_size=4", "train.steps=2", f"data={data_folder}", f"out={tmp_path}",
    ])  # fmt: skip
    data = TokenData.open(data_folder)

    def measure(wanted: str, device: torch.device, step: Callable[[], None]) -> Precision:
        step()
        remembered.append(True)
        return Precision("float32", "", 1e9)

    monkeypatch.setattr(building, "choose_precision", measure)
    parts = build(with_vocabulary(settings, data.vocabulary_size), data, None)
    memories = stream_memories(parts.objective)
    assert remembered and memories and all(memory.rows() is None for memory in memories.values())
