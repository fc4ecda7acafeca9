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


def test_micro_batches_have_the_rows_and_the_masks_of_the_batch(data_folder: Path, tmp_path: Path) -> None:
    data = TokenData.open(data_folder)
    (whole,), parts = (
        build_batches(config(data_folder, tmp_path, "train.steps=1", *more), data, CPU).micro_batches(0)
        for more in ((), ("train.micro_batch_size=2",))
    )
    assert len(parts) == 4 and len(set(whole.row_seeds.tolist())) == 8
    assert torch.equal(torch.cat([part.row_seeds for part in parts]), whole.row_seeds)
    assert torch.equal(torch.cat([part.lengths_B for part in parts]), whole.lengths_B)


def test_each_micro_batch_has_a_seed_of_its_own(data_folder: Path, tmp_path: Path) -> None:
    settings = config(data_folder, tmp_path, "train.steps=2", "train.micro_batch_size=2")
    batches = build_batches(settings, TokenData.open(data_folder), CPU)
    seeds = [batch.seed for step in (0, 1) for batch in batches.micro_batches(step)]
    assert len(seeds) == len(set(seeds)) == 8


def test_the_seed_decides_the_first_weights(data_folder: Path, tmp_path: Path) -> None:
    data = TokenData.open(data_folder)
    first, again, other = (
        build(
            with_vocabulary(
                config(data_folder, tmp_path, f"train.seed={seed}", "train.steps=1"), data.vocabulary_size
            ),
            data,
            None,
        ).objective.encoder.token_table.weight  # type: ignore[union-attr]
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_the_copy_of_held_out_text_has_unigram_fakes(data_folder: Path, tmp_path: Path) -> None:
    data = TokenData.open(data_folder)
    pairs = list(heldout_batches(config(data_folder, tmp_path, "train.steps=1"), data, CPU))
    differ = torch.cat([(copy.input_ids_BL != text.input_ids_BL).flatten() for text, copy in pairs])
    tokens = sum(int(text.lengths_B.sum()) for text, _ in pairs)
    assert 0.05 < int(differ.sum()) / tokens < 0.2


def test_a_measurement_leaves_the_first_stage(data_folder: Path, tmp_path: Path) -> None:
    stages = ("objective.kind=two-stage", "objective.sharing=none", "generator.width=1", "init.attention=random")
    data = TokenData.open(data_folder)
    settings = config(data_folder, tmp_path, "train.steps=10", "init.token_table=random", *stages)
    objective = build(with_vocabulary(settings, data.vocabulary_size), data, None).objective
    assert objective.in_first_stage is True
