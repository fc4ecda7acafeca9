"""The device of a network: its name, a device that is missing, and what Apple's GPUs lack."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from contract import KINDS, batch, objective
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from electra import errors
from electra.errors import ConfigError
from electra.modeling import device as devices
from electra.modeling.device import resolve_device, synchronize, widest_float
from electra.objectives.metrics import DetectionMetrics
from electra.training.config import TrainConfig
from electra.training.precision import choose_precision


def gpus(monkeypatch: pytest.MonkeyPatch, count: int, *, current: int = 0, built: bool = True) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)


@pytest.mark.parametrize(
    ("wanted", "count", "resolved"),
    [
        ("auto", 0, "cpu"), (None, 0, "cpu"), ("cpu", 0, "cpu"), ("cpu", 2, "cpu"), ("auto", 2, "cuda:1"),
        (None, 2, "cuda:1"), ("cuda", 2, "cuda:1"), ("cuda:0", 2, "cuda:0"), (torch.device("meta"), 0, "meta"),
    ],
)  # fmt: skip
def test_a_name_becomes_a_device(
    wanted: str | torch.device | None, count: int, resolved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, count, current=1)
    assert resolve_device(wanted) == torch.device(resolved)


@pytest.mark.parametrize(
    ("wanted", "count", "built", "message"),
    [
        ("gpu", 1, True, "there is no device 'gpu'; give auto, cpu, cuda, cuda:1 .* or mps"),
        ("meta", 1, True, "there is no device 'meta'"),
        ("cuda:", 1, True, "there is no device 'cuda:'"),
        ("cuda", 0, True, "torch finds no GPU; set it to auto or cpu"),
        ("cuda:1", 0, False, "torch finds no GPU: this PyTorch is built without CUDA"),
        ("cuda:1", 1, True, "this machine has one GPU, counted from 0; the last one is cuda:0"),
        ("cuda:5", 4, True, "this machine has 4 GPUs, counted from 0; the last one is cuda:3"),
        ("mps", 1, True, "torch finds no Apple GPU"),
    ],
)
def test_a_device_that_is_missing_is_an_error_in_plain_words(
    wanted: str, count: int, built: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, count, built=built)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=rf"^--device( {wanted})?: {message}"):
        resolve_device(wanted)
    monkeypatch.setattr(errors, "_command_line", False)
    with pytest.raises(ConfigError, match=rf"^`train.device`( {wanted})?: {message}"):
        resolve_device(wanted, option="train.device")


def test_an_apple_gpu_is_only_used_when_it_is_named_and_warns_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpus(monkeypatch, 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    devices._warn_about_mps.cache_clear()
    assert resolve_device("auto").type == "cpu"
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert {resolve_device("mps") for _ in range(2)} == {torch.device("mps")}
    assert len(caplog.records) == 1 and "never been measured" in caplog.text


def test_a_config_with_an_unknown_device_is_refused() -> None:
    assert list(TrainConfig(steps=1, device="cuda:3").problems()) == []
    (problem,) = TrainConfig(steps=1, device="cudo").problems()
    assert problem.startswith("device: there is no device 'cudo'")


def test_times_are_measured_after_the_device_has_done_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(str(device)))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    for name in ("cpu", "cuda:1", "mps"):
        synchronize(torch.device(name))
    assert waited == ["cuda:1", "mps"]


def test_on_an_apple_gpu_the_precision_is_float32_unless_another_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.training.precision.product_flops", lambda dtype, device: 1e9)
    chosen = choose_precision("auto", torch.device("mps"), lambda: pytest.fail("no step should run"))
    assert chosen.name == "float32" and "never been measured" in chosen.reason
    assert choose_precision("float16", torch.device("mps"), lambda: None).name == "float16"


def test_apple_gpus_have_no_float64() -> None:
    types = {name: widest_float(torch.device(name)) for name in ("cpu", "cuda", "mps")}
    assert types == {"cpu": torch.float64, "cuda": torch.float64, "mps": torch.float32}


class WithoutFloat64(TorchDispatchMode):
    """Fails where an operation makes a float64 tensor."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made: list[Any] = tree_leaves(result)
        assert not any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in made), func
        return result


@pytest.mark.parametrize("name", KINDS)
def test_a_training_step_needs_no_float64_where_there_is_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    floats: Mapping[str, torch.dtype] = {"cpu": torch.float32}
    monkeypatch.setattr(devices, "WIDEST_FLOATS", floats)
    for computed_on_the_cpu in ("compute", "auc"):
        monkeypatch.setattr(DetectionMetrics, computed_on_the_cpu, lambda self: {})
    ours = objective(name).float()  # as pre-training does for mps
    ours.begin_step(3, 10)
    with WithoutFloat64():
        output = ours(batch(4, seed=1))
        output.loss.backward()
        ours.evaluate([(batch(4, seed=2), batch(4, seed=2))])
    assert output.loss.isfinite()
