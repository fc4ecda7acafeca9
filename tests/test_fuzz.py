"""The short form of `benchmarks/fuzz.py`: broken files of every kind are read or refused, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"


def test_broken_files_are_read_or_refused(tmp_path: Path) -> None:
    options = ("--inputs", "300", "--seed", "2", "--seconds", "700", "--json", str(tmp_path / "found.json"))
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    actual = json.loads((tmp_path / "found.json").read_text())
    assert actual["inputs"] == 300 and actual["read"] > 50 and actual["refused"] > 100
