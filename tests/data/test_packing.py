"""Packing, compared with a slow version of the same rules, and its properties."""

import numpy as np
import pytest

from electra.config import problems_of
from electra.data.packing import PackingConfig, pack_two_segments
from electra.data.packing import pack as pack_either
from electra.errors import DataError

Documents = list[list[int]]  # the sentence lengths of each document


def offsets(documents: Documents) -> tuple[np.ndarray, np.ndarray]:
    lengths = [length for document in documents for length in document]
    return (
        np.cumsum(np.array(lengths, dtype=np.int64), dtype=np.int64),
        np.cumsum(np.array([len(document) for document in documents], dtype=np.int64), dtype=np.int64),
    )


def pack(documents: Documents, config: PackingConfig, seed: int = 0) -> np.ndarray:
    return pack_two_segments(*offsets(documents), config, rng=np.random.default_rng(seed))


def slow_pack(documents: Documents, config: PackingConfig, seed: int = 0) -> list[tuple[int, int, int, int]]:
    """The rules, token by token, with random numbers one at a time in the documented order."""
    rng = np.random.default_rng(seed)
    rows = []
    start = 0
    for document in documents:
        ends = {start + sum(document[: i + 1]) for i in range(len(document))}
        document_end = start + sum(document)
        while start < document_end:
            is_one = rng.random() < config.one_segment_share
            straddler_joins = rng.random() < 0.5
            draw = rng.random()
            target = config.sequence_length
            if draw < config.short_share:
                choices = list(range(config.minimum_length, config.sequence_length + 1))
                target = choices[int(draw / config.short_share * len(choices))]
            room = config.sequence_length - 2 if is_one else config.sequence_length - 3

            row_end = start
            while row_end < document_end and row_end - start < room:
                row_end += 1
                if row_end in ends and row_end - start >= target:
                    break
            if 0 < document_end - row_end < config.minimum_length:
                if document_end - start <= room:
                    row_end = document_end
                else:
                    row_end = document_end - config.minimum_length

            cut = row_end
            aim = (target - 3) // 2
            if not is_one and row_end - start > aim:
                enough = range(start + config.minimum_length, row_end - config.minimum_length + 1)
                fitting = [end for end in enough if end in ends and end <= start + aim]
                longer = [end for end in enough if end in ends and end > start + aim]
                if fitting and longer:
                    exact = fitting[-1] == start + aim
                    cut = longer[0] if straddler_joins and not exact else fitting[-1]
                elif fitting or longer:
                    cut = fitting[-1] if fitting else longer[0]
                elif row_end - start == room:
                    cut = start + room // 2
            rows.append((start, cut - start, cut, row_end - cut))
            start = row_end
    return rows


def random_documents(rng: np.random.Generator, *, documents: int, sentence: float, sentences: float) -> Documents:
    return [rng.geometric(1 / sentence, size=rng.geometric(1 / sentences)).tolist() for _ in range(documents)]


@pytest.mark.parametrize("sequence_length", [13, 16, 32, 128])
@pytest.mark.parametrize("sentence", [1.5, 8, 25, 150])
@pytest.mark.parametrize("shares", [(0.1, 0.05), (0.0, 0.0), (0.5, 0.6), (0.0, 1.0), (1.0, 0.3)])
def test_equals_the_slow_version(sequence_length: int, sentence: float, shares: tuple[float, float]) -> None:
    rng = np.random.default_rng([sequence_length, int(sentence), int(10 * shares[0])])
    documents = random_documents(rng, documents=40, sentence=sentence, sentences=12)
    config = PackingConfig(sequence_length=sequence_length, one_segment_share=shares[0], short_share=shares[1])
    assert pack(documents, config, seed=3).tolist() == [list(row) for row in slow_pack(documents, config, seed=3)]


def test_many_rows_equal_the_slow_version() -> None:
    documents = random_documents(np.random.default_rng(0), documents=300, sentence=6, sentences=70)
    config = PackingConfig(sequence_length=16)
    rows = pack(documents, config)
    assert len(rows) > 8192
    assert rows.tolist() == [list(row) for row in slow_pack(documents, config)]


def test_every_token_occurs_once_in_order_and_in_its_document() -> None:
    documents = random_documents(np.random.default_rng(1), documents=300, sentence=20, sentences=15)
    config = PackingConfig(sequence_length=64)
    start_1, length_1, start_2, length_2 = pack(documents, config).T
    row_ends = start_2 + length_2
    assert np.array_equal(start_2, start_1 + length_1)  # the second segment follows the first
    assert start_1[0] == 0 and np.array_equal(start_1[1:], row_ends[:-1])  # and each row follows the row before
    assert row_ends[-1] == sum(map(sum, documents))
    document_ends = np.cumsum([sum(document) for document in documents])
    assert np.array_equal(
        np.searchsorted(document_ends, start_1, side="right"), np.searchsorted(document_ends, row_ends)
    )


