"""The packing rules on real documents; words are used as tokens."""

import io
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from electra.data.packing import PackingConfig, pack
from electra.data.spans import PackedShard
from electra.preparation.sentences import split_sentences

CORPUS = Path(__file__).parents[3] / "shared/data/corpora/enwiki.jsonl.zst"
LENGTH = 128


@pytest.fixture(scope="module")
def offsets() -> tuple[np.ndarray, np.ndarray]:
    """Sentence ends in words and document ends in sentences of 3,000 articles."""
    if not CORPUS.is_file():
        pytest.skip(f"the corpus is not here: {CORPUS}")
    import zstandard

    sentence_lengths, document_lengths = [], []
    with CORPUS.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        for line in islice(lines, 3000):
            lengths = [len(sentence.split()) for sentence in split_sentences(json.loads(line)["text"])]
            sentence_lengths += lengths
            document_lengths.append(len(lengths))
    return np.cumsum(sentence_lengths, dtype=np.int64), np.cumsum(document_lengths, dtype=np.int64)


def packed(offsets: tuple[np.ndarray, np.ndarray], **settings: object) -> PackedShard:
    config = PackingConfig(sequence_length=LENGTH, **settings)  # type: ignore[arg-type]
    return pack(*offsets, config, rng=np.random.default_rng(0))


def lengths(examples: PackedShard) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of the first and of the second segment of each row."""
    words = np.concatenate([[0], np.cumsum(examples.spans[:, 1])])
    ends = words[examples.segment_ends]
    starts = np.concatenate([[0], ends[:-1, 1]])
    return ends[:, 0] - starts, ends[:, 1] - ends[:, 0]


def documents_of(examples: PackedShard, offsets: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the documents of the first and of the last word of each span."""
    ends = offsets[0][offsets[1] - 1]
    start, length = examples.spans.T
    return np.searchsorted(ends, start, side="right"), np.searchsorted(ends, start + length - 1, side="right")


@pytest.mark.parametrize("builder", ["contiguous", "original"])
def test_rules_that_both_builders_keep(offsets: tuple[np.ndarray, np.ndarray], builder: str) -> None:
    examples = packed(offsets, builder=builder)
    first, second = lengths(examples)
    assert len(first) > 5_000
    assert (first > 0).all()
    assert (first + second + np.where(second > 0, 3, 2) <= LENGTH).all()
    begin, end = documents_of(examples, offsets)
    assert np.array_equal(begin, end)  # no span crosses the end of a document
    row_of_span = np.repeat(np.arange(len(first)), np.diff(examples.segment_ends[:, 1], prepend=0))
    changes = np.flatnonzero(begin[1:] != begin[:-1])
    assert (row_of_span[changes] != row_of_span[changes + 1]).all()  # and no row does
    # Rows inside long documents: .10 have one segment and .05 are short (fewer if a short target
    # falls near the full length, or is reached by a sentence that fills the row).
    full = first + second >= LENGTH - 3
    one_segment = second == 0
    assert one_segment[full].mean() == pytest.approx(0.10, abs=0.02)
    aim = (LENGTH - 3) // 2
    two = full & ~one_segment
    assert np.median(first[two]) == pytest.approx(aim, abs=5)
    assert (first[two] < LENGTH - 3).all() and (first[two] > 0).all()


def test_what_does_not_fit_is_dropped_or_kept(offsets: tuple[np.ndarray, np.ndarray]) -> None:
    words = int(offsets[0][-1])
    kept, dropped = (sum(map(np.sum, lengths(packed(offsets, builder=b)))) for b in ("contiguous", "original"))
    assert kept == words
    assert 0.05 < 1 - dropped / words < 0.25


def test_short_targets_have_the_configured_frequency(offsets: tuple[np.ndarray, np.ndarray]) -> None:
    for builder in ("contiguous", "original"):
        shares = []
        for short_share in (0.0, 0.5):
            first, second = lengths(packed(offsets, builder=builder, short_share=short_share))
            shares.append(float((first + second < LENGTH - 3).mean()))
        # Without short targets only the last row of a document is short.
        assert shares[1] > shares[0] + 0.25
    first, second = lengths(packed(offsets, one_segment_share=1.0))
    assert not second.any()
