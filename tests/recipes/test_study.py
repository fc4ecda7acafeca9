"""Studies: from a TOML file to a table, with runs that are resumed and shared."""

import io
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from electra.cli import main
from electra.config import load_config
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError, DataError
from electra.recipes import study_runs
from electra.recipes.pretrain_config import PretrainConfig
from electra.recipes.study import Stopped, StudyCommand, StudyPlan, run
from electra.recipes.study_config import load_study, names
from electra.recipes.study_taking import DEAD
from electra.reports.study import StudyReport
from electra.training.precision import Precision

STUDY = """
title = "Two objectives"
base = "BASE"
control = "electra"
paper = "a paper"
tasks = ["chunking"]

[arms.electra]
says = "ELECTRA"
paper = 85.0

[arms.bert]
says = "BERT"
extends = ["objectives/masked-lm"]
paper = 82.2
"""
BASE = """
extends = "quickstart"

[model]
layers = 1
hidden_size = 32
embedding_size = 32
feed_forward_size = 64
heads = 2

[generator]
hidden_size = 16
feed_forward_size = 32
heads = 1

[train]
batch_size = 8
compile = "off"

[evaluation]
examples = 16
interim_examples = 8

[optimizer]
warmup_steps = 5

[tracking]
tensorboard = false
"""


@pytest.fixture(autouse=True)
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which every export is compared with, a second or two each time; other tests see to that."""
    monkeypatch.setattr("electra.recipes.export.parity", lambda *_: None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "two.toml").write_text(STUDY.replace("BASE", str(tmp_path / "base.toml")))
    return tmp_path / "two.toml"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Chunking in two files of a few sentences."""
    folder = tmp_path / "tasks" / "chunking-conll2000"
    folder.mkdir(parents=True)
    sentence = "the DT B-NP\nfox NN I-NP\nwatches VBZ B-VP\nthe DT B-NP\nmill NN I-NP\n. . O\n\n"
    for name in ("train.txt", "test.txt"):
        (folder / name).write_text(sentence * 12)
    return tmp_path / "tasks"


def command(file: Path, data: Path, tmp_path: Path, **others: Any) -> StudyCommand:
    settings = {"out": tmp_path / "out", "budget": 1.5e9, "seeds": 1, "task_seeds": 1}
    return StudyCommand(study=str(file), data=data, **{**settings, **others})


