"""An index in files equals the one in memory; damaged files are not used."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from electra.data.example_index import read_index, write_index
from electra.data.examples import ExampleSet
from electra.data.packing import PackingConfig
from electra.data.shards import Split, TokenData

CONFIG = PackingConfig(sequence_length=32, short_share=0.2)


@pytest.fixture
def split(data_folder: Path) -> Split:
    """The same shard twice, with an empty shard between."""
    shard = TokenData.open(data_folder).train.shards[0]
    nothing = {name: getattr(shard, name)[:0] for name in ("tokens", "sentence_ends", "document_ends")}
    empty = replace(shard, **nothing)
    return Split([shard, empty, shard])


def test_the_index_in_files_equals_the_one_in_memory(split: Split, tmp_path: Path) -> None:
    write_index(tmp_path, split, CONFIG, seed=3, data="x")
    index = read_index(tmp_path, CONFIG, seed=3, data="x")
    assert index is not None and index.spans.dtype == np.uint32
    here, there = ExampleSet(split, CONFIG, seed=3), ExampleSet(split, CONFIG, seed=3, index=index)
    every = np.arange(len(here))
    assert len(there) == len(here) > 50 and np.array_equal(here.lengths, there.lengths)
    assert here.segment_spans(every) == there.segment_spans(every)
    assert np.array_equal(here.find_shards(every), there.find_shards(every)) and set(here.find_shards(every)) == {
        0,
        2,
    }


def test_a_split_without_text(tmp_path: Path) -> None:
    write_index(tmp_path, Split([]), CONFIG, seed=3, data="x")
    index = read_index(tmp_path, CONFIG, seed=3, data="x")
    assert index is not None and len(ExampleSet(Split([]), CONFIG, seed=3, index=index)) == 0


def test_other_and_damaged_indexes_are_not_used(split: Split, tmp_path: Path) -> None:
    write_index(tmp_path, split, CONFIG, seed=3, data="x")
    assert read_index(tmp_path, CONFIG, seed=4, data="x") is None
    assert read_index(tmp_path, CONFIG, seed=3, data="y") is None
    assert read_index(tmp_path, replace(CONFIG, sequence_length=64), seed=3, data="x") is None
    with (tmp_path / "pieces").open("r+b") as file:
        file.truncate(100)
    assert read_index(tmp_path, CONFIG, seed=3, data="x") is None
    for torn in ("{", "[]", "null"):
        (tmp_path / "index.json").write_text(torn)
        assert read_index(tmp_path, CONFIG, seed=3, data="x") is None