def test_rows_fit_and_are_full_unless_short_or_last() -> None:
    documents = random_documents(np.random.default_rng(2), documents=50, sentence=20, sentences=100)
    rows = pack(documents, PackingConfig(short_share=0.0))
    specials = np.where(rows[:, 3] > 0, 3, 2)
    lengths = rows[:, 1] + rows[:, 3] + specials
    assert lengths.max() == 128
    ends = set(np.cumsum([sum(document) for document in documents]).tolist())
    last = np.array([end in ends for end in (rows[:, 2] + rows[:, 3]).tolist()])
    before_last = np.append(last[1:], False)  # may leave its last tokens to the last row of the document
    assert (lengths[~last & ~before_last] >= 127).all()  # 127: drawn as two segments, one sentence at its end
    assert last.sum() == len(documents)


def test_the_shares() -> None:
    documents = [np.random.default_rng(3).geometric(1 / 20, size=100_000).tolist()]
    rows = pack(documents, PackingConfig())
    assert len(rows) > 10_000
    one = (rows[:, 3] == 0).mean()
    short = ((rows[:, 1] + rows[:, 3]) < 125).mean()
    # Short targets close to the full length give full rows, and very short ones a single segment.
    assert 0.095 < one < 0.115
    assert 0.030 < short < 0.052


def test_the_first_segment_takes_about_half_and_ends_with_a_sentence() -> None:
    documents = [np.random.default_rng(4).integers(6, 20, size=40_000).tolist()]
    ends = set(offsets(documents)[0].tolist())
    rows = pack(documents, PackingConfig(short_share=0.0, one_segment_share=0.0))[:-2]
    first = rows[:, 1]
    assert all(end in ends for end in rows[:, 2].tolist())
    assert first.min() > 62 - 20 and first.max() < 62 + 20
    over = (first > 62).mean()
    assert 0.45 < over < 0.5  # a fair coin, unless a sentence ends exactly there


def test_text_without_sentence_ends_is_split_into_halves() -> None:
    rows = pack([[1050]], PackingConfig(short_share=0.0, one_segment_share=0.0))
    assert rows[:-1, 1].tolist() == [62] * 8 and rows[:-1, 3].tolist() == [63] * 8
    rows = pack([[1050]], PackingConfig(short_share=0.0, one_segment_share=1.0))
    assert rows[:-1, 1].tolist() == [126] * 8 and not rows[:, 3].any()


@pytest.mark.parametrize("tail", range(1, 12))
def test_a_document_does_not_end_with_a_very_short_row(tail: int) -> None:
    config = PackingConfig(short_share=0.0, one_segment_share=0.0)
    rows = pack([[30, 30, 30, 35, tail]], config)
    assert (rows[:, 1] >= 5).all()
    assert rows[:, [1, 3]].sum() == 125 + tail
    assert rows[1, [1, 3]].tolist() == [max(5, tail), 0]


@pytest.mark.parametrize("length", [1, 2, 4, 5, 60])
def test_a_short_document_is_one_segment(length: int) -> None:
    assert pack([[length]], PackingConfig(one_segment_share=0.0)).tolist() == [[0, length, length, 0]]


def test_short_targets_end_with_a_sentence() -> None:
    documents = [np.random.default_rng(5).integers(3, 9, size=20_000).tolist()]
    ends = set(offsets(documents)[0].tolist())
    rows = pack(documents, PackingConfig(short_share=1.0))
    lengths = rows[:, 1] + rows[:, 3]
    row_ends = rows[:, 2] + rows[:, 3]
    short = lengths < 120
    assert short.mean() > 0.8
    # Except the row that leaves enough tokens for the last row of the document.
    assert sum(end not in ends for end in row_ends[short].tolist()) <= 1
    counts, _ = np.histogram(lengths, bins=[10, 30, 50, 70, 90, 110])
    assert counts.max() < 1.2 * counts.min()  # uniform