@pytest.mark.parametrize("name", names())
def test_every_study_that_is_shipped_has_arms_that_can_be_built(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    for arm in study.arms:
        (path := tmp_path / f"{arm.name}.toml").write_text(study.toml(arm))
        config = load_config(PretrainConfig, path, ["train.steps=100", "model.vocabulary_size=400"])
        assert config.train.steps == 100


def test_runs_have_equal_compute_and_are_scored(
    file: Path, tasks: Path, data_folder: Path, tmp_path: Path
) -> None:
    result = run(command(file, data_folder, tmp_path, tasks=tasks, seeds=2))
    assert isinstance(result, StudyReport)
    rows = {row.arm: row for row in result.rows}
    flops = [one["flops"] for row in result.rows for one in row.results]
    assert len(flops) == 4 and max(flops) / min(flops) < 1.1
    assert rows["electra"].verdict == "" and rows["bert"].verdict in ("higher", "lower", "not distinguishable")
    assert rows["bert"].interval is not None and rows["bert"].paper == 82.2
    out = tmp_path / "out"
    lines = (out / "study.csv").read_text().splitlines()
    assert len(lines) == 5 and "chunking span_f1 0" in lines[0]
    assert (out / "study.png").stat().st_size > 5000 and "<svg" in (out / "study.svg").read_text()
    stored = json.loads((out / "results.json").read_text())
    assert [row["n"] for row in stored["rows"]] == [2, 2]

    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/*/result.json")}
    more = run(command(file, data_folder, tmp_path, tasks=tasks, seeds=3))
    assert isinstance(more, StudyReport) and [len(row.results) for row in more.rows] == [3, 3]
    assert all(path.stat().st_mtime_ns == then for path, then in before.items()), (
        "one seed more costs one run more"
    )


def test_the_precision_is_measured_once(
    file: Path, tasks: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def chosen(name: Any, *others: Any) -> Precision:
        asked.append(name)
        return Precision("float32", "a test's choice", 1e9)

    monkeypatch.setattr("electra.recipes.pretrain_parts.choose_precision", chosen)
    monkeypatch.setattr("electra.recipes.finetune.choose_precision", chosen)
    run(command(file, data_folder, tmp_path, tasks=tasks))
    assert asked == ["auto", *["float32"] * 4], "once for the study, then two runs and a fine-tuning of each"


def test_a_study_that_was_killed_goes_on(
    file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def dies(common: Any, job: Any, steps: int) -> int:
        if done:
            raise KeyboardInterrupt
        done.append(str(job))
        return study_runs.run_job(common, job, steps)

    monkeypatch.setattr("electra.recipes.study.run_job", dies)
    with pytest.raises(KeyboardInterrupt):
        run(command(file, data_folder, tmp_path))
    monkeypatch.undo()
    result = run(command(file, data_folder, tmp_path))
    assert isinstance(result, StudyReport) and [len(row.results) for row in result.rows] == [1, 1]
    assert result.rows[0].scores == (100 * result.rows[0].results[0]["evaluation"]["eval/unigram_auc"],)
    assert not result.rows[1].scores, "nothing is fine-tuned without --tasks, and BERT finds no fakes"


def test_tasks_that_come_later_cost_no_pretraining(
    file: Path, tasks: Path, data_folder: Path, tmp_path: Path
) -> None:
    run(command(file, data_folder, tmp_path, arms=("bert",)))
    steps = {path: path.read_text() for path in (tmp_path / "out").glob("runs/*/*/*/run/metrics.jsonl")}
    assert len(steps) == 2
    result = run(command(file, data_folder, tmp_path, tasks=tasks))
    assert isinstance(result, StudyReport) and [len(row.scores) for row in result.rows] == [1, 1]
    assert all(path.read_text() == text for path, text in steps.items()), "nothing was trained again"
    more = run(command(file, data_folder, tmp_path, tasks=tasks, task_seeds=2))
    assert isinstance(more, StudyReport)
    assert [len(row.results[0]["tasks"]["chunking"]["values"]) for row in more.rows] == [2, 2]


def test_a_run_that_diverges_is_a_result_and_the_others_go_on(
    file: Path, data_folder: Path, tmp_path: Path
) -> None:
    file.write_text(file.read_text() + 'set = { "optimizer.learning_rate" = 1e30 }\n')
    result = run(command(file, data_folder, tmp_path, seeds=2))
    assert isinstance(result, StudyReport)
    assert {row.arm: (len(row.results), row.failed) for row in result.rows} == {"electra": (2, 0), "bert": (0, 2)}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(result)
    assert "0 (2 failed)" in console.export_text()


def test_an_arm_whose_settings_changed_is_another_arm(file: Path, data_folder: Path, tmp_path: Path) -> None:
    run(command(file, data_folder, tmp_path, arms=("bert",)))
    file.write_text(file.read_text() + 'set = { "masking.share" = 0.3 }\n')
    with pytest.raises(CheckpointError, match="runs of another arm bert"):
        run(command(file, data_folder, tmp_path))


def test_what_the_base_decides_may_not_undo_equal_compute(file: Path, data_folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text(base.read_text().replace("[train]", "[train]\nminutes = 1.0", 1))
    with pytest.raises(ConfigError, match=r"electra: train\.minutes"):
        run(command(file, data_folder, tmp_path))


def test_a_dry_run_shows_all_arms(file: Path, data_folder: Path, tmp_path: Path) -> None:
    plan = run(command(file, data_folder, tmp_path, dry_run=True))
    assert isinstance(plan, StudyPlan)
    cost = {arm.name: arm.train.sequences(arm.steps(1)) * arm.flops_a_sequence for arm in plan.arms}
    assert cost["electra"] == pytest.approx(cost["bert"], rel=0.1) == pytest.approx(1.5e9, rel=0.1)
    assert not (tmp_path / "out/runs").exists()


def test_a_budget_in_minutes_is_that_of_the_control_here(file: Path, data_folder: Path, tmp_path: Path) -> None:
    plan = run(command(file, data_folder, tmp_path, budget=0.5, dry_run=True))
    assert isinstance(plan, StudyPlan) and plan.common.flops > 1e9


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"budget": 2e6}, "too small; an arm needs"),
        ({"budget": -1.0}, "must be a number above 0"),
        ({"arms": ("electre",)}, "has no arm electre; it has electra, bert"),
        ({"tasks": Path("nowhere")}, "there is no folder nowhere"),
        ({"seeds": 0}, "--seeds: must be at least 1, got 0"),
        ({"budget": math.inf}, "must be a number above 0, got inf"),
        ({"tasks": Path(), "suite": ("chunkin",)}, "--suite: there is no task 'chunkin'; did you mean 'chunking'"),
        ({"tasks": Path(), "suite": ("cola", "cola")}, "--suite: cola is named twice"),
        ({"tasks": Path(), "suite": ("cola:",)}, "behind the colon stands a share"),
        ({"tasks": Path()}, "chunking has no folder chunking-conll2000"),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(
    file: Path, data_folder: Path, tmp_path: Path, others: dict[str, Any], problem: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=problem):
        run(command(file, data_folder, tmp_path, **others))
    assert not (tmp_path / "out/runs").exists()


def test_another_budget_or_other_data_are_no_part_of_a_study(
    file: Path, data_folder: Path, tmp_path: Path
) -> None:
    run(command(file, data_folder, tmp_path, arms=("bert",)))
    with pytest.raises(CheckpointError, match="was begun with a budget"):
        run(command(file, data_folder, tmp_path, budget=2e9))
    stored = tmp_path / "out/study.json"
    stored.write_text(stored.read_text().replace('"data": "', '"data": "other'))
    with pytest.raises(CheckpointError, match="other data"):
        run(command(file, data_folder, tmp_path))


def test_an_arm_without_a_discriminator_cannot_be_asked_when_it_started(
    file: Path, data_folder: Path, tmp_path: Path
) -> None:
    file.write_text(
        file.read_text().replace("[arms.electra]", 'reached = { "eval/unigram_auc" = [0.6] }\n[arms.electra]', 1)
    )
    with pytest.raises(ConfigError, match="bert: masked-lm has no discriminator"):
        run(command(file, data_folder, tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('control = "electra"', 'control = "electro"', "there is no arm 'electro'; did you mean 'electra'"),
        ("title", "tilte", "did you mean 'title'"),
        ("paper = 85.0", 'set = { "train.seed" = 3 }', "train.seed is decided by the study"),
        ("paper = 85.0", "papers = 3", "did you mean 'paper'"),
        ('["objectives/masked-lm"]', '"objectives/masked-lm"', "arms.bert.extends: must be a list"),
        ("paper =", "shares = 0.5\npaper =", "shares: must be a list"),
        ("paper =", "shares = [2]\npaper =", "shares: must lie above 0"),
        ("paper =", "reached = 3\npaper =", "reached: must be a table, in braces, got 3"),
        ("paper =", 'reached = { "eval/unigram_auc" = ["a"] }\npaper =', "must be a list of numbers"),
        ('["chunking"]', '["nope"]', "tasks: there is no task 'nope'"),
        ("paper = 85.0", 'paper = "hi"', "arms.electra.paper: must be a number, got 'hi'"),
        ("paper = 85.0", 'paper = { "1" = "hi" }', "arms.electra.paper: must be a number for each share"),
        ("paper = 85.0", 'x = "left"', "arms.electra.x: must be a number, got 'left'"),
        ("paper = 85.0", 'control = "bart"', "arms.electra.control: there is no arm 'bart'; did you mean 'bert'"),
    ],
)
def test_a_study_that_is_wrong_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, problem: str
) -> None:
    file.write_text(file.read_text().replace(old, new, 1))
    assert main(["study", str(file), "--data", "D", "--out", "O"]) == 2
    assert problem in capsys.readouterr().err


def test_an_unknown_study_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "objective", "--data", "D", "--out", "O"]) == 2
    assert "did you mean 'objectives'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('set = { "packing.sequence_length" = 16 }', r"bert: packing\.sequence_length is 16, and \d+ in electra"),
        ('set = { "objective.kind" = "replaced-token" }', "bert: differs in nothing from electra"),
        ('set = { "objective.temprature" = 2 }', "1 problem in arm bert of two:\n.*did you mean 'temperature'"),
    ],
)
def test_arms_that_cannot_be_compared_are_named(
    file: Path, data_folder: Path, tmp_path: Path, settings: str, problem: str
) -> None:
    file.write_text(file.read_text() + settings + "\n")
    with pytest.raises(ConfigError, match=problem):
        run(command(file, data_folder, tmp_path))
    assert not (tmp_path / "out/runs").exists()


def test_a_study_keeps_its_tasks_and_its_base(file: Path, tasks: Path, data_folder: Path, tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    facts = {"study": "two", "data": TokenData.open(data_folder).fingerprint, "budget": 1.5e9, "flops": 1.5e9}
    facts |= {"base": str(tmp_path / "base.toml"), "arms": {}, "suite": ["chunking", "cola"]}
    (out / "study.json").write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="--suite may add to them, and lacks cola"):
        run(command(file, data_folder, tmp_path, tasks=tasks, suite=("chunking",)))
    with pytest.raises(CheckpointError, match="was begun with --base"):
        run(command(file, data_folder, tmp_path, base="electra-nano"))
    (out / "study.json").write_text(json.dumps(facts)[:-5])
    with pytest.raises(CheckpointError, match=r"study\.json is damaged"):
        run(command(file, data_folder, tmp_path))


def test_a_budget_that_is_too_small_says_what_would_do(file: Path, data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give at least") as raised:
        run(command(file, data_folder, tmp_path, budget=1e7))
    enough = float(str(raised.value).split("give at least ")[1].split(" FLOPs")[0])
    assert isinstance(run(command(file, data_folder, tmp_path, budget=enough, dry_run=True)), StudyPlan)


def test_a_run_whose_owner_died_meanwhile_is_taken_over(
    file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was another's when it came to it, and is free when the others are done."""
    another = tmp_path / "out/runs/electra/1/seed-0/taken.json"
    another.parent.mkdir(parents=True)
    another.write_text(json.dumps({"host": "another", "processes": [], "process": 1}))
    done: list[str] = []

    def fake(common: Any, job: Any, steps: int) -> int:
        done.append(job.arm.name)
        os.utime(another, (time.time() - 2 * DEAD,) * 2)
        found = {"arm": job.arm.name, "share": 1.0, "seed": 0, "failed": None, "tasks": {}, "evaluation": {}}
        (job.folder(common.out) / "result.json").write_text(json.dumps({**found, "blimp": None}))
        return 0

    monkeypatch.setattr("electra.recipes.study.run_job", fake)
    run(command(file, data_folder, tmp_path))
    assert done == ["bert", "electra"]


def test_stopping_keeps_the_exit_code(
    file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("electra.recipes.study.run_job", lambda *_: 143)
    result = run(command(file, data_folder, tmp_path))
    assert isinstance(result, Stopped) and result.exit_code == 143
