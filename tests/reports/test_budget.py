"""Steps, tokens, FLOPs and time of runs that have ended, that have not, and that have just begun."""

import json
from pathlib import Path
from typing import Any

import pytest

from electra.reports.budget import (
    describe_budget,
    describe_steps,
    describe_time,
    evaluation_seconds,
    is_evaluated_at_end,
    run_steps,
    total_seconds,
)
from electra.reports.metrics import Metrics

REPORT = {"step": 5238, "tokens": 6_000_000, "flops": 7.5e14, "seconds": 600.0}
TIMED = {"step": 5000, "evaluation_seconds": 30.0}


@pytest.mark.parametrize(("steps", "expected"), [(5814, "5,238 of 5,814"), (5238, "5,238"), (None, "5,238")])
def test_an_unfinished_run_says_how_long_it_will_be(steps: int | None, expected: str) -> None:
    assert describe_steps(Metrics([REPORT], [], []), steps) == expected


def test_a_run_without_reports_has_no_budget_yet() -> None:
    begun = Metrics([], [TIMED], [])
    assert describe_steps(begun, 10) == "–" and describe_budget(begun) == ("–", "–", "–")


def test_the_time_includes_that_of_evaluations() -> None:
    timed = Metrics([REPORT], [TIMED, TIMED], [])
    assert total_seconds(timed) == 660.0
    assert describe_budget(timed) == ("6,000,000", "7.500e+14", "11.0 minutes")
    assert describe_time(timed) == "11.0 minutes, of which evaluations 60.0 s; 10,000 tokens/s in training"


def test_the_time_of_evaluations_of_early_runs_is_not_known() -> None:
    early = Metrics([REPORT], [{"step": 5000}], [])
    assert evaluation_seconds(early) is None
    assert describe_budget(early)[2] == "10.0 minutes" and total_seconds(early) == 600.0
    assert describe_time(early) == "10.0 minutes without evaluations; 10,000 tokens/s in training"


@pytest.mark.parametrize(("steps", "expected"), [(5000, True), (5001, False), (None, True)])
def test_the_evaluation_at_the_end_is_told_from_earlier_ones(steps: int | None, expected: bool) -> None:
    assert is_evaluated_at_end(Metrics([REPORT], [TIMED], []), steps) is expected
    assert not is_evaluated_at_end(Metrics([REPORT], [], []), steps)


@pytest.mark.parametrize(
    ("config", "expected"), [({"train": {"steps": 9}}, 9), ({"train": {"minutes": 2.0}}, None), ({}, None)]
)
def test_the_length_of_a_run_is_in_its_config(
    config: dict[str, Any], expected: int | None, tmp_path: Path
) -> None:
    assert run_steps(tmp_path, config) == expected


@pytest.mark.parametrize(("how", "expected"), [("finished", 29), ("stopped", 35)])
def test_a_run_with_a_limit_on_its_time_can_finish_early(how: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "ended.json").write_text(json.dumps({"how": how, "step": 29}), encoding="utf-8")
    assert run_steps(tmp_path, {"train": {"steps": 35, "minutes": 1.0}}) == expected
