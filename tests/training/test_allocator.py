"""Freed memory stays in the process until it is released."""

import platform
import subprocess
import sys

import pytest
import torch

from electra.training.allocator import peak_memory

PROGRAM = """
import mmap, sys, torch
from electra.training.allocator import keep_freed_memory, release_freed_memory
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE
if sys.argv[1] != "default":
    assert keep_freed_memory()
before = resident()
torch.ones(24 * 2**20 // 4)
if sys.argv[1] == "release":
    assert release_freed_memory()
print((resident() - before) // 2**20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's allocator that is told")
@pytest.mark.parametrize(("how", "least", "most"), [("keep", 18, 40), ("default", -10, 12), ("release", -10, 12)])
def test_a_freed_tensor_stays_resident_until_it_is_released(how: str, least: int, most: int) -> None:
    # in a process of its own, since the setting lasts
    finished = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    assert least < int(finished.stdout) < most


def test_the_peak_of_a_process_is_in_bytes() -> None:
    assert 2**26 < peak_memory(torch.device("cpu")) < 2**40  # PyTorch alone takes more than the first
