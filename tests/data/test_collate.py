"""The index of a split and its batches, compared with a slow version."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from electra.data.collate import UNPAIRED, Batch, collate
from electra.data.examples import ExampleSet, TokenSource
from electra.data.packing import PackingConfig, pack
from electra.data.sampling import Sampler, shard_seed
from electra.data.shards import Shard, Split
from electra.data.tokenizer import SpecialTokens
from electra.errors import DataError

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
CONFIG = PackingConfig(sequence_length=32, short_share=0.2)


def make_shard(
    number: int, *, folder: Path, dtype: str = "<u2", unigram: bool = True, documents: int = 30
) -> Shard:
    rng = np.random.default_rng(number)
    sentence_counts = rng.geometric(1 / 9, size=documents)
    sentence_ends = np.cumsum(rng.geometric(1 / 7, size=sentence_counts.sum()))
    ids = rng.integers(5, np.iinfo(dtype).max, size=sentence_ends[-1], endpoint=True).astype(dtype)
    path = folder / f"{number}.tokens"
    ids.tofile(path)
    fakes = np.where(rng.random(ids.size) < 0.15, rng.integers(5, 100, size=ids.size), ids).astype(dtype)
    return Shard(
        name=f"shard-{number}",
        tokens=np.memmap(path, dtype, mode="r"),
        sentence_ends=sentence_ends,
        document_ends=np.cumsum(sentence_counts),
        unigram=fakes if unigram else None,
    )


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return Split([make_shard(number, folder=tmp_path) for number in range(3)])


def slow_rows(
    split: Split, config: PackingConfig, seed: int, source: str = "tokens"
) -> list[tuple[list[int], list[int]]]:
    """All rows of a split as (ids, segment ids) without padding."""
    rows = []
    for number, shard in enumerate(split.shards):
        rng = np.random.Generator(np.random.PCG64(shard_seed(seed, number)))
        packed = pack(shard.sentence_ends, shard.document_ends, config, rng=rng)
        first = 0
        for middle, past in packed.segment_ends.tolist():
            ids, segments = [SPECIAL.classify], [0]
            for segment, numbers in enumerate([range(first, middle), range(middle, past)]):
                if segment == 1 and not numbers:
                    continue
                for start, length in packed.spans[numbers].tolist():
                    for position in range(start, start + length):
                        ids.append(int(getattr(shard, source)[position]))
                        segments.append(segment)
                ids.append(SPECIAL.separate)
                segments.append(segment)
            first = past
            rows.append((ids, segments))
    return rows


@pytest.mark.parametrize("builder", ["contiguous", "original"])
@pytest.mark.parametrize("source", ["tokens", "unigram"])
@pytest.mark.parametrize("trim", [True, False])
def test_equals_the_slow_version(
    split: Split, builder: Literal["contiguous", "original"], source: TokenSource, trim: bool
) -> None:
    config = replace(CONFIG, builder=builder)
    examples = ExampleSet(split, config, seed=7)
    expected = slow_rows(split, config, 7, source)
    assert len(examples) == len(expected) > 100
    order = np.random.default_rng(0).permutation(len(examples))
    for row_indices in np.array_split(order, 12):
        batch = collate(examples, row_indices, special=SPECIAL, seed=1, trim=trim, source=source)
        columns = max(len(expected[i][0]) for i in row_indices) if trim else 32
        for tensor, part, padding in ((batch.input_ids_BL, 0, SPECIAL.pad), (batch.segment_ids_BL, 1, 0)):
            plain = [expected[i][part] + [padding] * (columns - len(expected[i][part])) for i in row_indices]
            assert tensor.tolist() == plain
        assert batch.lengths_B.tolist() == [len(expected[i][0]) for i in row_indices]
        assert examples.lengths[row_indices].tolist() == batch.lengths_B.tolist()


def test_tensors_are_int64_and_carry_the_seed(split: Split) -> None:
    batch = collate(ExampleSet(split, CONFIG, seed=0), np.arange(4), special=SPECIAL, seed=2**62, trim=True)
    tensors = (batch.input_ids_BL, batch.segment_ids_BL, batch.lengths_B)
    assert {tensor.dtype for tensor in tensors} == {torch.int64}
    assert batch.seed == 2**62
    assert batch.to(torch.device("cpu")).input_ids_BL is batch.input_ids_BL


def test_large_ids_survive(tmp_path: Path) -> None:
    split = Split([make_shard(0, folder=tmp_path, dtype="<u4")])
    examples = ExampleSet(split, CONFIG, seed=0)
    batch = collate(examples, np.arange(len(examples)), special=SPECIAL, seed=0, trim=False)
    assert int(batch.input_ids_BL.max()) == int(split.shards[0].tokens.max()) > 2**31


def test_both_sources_have_one_layout(split: Split) -> None:
    examples = ExampleSet(split, CONFIG, seed=0)
    row_indices = np.arange(len(examples))
    text, fakes = (
        collate(examples, row_indices, special=SPECIAL, seed=0, trim=True, source=source)
        for source in ("tokens", "unigram")
    )
    assert torch.equal(text.segment_ids_BL, fakes.segment_ids_BL) and torch.equal(text.lengths_B, fakes.lengths_B)
    special = (text.input_ids_BL < 5) & (text.input_ids_BL != 1)
    assert torch.equal(text.input_ids_BL[special], fakes.input_ids_BL[special])
    replaced = (text.input_ids_BL != fakes.input_ids_BL)[~special].float().mean()
    assert 0.12 < float(replaced) < 0.18


def test_a_split_without_fakes(tmp_path: Path) -> None:
    shards = [make_shard(number, folder=tmp_path, unigram=number == 0) for number in range(2)]
    examples = ExampleSet(Split(shards), CONFIG, seed=0)
    with pytest.raises(DataError, match="held-out part only"):
        collate(examples, np.arange(2), special=SPECIAL, seed=0, trim=True, source="unigram")


def test_the_index_is_the_same_for_the_same_seed(split: Split) -> None:
    every = np.arange(len(ExampleSet(split, CONFIG, seed=0)))

    def ids(seed: int) -> Batch:
        examples = ExampleSet(split, CONFIG, seed=seed)
        return collate(examples, every[: len(examples)], special=SPECIAL, seed=0, trim=False)

    assert torch.equal(ids(0).input_ids_BL, ids(0).input_ids_BL)
    assert not torch.equal(ids(0).segment_ids_BL[:50], ids(1).segment_ids_BL[:50])


def test_shards_are_packed_separately(tmp_path: Path) -> None:
    """The rows of a shard do not depend on the shards after it, and no two shards have the same random numbers."""
    first, second = (make_shard(number, folder=tmp_path) for number in range(2))
    single, both = ExampleSet(Split([first]), CONFIG, seed=0), ExampleSet(Split([first, second]), CONFIG, seed=0)
    rows = np.arange(len(single))
    assert single.segment_spans(rows) == both.segment_spans(rows)
    twice = ExampleSet(Split([first, first]), CONFIG, seed=0)
    shards, segments = twice.find_shards(np.arange(len(twice))), twice.segment_spans(np.arange(len(twice)))
    assert segments[: (shards == 0).sum()] != segments[(shards == 0).sum() :]


def test_an_empty_split_and_an_empty_shard(tmp_path: Path, split: Split) -> None:
    assert len(ExampleSet(Split([]), CONFIG, seed=0)) == 0
    none = np.zeros(0, dtype=np.int64)
    empty = Shard("empty", np.zeros(0, dtype="<u2"), none, none, np.zeros(0, dtype="<u2"))
    examples = ExampleSet(Split([split.shards[0], empty, split.shards[2]]), CONFIG, seed=0)
    shards = examples.find_shards(np.arange(len(examples)))
    assert set(shards.tolist()) == {0, 2}


def test_a_shard_with_contradicting_boundaries(split: Split) -> None:
    shard = split.shards[1]
    cut = Shard("train-00001", shard.tokens[:-3], shard.sentence_ends, shard.document_ends, None)
    with pytest.raises(DataError, match="train-00001: its sentences end at token"):
        ExampleSet(Split([cut]), CONFIG, seed=0)


def both(ids: list[int]) -> tuple[list[int], list[int]]:
    """The two segments of a row, the second perhaps empty."""
    middle = ids.index(SPECIAL.separate)
    rest = [token for token in ids[middle + 1 :] if token != SPECIAL.pad]
    return ids[1:middle], rest[:-1]


@pytest.mark.parametrize("kind", ["next", "order"])
def test_half_of_the_pairs_are_changed(split: Split, kind: Literal["next", "order"]) -> None:
    examples = ExampleSet(split, CONFIG, seed=0)
    every = np.arange(len(examples))
    seeds = Sampler(seed=3, batch_size=len(every), examples=len(every)).seeds(0)
    plain = collate(examples, every, special=SPECIAL, seed=0, trim=False)
    actual = collate(examples, every, special=SPECIAL, seed=0, trim=False, seeds=seeds, sentences=kind)
    assert actual.sentences_B is not None
    segments = [both(ids) for ids in plain.input_ids_BL.tolist()]
    labels = actual.sentences_B.tolist()
    assert [label == UNPAIRED for label in labels] == [not second for _, second in segments]
    known = [label for label in labels if label != UNPAIRED]
    assert 0.4 < sum(known) / len(known) < 0.6
    elsewhere = {tuple(segment) for pair in segments for segment in pair}
    for ids, label, (first, second), length in zip(
        actual.input_ids_BL.tolist(), labels, segments, actual.lengths_B.tolist(), strict=True
    ):
        one, other = both(ids)
        assert sum(token != SPECIAL.pad for token in ids) == length <= CONFIG.sequence_length
        if label != 1:
            assert (one, other) == (first, second)
        elif kind == "order":
            assert (one, other) == (second, first)
        else:
            assert one == first and other != second and other
            assert any(tuple(other) == segment[: len(other)] for segment in elsewhere)
    again = collate(examples, every[5:9], special=SPECIAL, seed=9, trim=False, seeds=seeds[5:9], sentences=kind)
    assert torch.equal(again.input_ids_BL, actual.input_ids_BL[5:9]), "whatever batch a row is in"


def test_a_random_second_segment_is_the_last_segment_of_a_row(tmp_path: Path) -> None:
    """All rows have two segments of ten tokens, and every token occurs once."""
    (tokens := np.arange(5, 4005, dtype="<u2")).tofile(tmp_path / "tokens")
    ends = np.arange(10, 4001, 10)
    shard = Shard("a", np.memmap(tmp_path / "tokens", "<u2", mode="r"), ends, np.arange(2, 401, 2), None)
    examples = ExampleSet(Split([shard]), replace(CONFIG, one_segment_share=0.0, short_share=0.0), seed=0)
    every = np.arange(len(examples))
    assert len(every) == 200 and set(examples.segment_counts) == {2}
    seeds = Sampler(seed=3, batch_size=200, examples=200).seeds(0)
    batch = collate(examples, every, special=SPECIAL, seed=0, trim=False, seeds=seeds, sentences="next")
    assert batch.sentences_B is not None
    changed = [both(ids)[1] for ids in batch.input_ids_BL[batch.sentences_B == 1].tolist()]
    seconds = {tuple(segment) for segment in tokens.reshape(200, 2, 10)[:, 1].tolist()}
    assert len(changed) > 60 and {tuple(segment) for segment in changed} <= seconds
