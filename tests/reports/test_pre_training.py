"""What a pre-training was started from, its network and its data."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from electra.reports.pre_training import pre_training_sections


def run_folder(path: Path, config: str) -> Path:
    (path / "metrics.jsonl").write_text("", encoding="utf-8")
    (path / "config.toml").write_text(config, encoding="utf-8")
    return path


def properties(path: Path) -> dict[str, str]:
    [section] = pre_training_sections(path, "a run")
    return dict(section.properties)


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("", "random weights"),
        ('discriminator = "small"', "small"),
        ('discriminator = "small"\ngenerator = "tiny"', "small; generator: tiny"),
        ('from = "FIRST"\ndiscriminator = "small"', "FIRST (second stage)"),
    ],
)
def test_a_run_says_what_it_was_started_from(init: str, expected: str, tmp_path: Path) -> None:
    run = run_folder(tmp_path, f"[init]\naverage = 0.5\n{init}\n")
    assert properties(run)["started from"] == expected


def test_a_run_says_its_network_and_where_its_data_are(tmp_path: Path) -> None:
    run = run_folder(tmp_path, 'data = "/med"\n[model]\nkind = "bert"\nlayers = 6\nhidden_size = 384\n')
    assert properties(run)["network"] == "bert, 6 layers × 384" and properties(run)["data"] == "/med"
    (run / "environment.json").write_text(
        json.dumps({"data": {"statistics": {"documents": 5486, "tokens": 4715}}})
    )
    assert properties(run)["data"] == "/med: 5,486 documents, 4,715 tokens"
    export = run / "export" / "discriminator"
    export.mkdir(parents=True)
    tensors = {"table": torch.zeros(300, 4), "bias": torch.zeros(7), "scale": torch.tensor(1.0)}
    save_file(tensors, export / "model.safetensors", metadata={"format": "pt"})
    assert properties(run)["network"] == "bert, 6 layers × 384, 1,208 parameters with its head"


@pytest.mark.parametrize("header", [b"\xff", b"{", b"[]", b'{"a": 5}', b'{"a": {}}', b'{"a": {"shape": ["x"]}}'])
def test_a_report_shows_the_rest_of_a_run_whose_export_is_damaged(header: bytes, tmp_path: Path) -> None:
    run = run_folder(tmp_path, "[model]\nlayers = 6\nhidden_size = 384\n")
    (run / "export/discriminator").mkdir(parents=True)
    file = run / "export/discriminator/model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    assert properties(run)["network"] == "bert, 6 layers × 384, its export is damaged"


def test_a_run_without_a_config_says_nothing_of_it(tmp_path: Path) -> None:
    run = run_folder(tmp_path, "")
    (run / "config.toml").unlink()
    assert properties(run) == {"objective": "replaced-token"}
