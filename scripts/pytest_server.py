"""Runs of pytest in processes that have imported large libraries already, which takes most of a short run.

    python scripts/pytest_server.py MODULE ...

Each line of its input is a JSON object with `arguments` of pytest, `folder` to run in, `environment` to add, and
`output`, the file for what pytest prints. It answers with a line: the exit status.
"""

import importlib
import json
import os
import sys
from typing import Any

import pytest


def run(order: dict[str, Any]) -> int:
    """Run pytest in a copy of this process, and return its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    output = os.open(order["output"], os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    status = pytest.main(order["arguments"])
    sys.stdout.flush()
    os._exit(status)


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
