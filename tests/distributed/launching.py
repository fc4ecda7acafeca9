"""Processes started by torchrun."""

import os
import subprocess
import sys
from pathlib import Path

SECONDS = 540
"""Less than the ten minutes that a process of a run waits for another one."""


def torchrun(*arguments: str | Path, processes: int = 2, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """Start processes, of a script or with `-m MODULE`, and wait for them."""
    return subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes),
            "--max-restarts", str(restarts), *map(str, arguments),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
