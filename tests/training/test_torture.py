"""The short form of `make torture`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "torture.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it forks")
def test_kills_and_flips_leave_no_trace(tmp_path: Path) -> None:
    options = ("--kills", "4", "--flips", "120", "--steps", "500", "--json", str(tmp_path / "found.json"))
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["kills"] == 4 and found["same"] and found["recovered from a flip"]
    assert found["flips in the checkpoint"] == found["flips in the data"] == 60
