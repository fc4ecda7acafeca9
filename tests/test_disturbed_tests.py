"""scripts/disturbed_tests.py pauses the processes of a test run, and changes the rounding of linear layers."""

import importlib.util
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn import functional
from waiting import until

SCRIPTS = Path(__file__).parents[1] / "scripts"
WAITS = """
import signal
import sys
signal.signal(signal.SIGCONT, lambda *_: sys.exit())
while True:
    signal.pause()
"""
"""A program that ends when it goes on after a pause."""


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_processes_below_are_paused() -> None:
    script = load_script("disturbed_tests")
    parent = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {WAITS!r}]))"
    tests = subprocess.Popen([sys.executable, "-c", parent])
    assert script.pause_at_random(tests, random.Random(0)) > 0 and tests.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_a_process_that_is_stopped_already_is_left_alone() -> None:
    script = load_script("disturbed_tests")
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            until(lambda: script.running_processes(process.pid) == [process.pid])
            process.send_signal(signal.SIGSTOP)
            until(lambda: script.running_processes(process.pid) == [])
        finally:
            process.kill()


def test_a_row_alone_and_in_a_batch_differ_in_rounding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "linear", functional.linear)  # is put back at the end
    load_script("rounding_by_shape")
    rows, weight = torch.ones(5, 64), torch.ones(8, 64)  # sums of ones are exact: only the plugin rounds
    alone, in_batch = functional.linear(rows[:1], weight)[0], functional.linear(rows, weight)[0]
    assert not torch.equal(alone, in_batch) and torch.allclose(alone, in_batch, rtol=1e-6, atol=0)
    assert torch.equal(in_batch, functional.linear(rows, weight)[0]), "the same shape has the same digits"