def test_only_the_seed_decides() -> None:
    documents = random_documents(np.random.default_rng(6), documents=20, sentence=20, sentences=50)
    one, again, other = (pack(documents, PackingConfig(), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert one.shape != other.shape or not np.array_equal(one, other)


def test_empty_documents_and_no_documents() -> None:
    assert pack([], PackingConfig()).shape == (0, 4)
    rows = pack([[], [7], [], [0, 6], []], PackingConfig())
    assert rows.tolist() == [[0, 7, 7, 0], [7, 6, 13, 0]]


def test_boundaries_that_contradict_each_other() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="sentence ends of a shard are not ascending"):
        pack_two_segments(np.array([5, 3]), np.array([2]), PackingConfig(), rng=rng)
    with pytest.raises(DataError, match="document ends of a shard are not ascending"):
        pack_two_segments(np.array([3, 5]), np.array([2, 1]), PackingConfig(), rng=rng)
    for document_ends in ([1], [3], []):
        with pytest.raises(DataError, match="but it has 2 sentences"):
            pack_two_segments(np.array([3, 5]), np.array(document_ends, dtype=np.int64), PackingConfig(), rng=rng)


def test_the_config_names_its_problems() -> None:
    def named(**settings: float) -> list[str]:
        return [problem.split(":")[0] for problem in problems_of(PackingConfig(**settings))]  # type: ignore[arg-type]

    assert named() == named(sequence_length=13) == []
    assert named(sequence_length=12) == ["sequence_length"]
    bad = {"one_segment_share": 1.5, "short_share": -0.1, "minimum_length": 0}
    assert named(**bad) == list(bad)


def slow_original(documents: Documents, config: PackingConfig, seed: int) -> list[tuple[list[int], list[int]]]:
    """The rules of the original; sentences and segments are lists of token numbers."""
    rng = np.random.default_rng(seed)
    longest, target = config.sequence_length, config.sequence_length
    rows = []
    number = 0
    for document in documents:
        gathered: list[list[int]] = []
        for index, length in enumerate(document):
            gathered.append(list(range(number, number + length)))
            number += length
            tokens = sum(map(len, gathered))
            if tokens == 0 or not (tokens >= target or index + 1 == len(document)):
                continue
            aim = 10**9 if rng.random() < config.one_segment_share else (target - 3) // 2
            first: list[int] = []
            second: list[int] = []
            for sentence in gathered:
                joins = not first or len(first) + len(sentence) < aim
                if not joins and not second and len(first) < aim:
                    joins = rng.random() < 0.5
                first, second = (first + sentence, second) if joins else (first, second + sentence)
            first = first[: longest - 2]
            second = second[: longest - len(first) - 3] if longest > len(first) + 3 else []
            rows.append((first, second))
            gathered = []
            draw = rng.random()
            choices = range(config.minimum_length, longest + 1)
            target = (
                choices[int(draw / config.short_share * len(choices))] if draw < config.short_share else longest
            )
    return rows


def original(documents: Documents, config: PackingConfig, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    packed = pack_either(*offsets(documents), config, rng=np.random.default_rng(seed))
    rows, first = [], 0
    for middle, past in packed.segment_ends.tolist():
        segments = (packed.spans[first:middle].tolist(), packed.spans[middle:past].tolist())
        first = past
        one, two = ([n for start, length in spans for n in range(start, start + length)] for spans in segments)
        rows.append((one, two))
    return rows


@pytest.mark.parametrize("sequence_length", [13, 32, 128])
@pytest.mark.parametrize("sentence", [1.5, 8, 25, 150])
@pytest.mark.parametrize("shares", [(0.1, 0.05), (0.0, 0.0), (0.5, 0.6), (0.0, 1.0), (1.0, 0.3)])
def test_the_original_rules_equal_the_slow_version(
    sequence_length: int, sentence: float, shares: tuple[float, float]
) -> None:
    rng = np.random.default_rng([sequence_length, int(sentence), int(10 * shares[0])])
    documents = random_documents(rng, documents=40, sentence=sentence, sentences=12)
    documents[3:5] = [[], [0, 3, 0, 2]]
    config = PackingConfig("original", sequence_length, one_segment_share=shares[0], short_share=shares[1])
    assert original(documents, config, seed=3) == slow_original(documents, config, seed=3)


def test_the_original_moves_a_short_sentence_forward_and_drops_what_does_not_fit() -> None:
    config = PackingConfig("original", sequence_length=32, one_segment_share=0.0, short_share=0.0)
    # Aim 14: 10 fit, 20 are refused by the coin or not, then 3 still join the first segment.
    rows = {tuple(map(tuple, original([[10, 20, 3]], config, seed)[0])) for seed in range(20)}
    assert rows == {
        ((*range(10), 30, 31, 32), tuple(range(10, 26))),  # 4 of the 20 are beyond the row's end
        (tuple(range(30)), ()),  # the coin let the 20 join; the row is full
    }
