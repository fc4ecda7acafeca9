"""Lines of compressed files: memory stays bounded, whatever a file decompresses to."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from electra.readers import lines
from electra.readers.base import Reject
from electra.readers.lines import decode_lines, read_lines

SIZE = 256 << 20
"""Bytes of a line that is a few kilobytes in a compressed file."""


def write_bomb(path: Path) -> None:
    """A line that is very long, and one that is not."""
    block = b"x" * (1 << 20)
    with zstandard.open(path, "wb") if path.suffix == ".zst" else gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(SIZE >> 20):
            file.write(block)
        file.write(b"\nthe end\n")


@pytest.mark.parametrize("ending", [".zst", ".gz"])
def test_a_line_without_end_is_a_reject_and_takes_little_memory(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 1 << 20)
    path = tmp_path / f"a.txt{ending}"
    write_bomb(path)
    assert path.stat().st_size < SIZE / 100
    tracemalloc.start()
    try:
        found = list(decode_lines("a", read_lines(path)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [(1, Reject("a", 1, "the line is longer than 1 MiB")), (2, "the end")]
    assert peak < 96 << 20, "a piece of 1 KiB can become 32 MiB"
