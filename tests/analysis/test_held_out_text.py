"""Text from held-out documents: the longest, a sample cut into rows, and evenly spaced segments."""

from pathlib import Path

import pytest

from electra.analysis.held_out_text import (
    MIN_ROW_TOKENS,
    evenly_spaced_segments,
    longest_documents,
    sample_document_rows,
)
from electra.data.shards import Split, TokenData
from electra.errors import DataError


def test_held_out_documents_come_longest_first(data_folder: Path) -> None:
    data = TokenData.open(data_folder)
    [shard] = data.heldout.shards
    ends = shard.sentence_ends[shard.document_ends - 1]
    texts = [shard.tokens[start:end].tolist() for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    actual = longest_documents(data.heldout, separate=data.special.separate, documents=3, length=10**6)
    assert [one.tolist() for one in actual] == [
        [data.special.separate, *text] for text in sorted(texts, key=len, reverse=True)[:3]
    ]
    cut = longest_documents(data.heldout, separate=data.special.separate, documents=3, length=5)
    assert [one.tolist() for one in cut] == [one[:6].tolist() for one in actual]
    with pytest.raises(DataError, match="no held-out text"):
        longest_documents(Split([]), separate=3, documents=3, length=5)


def test_segments_are_spread_over_the_split(data_folder: Path) -> None:
    data = TokenData.open(data_folder, verify=False)
    whole = [token for shard in data.heldout.shards for token in shard.tokens.tolist()]
    actual = evenly_spaced_segments(data.heldout, texts=6, length=20)
    assert len(actual) == 6 and all(10 <= len(one) <= 20 for one in actual)
    starts = [next(i for i in range(len(whole)) if whole[i : i + len(one)] == one) for one in actual]
    assert starts == sorted(starts) and starts[0] == 0 and starts[-1] > len(whole) / 2
    assert sum(map(len, evenly_spaced_segments(data.heldout, texts=10**6, length=10**6))) <= len(whole)
    with pytest.raises(DataError, match="no held-out text"):
        evenly_spaced_segments(Split([]), texts=1, length=8)


def test_rows_of_held_out_documents(held_out_data: Path) -> None:
    data = TokenData.open(held_out_data, verify=False)
    rows = sample_document_rows(data.heldout, documents=9, length=100, row=30, seed=0)
    assert rows.documents == sorted(rows.documents) and {*rows.documents} == {*range(9)}
    assert all(MIN_ROW_TOKENS <= len(one) <= 30 for one in rows.ids)
    whole = data.heldout.shards[0].tokens.tolist()
    for one in rows.ids:
        assert any(whole[start : start + len(one)] == one for start in range(len(whole)))
    again = sample_document_rows(data.heldout, documents=9, length=100, row=30, seed=0)
    assert again == rows != sample_document_rows(data.heldout, documents=9, length=100, row=30, seed=1)
