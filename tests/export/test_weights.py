"""Weights that are pickled are refused, and false sizes are named. test_hostile_folders.py bounds the memory."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from electra.errors import CheckpointError
from electra.export import huggingface


@pytest.fixture
def folder(small_model: str, tmp_path: Path) -> Path:
    """A copy of a model that can be changed."""
    for file in Path(small_model).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


class MakesFolder:
    """An object whose pickle makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "last.ckpt"])
def test_a_pickle_is_named_and_never_read(name: str, folder: Path) -> None:
    """Unpickling this file would make a folder."""
    (folder / "model.safetensors").unlink()
    torch.save(MakesFolder(folder / "made"), folder / name)
    with pytest.raises(
        CheckpointError, match=f"has its weights in {name} .*pickles can run programs and are never"
    ):
        huggingface.load(folder)
    assert not (folder / "made").exists()


def test_the_remedy_for_a_pickle_works(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = folder.rename(folder.with_name("a$(touch b)'\"c"))  # a shell must not run any of it
    expected = huggingface.load(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError) as caught:
        huggingface.load(folder)
    [python, option, code] = shlex.split("python" + str(caught.value).rpartition(": python")[2])
    assert (python, option) == ("python", "-c")
    exec(code, {"transformers": transformers})
    loaded = huggingface.load(folder)
    for a, b in ((expected.encoder, loaded.encoder), (expected.head, loaded.head)):
        assert a is not None and b is not None
        assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "layers: must be at least 1 and at most 1000, got 1000000000"),
        ({"vocab_size": 10**12}, r"word_embeddings.weight: expected \(1000000000000, 32\), found \(101, 32\)"),
        ({"max_position_embeddings": 10**12}, r"position_embeddings.weight: expected \(10+, 32\), found"),
        ({"intermediate_size": 10**12, "num_hidden_layers": 900}, "intermediate.dense.weight: expected"),
        ({"hidden_size": 2**40}, "config.json: a file is damaged .Storage size calculation overflowed"),
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_allocated(
    changes: dict[str, int], message: str, folder: Path
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(CheckpointError, match=message):
        huggingface.load(folder)
