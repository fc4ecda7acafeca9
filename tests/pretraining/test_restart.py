"""A restarted run does not repeat packing and verification."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_run import config

from electra.data.shards import file_sha256
from electra.pretraining.run import pretrain


def test_a_large_text_is_packed_and_verified_once(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("train.steps=4", "checkpoint.every=2", "evaluation.every=100")
    pretrain(config(data_folder, tmp_path / "small", *options))
    monkeypatch.setattr("electra.pretraining.build.INDEX_TOKENS", 1)

    def dies(_: Path, *, wait: bool) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("electra.pretraining.run.export_run", dies)
        pretrain(config(data_folder, tmp_path / "large", *options))
    last = [tmp_path / run / "checkpoints/step-00000004/model.safetensors" for run in ("small", "large")]
    one, two = map(load_file, last)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not (tmp_path / "small/index").exists() and (tmp_path / "large/index/index.json").exists()

    read: list[str] = []
    monkeypatch.setattr(
        "electra.data.shards.file_sha256", lambda path: read.append(path.name) or file_sha256(path)
    )
    monkeypatch.setattr("electra.pretraining.build.write_index", lambda *_, **__: pytest.fail("packed again"))
    shutil.rmtree(last[1].parent)
    assert pretrain(config(data_folder, tmp_path / "large", *options)).outcome.step == 4
    assert read == ["tokenizer.json", "unigram.npy"], "no shard"
    assert not (tmp_path / "large/index").exists(), "a finished run needs it no more"
