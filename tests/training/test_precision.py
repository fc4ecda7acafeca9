"""The precision is chosen by measurement on a CPU, and by the hardware of a GPU."""

import pytest
import torch

from electra.training import precision
from electra.training.precision import choose_precision

CPU = torch.device("cpu")


def speeds(monkeypatch: pytest.MonkeyPatch, *, float32: float, bfloat16: float) -> None:
    known = {torch.float32: float32, torch.bfloat16: bfloat16}
    monkeypatch.setattr(precision, "product_flops", lambda dtype, device: known[dtype])


def test_slow_bfloat16_products_decide_without_running_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds(monkeypatch, float32=157e9, bfloat16=1e9)
    chosen = choose_precision("auto", CPU, lambda: pytest.fail("no step should run"))
    assert chosen.name == "float32" and chosen.product_flops == 157e9
    assert "float32 157, bfloat16 1" in chosen.reason


@pytest.mark.parametrize("quicker", ["float32", "bfloat16"])
def test_if_bfloat16_products_are_faster_whole_steps_decide(monkeypatch: pytest.MonkeyPatch, quicker: str) -> None:
    speeds(monkeypatch, float32=195e9, bfloat16=400e9)
    now = 0.0

    def step() -> None:
        nonlocal now
        in_bfloat16 = torch.is_autocast_enabled("cpu")
        now += 0.001 if in_bfloat16 == (quicker == "bfloat16") else 0.02

    monkeypatch.setattr(precision.time, "perf_counter", lambda: now)
    chosen = choose_precision("auto", CPU, step)
    assert chosen.name == quicker and "seconds per step" in chosen.reason
    assert chosen.product_flops == (195e9 if quicker == "float32" else 400e9)


@pytest.mark.parametrize(("bfloat16", "warned"), [(2e9, True), (50e9, False), (400e9, False)])
def test_a_set_precision_is_kept_and_a_slow_one_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bfloat16: float, warned: bool
) -> None:
    speeds(monkeypatch, float32=100e9, bfloat16=bfloat16)
    chosen = choose_precision("bfloat16", CPU, lambda: pytest.fail("no step should run"))
    assert chosen.name == "bfloat16" and chosen.reason.startswith("set by train.precision")
    assert chosen.product_flops == bfloat16
    assert ("bfloat16 is 50 times slower than float32 on this CPU" in caplog.text) == warned
    with chosen.autocast(CPU):
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16


@pytest.mark.parametrize(("supported", "name"), [(True, "bfloat16"), (False, "float32")])
def test_the_hardware_of_a_gpu_decides_without_running_a_step(
    monkeypatch: pytest.MonkeyPatch, supported: bool, name: str
) -> None:
    def is_supported(*, including_emulation: bool) -> bool:  # PyTorch emulates bfloat16 on older GPUs, slowly
        return supported or including_emulation

    monkeypatch.setattr("torch.cuda.is_bf16_supported", is_supported)
    monkeypatch.setattr(precision, "product_flops", lambda dtype, device: {torch.bfloat16: 7e14}.get(dtype, 5e13))
    chosen = choose_precision("auto", torch.device("cuda"), lambda: pytest.fail("no step should run"))
    assert chosen.name == name and chosen.product_flops == (7e14 if supported else 5e13)


def test_the_speed_of_products_is_measured() -> None:
    assert precision.product_flops(torch.float32, CPU) > 0
