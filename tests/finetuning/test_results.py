"""The results of several seeds, without a fine-tuning."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from electra.finetuning.results import FinetuneResult, SeedResult


def test_the_deviation_over_seeds_is_that_of_a_sample() -> None:
    config, task = SimpleNamespace(init="pretrained", model="m"), SimpleNamespace(splits={}, notes=())
    setup: Any = SimpleNamespace(config=config, task=task)
    seeds = [SeedResult(seed, {"f1": value}, None, 9, 1.0) for seed, value in enumerate((0.5, 0.7))]
    result = FinetuneResult(Path("out"), "a task", "f1", seeds)
    assert result.to_dict(setup)["standard_deviation"] == pytest.approx(0.02**0.5)
    (console := Console(file=io.StringIO(), width=100)).print(result)
    [line] = [line for line in console.file.getvalue().splitlines() if "deviation" in line]  # type: ignore[attr-defined]
    assert "0.1414" in line
    alone = FinetuneResult(Path("out"), "a task", "f1", seeds[:1])
    assert alone.to_dict(setup)["standard_deviation"] is None
