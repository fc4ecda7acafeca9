"""Batches of windows: the tokens of the shards in their order, from step to step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from electra.config import load_config
from electra.data.collate import Batch, collate
from electra.data.examples import ExampleSet
from electra.data.packing import PackingConfig
from electra.data.shards import Shard, Split, TokenData
from electra.data.streams import check_stream
from electra.errors import DataError
from electra.pretraining.build import build_batches, heldout_batches
from electra.pretraining.config import PretrainConfig

LENGTH = 24
CONFIG = PackingConfig(builder="stream", sequence_length=LENGTH)


@pytest.fixture(scope="module")
def data(data_folder: Path) -> TokenData:
    return TokenData.open(data_folder)


def written_down(shard: Shard, separator: int, *, fakes: bool = False) -> list[int]:
    """Return the stream of a shard: its documents, each followed by [SEP]."""
    stream, start = [], 0
    tokens = shard.unigram if fakes else shard.tokens
    assert tokens is not None
    for last in shard.document_ends.tolist():
        end = int(shard.sentence_ends[last - 1])
        stream += [*tokens[start:end].tolist(), separator]
        start = end
    return stream


def windows(data: TokenData, split: Split, *, fakes: bool = False) -> list[list[int]]:
    """Return the windows of all shards, each with the token after it."""
    result = []
    for shard in split.shards:
        stream = written_down(shard, data.special.separate, fakes=fakes)
        starts = range(0, len(stream) - LENGTH, LENGTH)
        result += [stream[start : start + LENGTH + 1] for start in starts]
    return result


def read(batch: Batch) -> list[list[int]]:
    assert batch.stream_state is not None
    return torch.cat([batch.input_ids_BL, batch.stream_state.next_ids_B[:, None]], 1).tolist()


def settings(data: TokenData, **train: int) -> PretrainConfig:
    config = load_config(PretrainConfig, "txl-tiny", ["packing.sequence_length=24", "evaluation.examples=40"])
    return replace(config, data=data.folder, train=replace(config.train, batch_size=6, **train))


def test_windows_are_the_text_of_the_shards(data: TokenData) -> None:
    examples = ExampleSet(data.train, CONFIG, seed=0)
    expected = windows(data, data.train)
    assert len(examples) == len(expected) > 50
    every = np.arange(len(examples))
    batch = collate(examples, every, special=data.special, seed=0, trim=True)
    assert read(batch) == expected
    assert not batch.segment_ids_BL.any() and batch.lengths_B.tolist() == [LENGTH] * len(expected)
    assert examples.lengths.tolist() == [LENGTH] * len(expected)
    separators = [window[:LENGTH].count(data.special.separate) for window in expected]
    assert examples.separator_counts.tolist() == separators and sum(separators) > 10


def test_the_copy_with_fakes_has_the_same_layout(data: TokenData) -> None:
    examples = ExampleSet(data.heldout, CONFIG, seed=0)
    every = np.arange(len(examples))
    text, fakes = (
        collate(examples, every, special=data.special, seed=0, trim=True, source=source)
        for source in ("tokens", "unigram")
    )
    assert read(text) == windows(data, data.heldout) and read(fakes) == windows(data, data.heldout, fakes=True)
    ends = text.input_ids_BL == data.special.separate
    assert torch.equal(ends, fakes.input_ids_BL == data.special.separate)
    assert 0.08 < float((text.input_ids_BL != fakes.input_ids_BL)[~ends].float().mean()) < 0.22


def test_rows_continue_from_step_to_step(data: TokenData) -> None:
    """Row b reads the b-th part; after the last window all rows start again."""
    expected = windows(data, data.train)
    steps = len(expected) // 6
    batches = build_batches(settings(data), data, torch.device("cpu"))
    for step in (0, 1, 2, steps - 1, steps, steps + 1):
        [batch] = batches.micro_batches(step)
        assert read(batch) == [expected[row * steps + step % steps] for row in range(6)]
        assert batch.stream_state is not None and batch.stream_state.first_row == 0
        assert batch.stream_state.new_document_B.tolist() == [step % steps == 0] * 6
    before, after = (read(batches.micro_batches(step)[0]) for step in (3, 4))
    assert [row[-1] for row in before] == [row[0] for row in after]
    assert batches.epochs(steps) == 1


@pytest.mark.parametrize("at_once", [2, 4])
def test_micro_batches_are_the_rows_of_the_batch(data: TokenData, at_once: int) -> None:
    whole = build_batches(settings(data), data, torch.device("cpu"))
    parted = build_batches(settings(data, micro_batch_size=at_once), data, torch.device("cpu"))
    for step in (0, 5):
        [batch] = whole.micro_batches(step)
        parts = parted.micro_batches(step)
        assert [row for part in parts for row in read(part)] == read(batch)
        firsts = [part.stream_state.first_row for part in parts if part.stream_state is not None]
        assert firsts == list(range(0, 6, at_once))
        assert all(
            part.stream_state is not None and bool(part.stream_state.new_document_B.all()) == (step == 0)
            for part in parts
        )


def test_heldout_rows_continue_from_batch_to_batch(data: TokenData) -> None:
    expected, both = windows(data, data.heldout), list(heldout_batches(settings(data), data, torch.device("cpu")))
    rows = len(both[0][0].lengths_B)
    assert rows * len(both) == min(40, len(expected)) // rows * rows
    for number, (text, fakes) in enumerate(both):
        assert read(text) == [expected[row * len(both) + number] for row in range(rows)]
        assert text.stream_state is not None and fakes.stream_state is not None
        assert (
            text.stream_state.new_document_B.tolist()
            == fakes.stream_state.new_document_B.tolist()
            == [number == 0] * rows
        )


def test_moving_a_batch_keeps_its_stream_state(data: TokenData) -> None:
    examples = ExampleSet(data.train, CONFIG, seed=0)
    batch = collate(examples, np.arange(3), special=data.special, seed=0, trim=True, reset=False, first_row=4)
    moved = batch.to(torch.device("cpu"))
    assert read(moved) == read(batch) and moved.stream_state is not None
    assert moved.stream_state.first_row == 4 and not moved.stream_state.new_document_B.any()


def test_copies_to_a_device_are_asynchronous(data: TokenData, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: pinned.append(x) or x)
    examples = ExampleSet(data.train, CONFIG, seed=0)
    batch = collate(examples, np.arange(3), special=data.special, seed=0, trim=True)
    batch = replace(batch, sentences_B=torch.zeros(3, dtype=torch.int64))
    moved = batch.to(torch.device("meta"))
    assert moved.stream_state is not None and moved.sentences_B is not None and moved.seeds_B is not None
    there = (
        moved.input_ids_BL, moved.segment_ids_BL, moved.lengths_B, moved.seeds_B, moved.sentences_B,
        moved.stream_state.next_ids_B, moved.stream_state.new_document_B,
    )  # fmt: skip
    assert {x.device.type for x in there} == {"meta"} and len(pinned) == len(there)


def test_text_shorter_than_a_window_is_refused(data: TokenData) -> None:
    tokens, documents = data.heldout.tokens, data.heldout.documents
    check_stream(data, length=tokens + documents - 1, batch_size=1)
    with pytest.raises(DataError, match=f"the held-out part, {tokens:,} tokens, is shorter than a window of"):
        check_stream(data, length=tokens + documents, batch_size=1)
