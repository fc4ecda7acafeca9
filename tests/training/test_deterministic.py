"""Deterministic kernels within a block."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from electra.config import load_config
from electra.errors import ConfigError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.training.deterministic import deterministic_algorithms


def test_deterministic_only_within_the_block() -> None:
    with deterministic_algorithms(False):
        assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_algorithms(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]


def test_an_operation_without_a_deterministic_kernel_is_an_error() -> None:
    problem = r"train\.deterministic: put_ does not have a deterministic"
    with pytest.raises(ConfigError, match=problem), deterministic_algorithms(True):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2), accumulate=False)
    with pytest.raises(RuntimeError, match="another matter"), deterministic_algorithms(True):
        raise RuntimeError("another matter")
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_deterministic_run_equals_a_normal_run_on_a_cpu(data_folder: Path, tmp_path: Path) -> None:
    """All operations of a run have such a kernel, and on a CPU they are the ones that are used anyway."""
    settings = ["train.steps=3", "train.batch_size=4", "train.precision=float32", "evaluation.examples=8"]
    weights = []
    for wanted in ("false", "true"):
        given = [f"data={data_folder}", f"out={tmp_path / wanted}", f"train.deterministic={wanted}"]
        pretrain(load_config(PretrainConfig, "quickstart", [*settings, *given]))
        weights.append(load_file(tmp_path / wanted / "checkpoints/step-00000003/model.safetensors"))
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
