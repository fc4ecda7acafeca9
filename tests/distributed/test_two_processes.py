"""Two real processes compute the same as one."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from contract import KINDS
from launching import torchrun
from updates import updated


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two")
    done = torchrun(Path(__file__).with_name("updates_worker.py"), out)
    assert done.returncode == 0, done.stderr
    return out


def test_values_of_the_main_process_are_broadcast(worked: Path) -> None:
    facts = [json.loads((worked / f"facts-{rank}.json").read_text()) for rank in (0, 1)]
    assert [one["rank"] for one in facts] == [0, 1] and [one["size"] for one in facts] == [2, 2]
    assert all(one["told"] == {"from": 0, "length": None, "text": "ü"} for one in facts)
    assert [one["patient"] for one in facts] == [None, "done"]
    assert all(one["agreed"] == [0, 0, 0, 15, 0] for one in facts), "all stop at the same step"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("held", ["whole", "sharded"])
def test_updates_are_those_of_one_process(worked: Path, name: str, held: str) -> None:
    weights, figures = updated(name)
    for rank in (0, 1):
        theirs = load_file(worked / f"{name}-{held}-{rank}.safetensors")
        assert theirs.keys() == weights.keys()
        for key, value in weights.items():  # Adam makes steps of noise where a gradient is 0, of 3e-3 elsewhere
            torch.testing.assert_close(theirs[key], value, rtol=0, atol=2e-5, msg=f"{key}, process {rank}")
    # Adam does not see a gradient's length; its norm is among the figures.
    known = [json.loads((worked / f"{name}-{held}-{rank}.json").read_text()) for rank in (0, 1)]
    assert known[0] == known[1]
    for one, expected in zip(known[0], figures, strict=True):
        assert one == pytest.approx(expected, rel=1e-5, abs=1e-7)
