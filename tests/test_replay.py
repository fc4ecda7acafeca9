"""Recorded steps of google-research/electra, replayed (benchmarks/replay.py)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "../shared/golden"
RACED = {"electra_all_tied", "electric"}
"""Their gradients were recorded while new weights were being written (docs/fidelity.md)."""


@pytest.fixture(scope="module")
def replaying() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replay", ROOT / "benchmarks" / "replay.py")
    assert spec is not None and spec.loader is not None
    sys.modules["replay"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["electra", "electra_all_tied", "mlm", "electric"])
def test_five_steps_are_those_of_the_original(replaying: ModuleType, name: str) -> None:
    folder = RECORDED / name
    if not folder.is_dir():
        pytest.skip(f"the recorded steps are not here: {folder}")
    rows = {row.name: row for row in replaying.replay(folder)}
    assert rows["final parameters"].tensors > 30 and rows["total_loss"].tensors == 5
    for row in rows.values():
        if row.name == "gradients" and name in RACED:
            continue
        assert row.difference < 1e-4, row
