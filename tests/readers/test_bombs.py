"""A small compressed file of many bytes is refused, in bounded memory. For lines without end see test_lines.py."""

import gzip
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from electra.errors import DataError
from electra.readers import csv, lines
from electra.readers.read import read_records, read_texts

SIZE = 1 << 28
"""Bytes of a decompressed file (256 MiB)."""
PEAK = 4 * lines.MAX_LINE
"""Python's memory at most, in bytes: a line, and its copies on the way."""


def pieces(content: bytes) -> Iterator[bytes]:
    block = content * ((1 << 20) // len(content))
    return (block for _ in range(SIZE // len(block)))


def bomb(path: Path, content: bytes, *, head: bytes = b"") -> Path:
    """Write a file of `content` over and over."""
    if path.suffix == ".gz":
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(head)
            file.writelines(pieces(content))
    else:
        with zstandard.open(path, "wb") as file:
            file.write(head)
            for piece in pieces(content):
                file.write(piece)
    assert path.stat().st_size < SIZE // 100
    return path


@pytest.fixture
def bounded() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < PEAK


@pytest.mark.parametrize("name", ["a.txt.zst", "a.jsonl.gz", "a.csv.zst", "a.parquet.zst", "a.parquet.gz"])
@pytest.mark.usefixtures("bounded")
def test_zeros_are_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a binary file, not text|not a parquet file"):
        list(read_texts(bomb(tmp_path / name, b"\0")))


@pytest.mark.usefixtures("bounded")
def test_a_row_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line ends one quoted field and begins the next one, so no field is too long."""
    monkeypatch.setattr(csv, "MAX_ROW", 1 << 22)
    path = bomb(tmp_path / "a.csv.zst", b'","' + b"x" * 1000 + b"\n", head=b'text,label\n"')
    with pytest.raises(
        DataError, match="the row does not end, at most 4 MiB are read; is a quotation mark missing"
    ):
        list(read_records(path))


def test_the_limit_of_a_row_is_not_that_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MAX_ROW", 1000)
    (tmp_path / "a.csv").write_text("text,label\n" + f'"{"x" * 50}",1\n' * 100)
    assert [row for _, row in read_records(tmp_path / "a.csv")] == [{"text": "x" * 50, "label": "1"}] * 100


def test_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    """The head of a frame of zstandard says how much memory its reader needs."""
    frame = bytes.fromhex("28b52ffd") + bytes([0x00, 0xA8]) + b"\x01\x00\x00"  # a window of 2 GiB
    (tmp_path / "a.txt.zst").write_bytes(frame)
    with pytest.raises(DataError, match="the compressed file is damaged or cut short"):
        list(read_texts(tmp_path / "a.txt.zst"))
