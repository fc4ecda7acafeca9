"""The results of several seeds, without a fine-tuning."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from electra.finetuning.results import FinetuneResult, SeedResult, failure_reason
from electra.tasks.classification import Classification
from electra.tasks.texts import TextExample


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


@pytest.mark.parametrize(
    ("answers", "labels", "expected"),
    [
        ([0, 1, 1], ["yes", "yes", "yes"], 'it always predicts "yes"'),
        ([0, 1, 1], ["no", "yes", "yes"], None),
        ([1, 1, 1], ["yes", "yes", "yes"], None),
    ],
)
def test_one_label_for_all_of_dev_is_a_failure_unless_dev_has_only_one(
    answers: list[int], labels: list[str], expected: str | None
) -> None:
    problem = Classification(("accuracy",), labels=("no", "yes"))
    examples = [TextExample("a text", None, answer) for answer in answers]
    assert failure_reason(problem, [{"label": label} for label in labels], examples) == expected
