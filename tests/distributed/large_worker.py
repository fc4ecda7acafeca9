"""Started by torchrun: the command, for which any text is large.

Its main process packs until the processes have exchanged some messages: so none of them runs into a timeout.
"""

import sys
import threading
from pathlib import Path
from typing import Any

import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from waiting import LIMIT

from electra.cli import main
from electra.pretraining import build

MESSAGES = 5
all_reduce, write_index = dist.all_reduce, build.write_index
packing, enough = threading.Event(), threading.Semaphore(0)


def counted(*arguments: Any, **options: Any) -> Any:
    if packing.is_set():
        enough.release()
    return all_reduce(*arguments, **options)


def slowly(*arguments: Any, **options: Any) -> None:
    packing.set()
    assert all(enough.acquire(timeout=LIMIT) for _ in range(MESSAGES)), "the other process hears nothing"
    packing.clear()
    write_index(*arguments, **options)


build.INDEX_TOKENS = 1
build.write_index = slowly  # type: ignore[attr-defined]
dist.all_reduce = counted
sys.exit(main(sys.argv[1:]))
