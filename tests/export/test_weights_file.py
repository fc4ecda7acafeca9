"""The header of a file of weights: whole, damaged, and too long."""

import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from electra.errors import CheckpointError
from electra.export.weights_file import MAX_HEADER, read_header


def test_the_header_names_all_tensors(tmp_path: Path) -> None:
    save_file({"table": torch.zeros(3, 4), "bias": torch.zeros(7)}, tmp_path / "a", metadata={"format": "pt"})
    header = read_header(tmp_path / "a")
    assert header.keys() == {"__metadata__", "table", "bias"} and header["table"]["shape"] == [3, 4]


@pytest.mark.parametrize(
    ("text", "length", "message"),
    [
        (b"", 0, "is damaged or cut short"),
        (b"{}", 2**63, "is damaged or cut short"),
        (b'{"a":' + b"[" * 100_000, None, "is damaged or cut short"),
        (b"\xff\xff", None, "is damaged or cut short"),
        (b"[1]", None, "its header is no JSON object"),
        (b" " * (MAX_HEADER + 1), None, "its header has 8,388,609 bytes, at most 8,388,608; it is no model"),
    ],
    ids=["empty", "length beyond the file", "nested", "no text", "no object", "too long"],
)
def test_a_damaged_header_is_refused(text: bytes, length: int | None, message: str, tmp_path: Path) -> None:
    size = struct.pack("<Q", len(text) if length is None else length)
    (tmp_path / "a").write_bytes(size + text + bytes(8))
    with pytest.raises(CheckpointError, match=message):
        read_header(tmp_path / "a")
