"""Rows of several documents."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from electra.data.collate import Batch, collate
from electra.data.examples import ExampleSet
from electra.data.packing import PackingConfig, pack
from electra.data.shards import Shard, Split
from electra.data.spans import PackedShard
from electra.data.tokenizer import SpecialTokens

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
LENGTH = 24
CONFIG = PackingConfig(builder="packed", sequence_length=LENGTH, minimum_length=4)


def boundaries(lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """One sentence per document."""
    return np.cumsum(lengths, dtype=np.int64), np.arange(1, len(lengths) + 1)


def packed(lengths: list[int], config: PackingConfig = CONFIG) -> PackedShard:
    return pack(*boundaries(lengths), config, rng=np.random.default_rng(0))


def spans_by_row(shard: PackedShard) -> list[list[tuple[int, int]]]:
    firsts = [0, *shard.segment_ends[:-1, 1].tolist()]
    ends = shard.segment_ends[:, 0].tolist()
    return [[tuple(span) for span in shard.spans[a:b].tolist()] for a, b in zip(firsts, ends, strict=True)]


def many_lengths(seed: int = 0, count: int = 300) -> list[int]:
    return np.random.default_rng(seed).geometric(1 / 15, size=count).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_every_token_is_used_once_and_no_span_crosses_documents(seed: int) -> None:
    lengths = [*many_lengths(seed), 0, 200, 1]
    shard = packed(lengths)
    used = np.concatenate([np.arange(start, start + count) for start, count in shard.spans.tolist()])
    assert np.array_equal(np.sort(used), np.arange(sum(lengths)))
    document_of_token = np.repeat(np.arange(len(lengths)), lengths)
    for start, count in shard.spans.tolist():
        assert len(set(document_of_token[start : start + count])) == 1


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_full_with_the_special_tokens_of_each_document(seed: int) -> None:
    rows = spans_by_row(packed(many_lengths(seed)))
    sizes = [sum(count + 2 for _, count in row) for row in rows]
    assert max(sizes) <= LENGTH
    assert sum(sizes) > 0.95 * LENGTH * len(rows)


def test_only_documents_longer_than_a_row_are_cut() -> None:
    lengths = [22, 5, 23, 60]
    rest = dict.fromkeys((22, 5), 1) | {19: 1, 4: 1, 16: 1}
    counts = sorted(count for row in spans_by_row(packed(lengths)) for _, count in row)
    # 23 leaves at least minimum_length to the rest: 19 + 4; 60 = 22 + 22 + 16.
    assert counts == sorted([*rest, 22, 22])


def test_long_documents_are_placed_first() -> None:
    rows = spans_by_row(packed([5, 5, 15, 15]))  # with [CLS] and [SEP] 7, 7, 17 and 17
    assert [[count for _, count in row] for row in rows] == [[5, 15], [5, 15]]


def test_a_document_of_one_token_fills_a_row() -> None:
    (row,) = spans_by_row(packed([11, 1], replace(CONFIG, sequence_length=16)))  # 13 + 3 with [CLS] and [SEP]
    assert row == [(0, 11), (11, 1)]


def test_the_rows_of_a_document_are_in_its_order() -> None:
    rows = spans_by_row(packed([60, 60]))
    assert [row[0][0] for row in rows] == sorted(row[0][0] for row in rows)


def example_set(lengths: list[int]) -> ExampleSet:
    tokens = np.random.default_rng(1).integers(5, 100, size=sum(lengths)).astype("<u2")
    ends, documents = boundaries(lengths)
    fakes = np.where(np.arange(len(tokens)) % 7 == 0, 99, tokens).astype("<u2")
    return ExampleSet(Split([Shard("0", tokens, ends, documents, fakes)]), CONFIG, seed=0)


def gather(examples: ExampleSet, **settings: object) -> Batch:
    rows = np.arange(len(examples))
    return collate(examples, rows, special=SPECIAL, seed=0, trim=True, **settings)  # type: ignore[arg-type]


def test_a_batch_has_the_documents_with_their_special_tokens() -> None:
    lengths = many_lengths(count=40)
    examples = example_set(lengths)
    batch = gather(examples)
    assert batch.documents_D2 is not None
    ids = batch.input_ids_BL.flatten()
    covered = torch.zeros_like(ids, dtype=torch.bool)
    text = []
    for start, length in batch.documents_D2.tolist():
        assert ids[start] == SPECIAL.classify and ids[start + length - 1] == SPECIAL.separate
        assert not covered[start : start + length].any()
        covered[start : start + length] = True
        text.extend(ids[start + 1 : start + length - 1].tolist())
    assert torch.equal(covered.view_as(batch.input_ids_BL), torch.arange(LENGTH) < batch.lengths_B[:, None])
    assert (ids[~covered] == SPECIAL.pad).all()
    assert sorted(text) == sorted(examples.token_arrays("tokens")[0].tolist())
    assert not batch.segment_ids_BL.any()


def test_unigram_fakes_have_the_same_layout() -> None:
    examples = example_set(many_lengths(count=40))
    batch, fakes = gather(examples), gather(examples, source="unigram")
    assert batch.documents_D2 is not None and fakes.documents_D2 is not None
    assert torch.equal(batch.documents_D2, fakes.documents_D2)
    differs_BL = batch.input_ids_BL != fakes.input_ids_BL
    assert differs_BL.any() and (batch.input_ids_BL[differs_BL] >= 5).all()


def test_document_lengths_describe_all_documents() -> None:
    examples = example_set(many_lengths())
    lengths = examples.document_lengths()
    assert sum(lengths.values()) == examples.span_counts.sum()
    tokens = sum(length * count for length, count in lengths.items())
    assert abs(tokens / int(examples.lengths.sum()) - 1) < 0.02
    assert len(lengths) <= 64
