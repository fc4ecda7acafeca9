"""Fakes by unigram frequency. For the writer of shards see tests/data/test_shards.py."""

from pathlib import Path

import numpy as np

from electra.data.shards import file_sha256
from electra.preparation.shard_writer import write_unigram_fakes


def test_fakes_are_no_special_tokens_even_if_those_are_frequent(tmp_path: Path) -> None:
    dtype, tokens = np.dtype("<u2"), np.arange(5, 1005, dtype="<u2")
    tokens.tofile(path := tmp_path / "heldout-00000.tokens")
    counts = np.ones(1005, np.int64)
    counts[1] = 9 * len(counts)  # [UNK]
    record = {"name": "heldout-00000", "sha256": {"tokens": file_sha256(path)}}
    write_unigram_fakes(tmp_path, record, dtype=dtype, counts=counts, special=(0, 1, 2, 3, 4))
    fakes = np.fromfile(path.with_suffix(".unigram"), dtype)
    assert 140 < (fakes != tokens).sum() <= 150 and fakes.min() >= 5
