"""Weights that are damaged, false or pickled are refused, with bounded memory."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from electra.errors import CheckpointError
from electra.export import huggingface
from electra.export.weights import read_weights


@pytest.fixture
def folder(small_model: str, tmp_path: Path) -> Path:
    """A copy of a model that can be changed."""
    for file in Path(small_model).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "last.ckpt"])
def test_a_pickle_is_named_and_never_read(name: str, folder: Path) -> None:
    """Unpickling this file would make a folder."""
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / name)
    weights.unlink()
    with pytest.raises(
        CheckpointError, match=f"has its weights in {name} .*pickles can run programs and are never"
    ):
        huggingface.load(folder)


def test_the_remedy_for_a_pickle_works(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    expected = huggingface.load(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError) as caught:
        huggingface.load(folder)
    code = str(caught.value).partition('python -c "')[2].rstrip('"')
    exec(code, {"transformers": transformers})
    loaded = huggingface.load(folder)
    for a, b in ((expected.encoder, loaded.encoder), (expected.head, loaded.head)):
        assert a is not None and b is not None
        assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def rewrite_header(path: Path, **changes: Any) -> None:
    """Change the first tensor in the header of a safetensors file."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    first = next(name for name in header if name != "__metadata__")
    header[first] |= changes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])


@pytest.mark.parametrize(
    "changes",
    [{"shape": [10**12]}, {"data_offsets": [0, 10**15]}, {"dtype": "F99"}, {"shape": [-1]}, {"shape": [2**63, 2]}],
)
def test_headers_that_lie_are_refused(changes: dict[str, Any], folder: Path) -> None:
    rewrite_header(folder / "model.safetensors", **changes)
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        read_weights(folder)


@pytest.mark.parametrize("size", [2**60, 10**8])
def test_headers_of_false_length_are_refused(size: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        read_weights(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000; electra reads at most 1,000 layers"),
        ({"vocab_size": 10**12}, "describes a matrix of .* numbers, but the weights have"),
        ({"max_position_embeddings": 10**12}, "describes a matrix of .* numbers, but the weights have"),
        ({"intermediate_size": 10**12}, "describes a matrix of .* numbers, but the weights have"),
        ({"hidden_size": 2**40}, "describes a matrix of .* numbers, but the weights have"),
        (
            {"hidden_size": 2**40, "intermediate_size": 2**40, "num_hidden_layers": 900},
            "describes a matrix of .* numbers, but the weights have",
        ),
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_allocated(
    changes: dict[str, int], message: str, folder: Path
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(CheckpointError, match=message):
        huggingface.load(folder)
