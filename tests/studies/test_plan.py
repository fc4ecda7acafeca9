"""The steps of arms, the time of a study, and when a run needs no more."""

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from electra.durations import format_duration
from electra.json_files import write_json
from electra.reports.study_results import RESULT_FILE
from electra.studies import cost_estimate
from electra.studies.arms import StudySetup
from electra.studies.config import load_study
from electra.studies.plan import ArmCost, StudyPlan
from electra.studies.runs import StudyRun, train_and_score
from electra.training.config import TrainConfig

STUDY = """title = "two"
base = "electra-nano"
control = "one"
shares = [0.5, 1.0]
tasks = ["cola", "mrpc"]
[arms.one]
says = "one"
[arms.two]
says = "two"
"""


@pytest.fixture
def setup(tmp_path: Path) -> StudySetup:
    (tmp_path / "two.toml").write_text(STUDY)
    return StudySetup(
        out=tmp_path, study=load_study(str(tmp_path / "two.toml")), data=tmp_path, budget=1e9, flops=1e9,
        tasks=tmp_path, suite=("cola", "mrpc"), task_seeds=3,
    )  # fmt: skip


def arm(name: str, flops: float) -> ArmCost:
    """An arm whose steps cost 1,000."""
    return ArmCost(name, name, 1, 100.0, 0.0, flops, TrainConfig(batch_size=10), 0)


def test_the_number_of_steps_is_the_nearest() -> None:
    assert [arm("one", flops).steps(1.0) for flops in (10_400, 10_600)] == [10, 11]
    assert arm("one", 10_600).steps(0.5) == 5


def test_a_run_with_a_part_of_the_budget_takes_that_part_of_the_time(setup: StudySetup) -> None:
    plan = StudyPlan(setup, (arm("one", 1e9), arm("two", 1e9)), 2, seconds=3600, scoring_seconds=60)
    (console := Console(file=io.StringIO(), width=200)).print(plan)
    total = 2 * 2 * (3600 + 0.5 * 3600 + 2 * 60)  # two arms, two seeds
    assert f"{format_duration(total)} in total" in console.file.getvalue()  # type: ignore[attr-defined]


def test_scoring_takes_the_time_of_all_seeds(setup: StudySetup, monkeypatch: pytest.MonkeyPatch) -> None:
    network = SimpleNamespace(encoder=None, head=None)
    objective = SimpleNamespace(exportable_networks=lambda: {"encoder": network})
    monkeypatch.setattr(cost_estimate, "build", lambda *_: SimpleNamespace(objective=objective))
    monkeypatch.setattr(cost_estimate, "save", lambda *_, **__: None)
    monkeypatch.setattr(cost_estimate, "finetune_config", lambda *_, **__: None)
    plan = SimpleNamespace(preparation=1.0, predictions=2.0, seconds=10.0)
    monkeypatch.setattr(cost_estimate, "dry_run", lambda _: plan)
    data: Any = SimpleNamespace(tokenizer_path=None)
    config: Any = None
    assert cost_estimate.estimate_scoring_seconds(setup, config, data) == 2 * (1 + 2 + 3 * 10)


def test_a_run_is_done_with_one_value_of_a_probe(setup: StudySetup) -> None:
    """The score of a fine-tuning has a value for each seed; a probe has no seeds."""
    run, setup = StudyRun(setup.study.arms[0], 1.0, 0), replace(setup, suite=("cola", "probe-chunking"))
    run.folder(setup.out).mkdir(parents=True)
    for count, done in ((2, False), (3, True)):
        scores = {"cola": {"values": [0.5] * count}, "probe-chunking": {"values": [0.5]}}
        record = {"arm": "one", "share": 1.0, "seed": 0, "failed": None, "tasks": scores}
        write_json(run.folder(setup.out) / RESULT_FILE, record)
        assert run.is_done(setup) == done


@pytest.mark.parametrize(("warmup_steps", "expected"), [(50, False), (51, True)])
def test_a_run_that_is_half_warm_up_is_warned_of(
    setup: StudySetup, caplog: pytest.LogCaptureFixture, warmup_steps: int, expected: bool
) -> None:
    """At the smallest fraction of the budget."""
    StudyPlan(setup, (replace(arm("one", 200_000), warmup_steps=warmup_steps),), 1).check()
    assert ("at 0.5 of the budget (one: 51 of 100 steps)" in caplog.text) is expected


def test_the_hours_of_a_run_include_those_before_it_was_continued(
    setup: StudySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StudyRun(setup.study.arms[0], 1.0, 0)
    (run.folder(setup.out) / "run/export/encoder").mkdir(parents=True)
    record = {"arm": "one", "share": 1.0, "seed": 0, "failed": None, "tasks": {}, "tower": "encoder", "hours": 2.0}
    write_json(run.folder(setup.out) / RESULT_FILE, record)
    score = {"metric": "accuracy", "values": [0.5] * 3, "failed": 0}
    monkeypatch.setattr("electra.studies.runs.score_task", lambda *_, **__: score)
    assert train_and_score(setup, run, 10) == 0
    result = run.read_result(setup.out)
    assert 2.0 <= result["hours"] < 2.1 and result["tasks"] == {"cola": score, "mrpc": score}
