"""Studies: from a TOML file to a table, with runs that are resumed and shared."""

import inspect
import io
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_study import command

from electra.commands.study import StudyCommand, run
from electra.config import load_config
from electra.errors import CheckpointError, ConfigError, DataError
from electra.folder_lock import STALE_SECONDS
from electra.pretraining.config import PretrainConfig
from electra.reports.metrics import read_metrics
from electra.reports.study import StudyReport, archive_study
from electra.studies import runs
from electra.studies.config import load_study, study_names
from electra.studies.cost_estimate import measure_flops_per_second
from electra.studies.plan import StudyPlan
from electra.studies.run import StoppedStudy
from electra.training.precision import Precision

pytestmark = pytest.mark.usefixtures("without_transformers")


@pytest.fixture(scope="module", autouse=True)
def _fine_tunings_are_short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("electra.finetuning.config.LEAST_STEPS", 1)
        yield


@pytest.mark.parametrize("name", study_names())
def test_every_packaged_study_is_named_by_the_help_and_the_guide(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs/guides/studies.md").read_text(encoding="utf-8")
    assert f"| `{name}` | " in page
    said = inspect.getsource(StudyCommand).split("Name of a study (")[1].split(": docs/guides/studies.md")[0]
    assert name in re.split(r",\s+", said)


@pytest.mark.parametrize("name", study_names())
def test_the_arms_of_every_packaged_study_are_valid_configs(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    for arm in study.arms:
        (path := tmp_path / f"{arm.name}.toml").write_text(study.arm_toml(arm, tmp_path))
        config = load_config(PretrainConfig, path, ["train.steps=100", "model.vocabulary_size=400"])
        assert config.train.steps == 100


def test_runs_have_equal_compute_and_are_scored(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path
) -> None:
    result = run(command(study_file, data_folder, tmp_path, tasks=tasks, seeds=2))
    assert isinstance(result, StudyReport)
    rows = {row.arm: row for row in result.arms}
    flops = [one["flops"] for row in result.arms for one in row.runs]
    assert len(flops) == 4 and max(flops) / min(flops) < 1.1
    assert rows["electra"].verdict == "" and rows["bert"].verdict in ("higher", "lower", "not distinguishable")
    assert rows["bert"].interval is not None and rows["bert"].published == 82.2
    out = tmp_path / "out"
    lines = (out / "study.csv").read_text().splitlines()
    assert len(lines) == 5 and "chunking span_f1 0" in lines[0]
    assert (out / "study.png").stat().st_size > 5000 and "<svg" in (out / "study.svg").read_text()
    stored = json.loads((out / "results.json").read_text())
    assert [row["n"] for row in stored["rows"]] == [2, 2]
    first, *_, last = read_metrics(out / "runs/electra/1/seed-0/run").evaluations
    evaluation = rows["electra"].runs[0]["evaluation"]
    assert evaluation == {name: last[name] for name in evaluation} != {name: first[name] for name in evaluation}

    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/*/result.json")}
    more = run(command(study_file, data_folder, tmp_path, tasks=tasks, seeds=3))
    assert isinstance(more, StudyReport) and [len(row.runs) for row in more.arms] == [3, 3]
    assert all(path.stat().st_mtime_ns == then for path, then in before.items()), (
        "one seed more costs one run more"
    )


def test_the_precision_is_measured_once(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[str] = []

    def choose(name: Any, *others: Any) -> Precision:
        requested.append(name)
        return Precision("float32", "chosen by the test", 1e9)

    monkeypatch.setattr("electra.pretraining.build.choose_precision", choose)
    monkeypatch.setattr("electra.finetuning.setup.choose_precision", choose)
    run(command(study_file, data_folder, tmp_path, tasks=tasks))
    assert requested == ["auto", *["float32"] * 4], "once for the study, then two runs and a fine-tuning of each"


def test_a_study_that_was_killed_is_resumed(
    study_file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def dies(setup: Any, run: Any, steps: int) -> int:
        if done:
            raise KeyboardInterrupt
        done.append(str(run))
        return runs.train_and_score(setup, run, steps)

    monkeypatch.setattr("electra.studies.run.train_and_score", dies)
    stopped = run(command(study_file, data_folder, tmp_path))
    assert isinstance(stopped, StoppedStudy) and stopped.exit_code == 130
    assert "stopped in bert, seed 0; the same command resumes it" in str(stopped.__rich__())
    monkeypatch.undo()
    result = run(command(study_file, data_folder, tmp_path))
    assert isinstance(result, StudyReport) and [len(row.runs) for row in result.arms] == [1, 1]
    assert result.arms[0].scores == (100 * result.arms[0].runs[0]["evaluation"]["eval/unigram_auc"],)
    assert not result.arms[1].scores, "without --tasks nothing is fine-tuned, and BERT has no AUC"


def test_tasks_that_are_added_later_cost_no_pretraining(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path
) -> None:
    run(command(study_file, data_folder, tmp_path, arms=("bert",)))
    steps = {path: path.read_text() for path in (tmp_path / "out").glob("runs/*/*/*/run/metrics.jsonl")}
    assert len(steps) == 2
    result = run(command(study_file, data_folder, tmp_path, tasks=tasks))
    assert isinstance(result, StudyReport) and [len(row.scores) for row in result.arms] == [1, 1]
    assert all(path.read_text() == text for path, text in steps.items()), "nothing was trained again"
    more = run(command(study_file, data_folder, tmp_path, tasks=tasks, task_seeds=2))
    assert isinstance(more, StudyReport)
    assert [len(row.runs[0]["tasks"]["chunking"]["values"]) for row in more.arms] == [2, 2]


def test_a_frozen_probe_scores_each_network_once(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    suite = ("chunking", "probe-chunking")
    settings: dict[str, Any] = {"tasks": tasks, "suite": suite, "task_seeds": 2}
    plan = run(command(study_file, data_folder, tmp_path, dry_run=True, **settings))
    (console := Console(file=io.StringIO(), width=200, record=True)).print(plan)
    assert "of fine-tuning 2 times on each of chunking and probes (probe-chunking)" in console.export_text()
    result = run(command(study_file, data_folder, tmp_path, **settings))
    assert isinstance(result, StudyReport)
    for row in result.arms:
        scores = row.runs[0]["tasks"]
        assert [len(scores[task]["values"]) for task in suite] == [2, 1]
        assert scores["probe-chunking"] == {"metric": "accuracy", "values": [1.0], "failed": 0}, "one sentence"
    with pytest.raises(
        ConfigError, match=r"--suite: probe-upos:0.1: a probe reads fixed sentences; write probe-upos"
    ):
        run(command(study_file, data_folder, tmp_path, tasks=tasks, suite=("probe-upos:0.1",)))
    with pytest.raises(
        DataError, match=r"pos-ud-english-ewt.*: there is no train.conllu or .*, which a frozen probe needs"
    ):
        run(command(study_file, data_folder, tmp_path, tasks=tasks, suite=(*suite, "probe-upos")))


def test_other_settings_of_fine_tuning_cost_no_pretraining(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(command(study_file, data_folder, tmp_path, tasks=tasks))
    out = tmp_path / "out"
    monkeypatch.setattr("electra.studies.runs.pretrain", lambda _: pytest.fail("nothing is trained again"))
    with pytest.raises(ConfigError, match=r"did you mean --optimizer\.learning_rate"):
        run(command(study_file, data_folder, tmp_path, tasks=tasks, tune=("optimizer.learning_rat=1",)))
    tuned = run(command(study_file, data_folder, tmp_path, tasks=tasks, tune=("optimizer.learning_rate=3e-2",)))
    assert isinstance(first, StudyReport) and isinstance(tuned, StudyReport)
    assert [row.scores for row in first.arms] != [row.scores for row in tuned.arms]
    assert json.loads((out / "results.json").read_text())["tune"] == ["optimizer.learning_rate=0.03"]
    (console := Console(file=io.StringIO(), width=400, record=True)).print(tuned)
    assert "fine-tuned with optimizer.learning_rate=0.03" in console.export_text()

    monkeypatch.setattr("electra.studies.scores.finetune", lambda _: pytest.fail("nor fine-tuned"))
    for settings, expected in (((), tuned), (("optimizer.learning_rate=0.03",), tuned), (("defaults",), first)):
        again = run(command(study_file, data_folder, tmp_path, tasks=tasks, tune=settings))
        assert isinstance(again, StudyReport)
        assert [row.scores for row in again.arms] == [row.scores for row in expected.arms]


def test_a_run_whose_weights_are_missing_is_not_silently_trained_again(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path
) -> None:
    run(command(study_file, data_folder, tmp_path))
    shutil.rmtree(tmp_path / "out/runs/bert/1/seed-0/run")
    with pytest.raises(CheckpointError, match=r"its weights are missing.*\n.*delete .*result\.json"):
        run(command(study_file, data_folder, tmp_path, tasks=tasks))


def test_an_archive_can_be_continued(study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path) -> None:
    """Runs that are done are not repeated; their weights are not in the archive, so they cannot be fine-tuned."""
    first = run(command(study_file, data_folder, tmp_path, arms=("bert",)))
    archive = archive_study(tmp_path / "out", tmp_path / "archive")[0].parent
    more = run(command(study_file, data_folder, tmp_path, seeds=2, out=archive))
    assert isinstance(first, StudyReport) and isinstance(more, StudyReport)
    assert [len(arm.runs) for arm in more.arms] == [2, 2] and more.study["flops"] == first.study["flops"]
    assert all(archived.runs[0].pop("environment")["torch"] for archived in more.arms)
    assert [arm.runs[0] for arm in more.arms] == [arm.runs[0] for arm in first.arms]
    assert not list(archive.glob("runs/*/1/seed-0/run")) and len(list(archive.glob("runs/*/1/seed-1/run"))) == 2
    with pytest.raises(CheckpointError, match=r"weights are missing.*\n.*delete the run's line in .*runs\.jsonl"):
        run(command(study_file, data_folder, tmp_path, tasks=tasks, out=archive))


def test_a_run_that_diverges_is_a_result_and_the_others_continue(
    study_file: Path, data_folder: Path, tmp_path: Path
) -> None:
    study_file.write_text(study_file.read_text() + 'set = { "optimizer.learning_rate" = 1e30 }\n')
    result = run(command(study_file, data_folder, tmp_path, seeds=2))
    assert isinstance(result, StudyReport)
    assert {row.arm: (len(row.runs), row.failed) for row in result.arms} == {"electra": (2, 0), "bert": (0, 2)}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(result)
    assert "0 (2 failed)" in console.export_text()


def test_a_dry_run_shows_all_arms(study_file: Path, data_folder: Path, tmp_path: Path) -> None:
    plan = run(command(study_file, data_folder, tmp_path, dry_run=True))
    assert isinstance(plan, StudyPlan)
    cost = {arm.name: arm.train.sequences(arm.steps(1)) * arm.flops_per_sequence for arm in plan.arms}
    assert cost["electra"] == pytest.approx(cost["bert"], rel=0.1) == pytest.approx(1.5e9, rel=0.1)
    assert not (tmp_path / "out/runs").exists()
    assert plan.seconds > 0 and plan.scoring_seconds == 0, "there are no tasks"


def test_a_dry_run_estimates_the_time_of_fine_tuning(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="electra"):
        plan = run(command(study_file, data_folder, tmp_path, tasks=tasks, dry_run=True))
    assert isinstance(plan, StudyPlan) and plan.scoring_seconds > 0
    assert not [
        one for one in caplog.records if one.name.startswith("electra.finetuning") and one.levelname == "INFO"
    ]
    assert "measuring the time of chunking" in caplog.text
    (console := Console(file=io.StringIO(), width=120, record=True)).print(plan)
    assert "of fine-tuning once on each of chunking" in console.export_text()
    assert not (tmp_path / "out").exists()


def test_a_budget_in_minutes_is_measured_on_the_control(
    study_file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds: list[float] = []

    def timed(*given: Any) -> float:
        speeds.append(max(measure_flops_per_second(*given), 1e8))  # a budget too small is refused
        return speeds[-1]

    monkeypatch.setattr("electra.studies.run.measure_flops_per_second", timed)
    plan = run(command(study_file, data_folder, tmp_path, budget=0.5, dry_run=True))
    assert isinstance(plan, StudyPlan) and plan.setup.flops == 30 * speeds[0] and speeds[0] > 1e6


def test_paths_in_a_study_may_be_relative_to_its_file(study_file: Path, tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    study_file.write_text(study_file.read_text() + 'set = { "init.generator" = "earlier" }\n')
    assert load_study(str(study_file)).arms[1].settings == {"init.generator": str(tmp_path / "earlier")}


def test_runs_that_are_not_scored_are_counted(
    study_file: Path, tasks: Path, data_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(command(study_file, data_folder, tmp_path, tasks=tasks))
    result = run(command(study_file, data_folder, tmp_path, seeds=2))
    assert isinstance(result, StudyReport) and [row.unscored for row in result.arms] == [1, 1]
    assert "are scored by chunking; without --tasks, new runs are not scored" in caplog.text
    (console := Console(file=io.StringIO(), width=200, record=True)).print(result)
    assert "1 (1 not scored)" in console.export_text()


def test_two_processes_that_start_at_once_share_arms_and_precision(
    study_file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second starts while the first measures its precision."""
    inner: list[Any] = []

    def measures(*_: Any) -> str:
        if inner:
            return "float32"
        inner.append(None)
        inner[0] = run(command(study_file, data_folder, tmp_path, arms=("bert",)))
        return "bfloat16"

    monkeypatch.setattr("electra.studies.folder.measure_precision", measures)
    result = run(command(study_file, data_folder, tmp_path))
    assert isinstance(result, StudyReport) and isinstance(inner[0], StudyReport)
    assert {run["precision"] for run in result.runs} == {"float32"}
    assert set(json.loads((tmp_path / "out/study.json").read_text())["arms"]) == {"electra", "bert"}


def test_a_run_whose_owner_died_is_taken_over(
    study_file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is locked at first, and free when the other runs are done."""
    monkeypatch.setattr("electra.studies.run.train_and_score", lambda *_: 143)
    assert isinstance(run(command(study_file, data_folder, tmp_path)), StoppedStudy)
    another = tmp_path / "out/runs/electra/1/seed-0/taken.json"
    another.parent.mkdir(parents=True, exist_ok=True)
    another.write_text(json.dumps({"host": "another", "processes": [], "process": 1}))
    done: list[str] = []

    def fake(setup: Any, run: Any, steps: int) -> int:
        done.append(run.arm.name)
        os.utime(another, (time.time() - 2 * STALE_SECONDS,) * 2)
        actual = {"arm": run.arm.name, "share": 1.0, "seed": 0, "failed": None, "tasks": {}, "evaluation": {}}
        (run.folder(setup.out) / "result.json").write_text(json.dumps({**actual, "blimp": None}))
        return 0

    monkeypatch.setattr("electra.studies.run.train_and_score", fake)
    run(command(study_file, data_folder, tmp_path))
    assert done == ["bert", "electra"]


def test_a_level_is_reached_by_a_value_that_equals_it() -> None:
    evaluations = [{"tokens": 100, "eval/unigram_auc": 0.5}, {"tokens": 200, "eval/unigram_auc": 0.75}]
    assert runs._tokens_to(evaluations, "eval/unigram_auc", 0.75) == 200
    assert runs._tokens_to(evaluations, "eval/unigram_auc", 0.76) is None


def test_a_stopped_study_keeps_the_exit_code(
    study_file: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("electra.studies.run.train_and_score", lambda *_: 143)
    result = run(command(study_file, data_folder, tmp_path))
    assert isinstance(result, StoppedStudy) and result.exit_code == 143


def test_a_study_can_be_moved_together_with_its_base(study_file: Path, data_folder: Path, tmp_path: Path) -> None:
    """Its folder contains no absolute path."""
    text = study_file.read_text()
    study_file.write_text(text.replace(str(tmp_path / "base.toml"), "base.toml"))
    (here := tmp_path / "here").mkdir()
    for name in ("base.toml", study_file.name):
        shutil.move(tmp_path / name, here / name)
    run(command(here / study_file.name, data_folder, here))
    written = [here / "out/study.json", *(here / "out/arms").iterdir()]
    assert len(written) > 2 and not any(str(tmp_path) in path.read_text() for path in written)
    shutil.move(here, there := tmp_path / "there")
    result = run(command(there / study_file.name, data_folder, there))
    assert isinstance(result, StudyReport) and all(row.runs for row in result.arms)
