"""Folders that only electra can load."""

import json
from pathlib import Path

import pytest
import torch
from small_model import write_model

from electra.export.formats.native import MODEL_TYPE
from electra.export.loading import load_pretrained
from electra.modeling.encoders.bert import BertConfig, BertEncoder


def test_what_an_encoder_computes_when_it_is_built_has_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = BertConfig.build

    def build(config: BertConfig, **options: bool) -> BertEncoder:
        encoder = plain(config, **options)
        encoder.register_buffer("computed", torch.arange(3), persistent=False)
        return encoder

    monkeypatch.setattr(BertConfig, "build", build)
    monkeypatch.setattr(BertConfig, "checkpoint_format", "native")  # as that of a plugin
    folder = write_model(tmp_path / "model")
    assert json.loads((folder / "config.json").read_text())["model_type"] == MODEL_TYPE
    assert load_pretrained(folder).encoder.get_buffer("computed").tolist() == [0, 1, 2]
