"""Rows of whole sentences, compared with a slow version of the same rules, and their properties."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest

from electra.data.collate import collate
from electra.data.examples import ExampleSet
from electra.data.packing import PackingConfig, pack
from electra.data.shards import Shard, Split
from electra.data.spans import PackedShard
from electra.data.tokenizer import SpecialTokens

Documents = list[list[int]]  # the sentence lengths of each document
SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
CASES: dict[str, Documents] = {
    "fits exactly": [[4, 4], [8]],
    "long sentences": [[30, 2], [9, 1]],
    "empty sentences": [[0, 3, 0], [0], [5, 0, 5]],
    "one": [[3]],
    "odd": [[3, 4, 5], [2], [6, 6]],
}


def documents(seed: int) -> Documents:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 14, draw.integers(1, 9)).tolist() for _ in range(40)]


def packed(given: Documents, builder: Any, length: int = 10) -> PackedShard:
    sentences = np.cumsum([one for document in given for one in document], dtype=np.int64)
    ends = np.cumsum([len(document) for document in given], dtype=np.int64)
    config = PackingConfig(builder=builder, sequence_length=length, minimum_length=1)
    return pack(sentences, ends, config, rng=np.random.default_rng(0))


def rows(shard: PackedShard) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    first, made = 0, []
    for one, both in shard.segment_ends.tolist():
        spans = [tuple(span) for span in shard.spans.tolist()]
        made.append((spans[first:one], spans[one:both]))
        first = both
    return made


def slow_rows(given: Documents, room: int, *, across: bool) -> list[list[tuple[int, int]]]:
    """Sentence by sentence, with a separator wherever a row continues into another document."""
    made: list[list[tuple[int, int]]] = [[]]
    used, position = 0, 0
    for document in given:
        fresh = True
        for length in document:
            while length:
                between = 1 if fresh and made[-1] else 0
                if used + between + length > room and made[-1]:
                    made.append([])
                    used, between = 0, 0
                taken = min(length, room)
                if made[-1] and not between:
                    start, before = made[-1].pop()
                    made[-1].append((start, before + taken))
                else:
                    made[-1].append((position, taken))
                used, position, length, fresh = used + between + taken, position + taken, length - taken, False
        if not across and made[-1]:
            made.append([])
            used = 0
    return [row for row in made if row]


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("given", [*CASES.values(), *(documents(seed) for seed in range(20))])
def test_rows_equal_the_slow_version(given: Documents, across: bool) -> None:
    actual = rows(packed(given, "full-sentences" if across else "doc-sentences"))
    assert [first for first, _ in actual] == slow_rows(given, 8, across=across)
    assert not any(second for _, second in actual)


@pytest.mark.parametrize("given", [*CASES.values(), *(documents(seed) for seed in range(5))])
def test_pairs_are_neighbors_in_one_document(given: Documents) -> None:
    expected, position = [], 0
    for document in given:
        starts = []
        for length in document:
            if length:
                starts.append((position, length))
            position += length
        expected += [starts[i : i + 2] for i in range(0, len(starts), 2)]
    actual = rows(packed(given, "sentence-pairs"))
    assert len(actual) == len(expected)
    for (first, second), sentences in zip(actual, expected, strict=True):
        segments = [segment for segment in (first, second) if segment]
        assert [segment[0][0] for segment in segments] == [start for start, _ in sentences]
        lengths = [segment[0][1] for segment in segments]
        room = 7 if len(sentences) == 2 else 8
        assert sum(lengths) == min(room, sum(length for _, length in sentences)), "no room is left unused"
        if len(sentences) == 2 and sum(length for _, length in sentences) > room:
            assert all(
                kept >= min(length, room // 2) for kept, (_, length) in zip(lengths, sentences, strict=True)
            )


@pytest.mark.parametrize("builder", ["full-sentences", "doc-sentences", "sentence-pairs"])
def test_a_batch_of_them(builder: Literal["full-sentences", "doc-sentences", "sentence-pairs"]) -> None:
    given = documents(3)
    sentences = np.cumsum([one for document in given for one in document], dtype=np.int64)
    ends = np.cumsum([len(document) for document in given], dtype=np.int64)
    tokens = np.arange(10, 10 + sentences[-1]).astype(np.uint16)
    split = Split([Shard("train-00000", tokens, sentences, ends, None)])
    config = PackingConfig(builder=builder, sequence_length=10, minimum_length=1)
    examples = ExampleSet(split, config, seed=0)
    batch = collate(examples, np.arange(len(examples)), special=SPECIAL, seed=0, trim=False)
    inside = np.arange(10) < examples.lengths[:, None]
    ids_BL = batch.input_ids_BL.numpy()
    assert np.array_equal(ids_BL != SPECIAL.pad, inside), "the lengths are those of the rows"
    assert (ids_BL[:, 0] == SPECIAL.classify).all()
    assert (ids_BL[np.arange(len(ids_BL)), examples.lengths - 1] == SPECIAL.separate).all()
    past = set((sentences[ends - 1] + 10).tolist())  # the first token of a document
    for row in ids_BL.tolist():
        for before, after in pairwise(row):
            if builder == "full-sentences" and before == SPECIAL.separate and after > 4:
                assert after in past, "there is a separator before a document"
            assert not (before > 4 and after in past), "and nowhere does one begin without"
    if builder != "sentence-pairs":
        assert np.array_equal(ids_BL[ids_BL > 4], tokens), "every token once and in its order"
