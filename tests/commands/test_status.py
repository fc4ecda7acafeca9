"""Runs seen from outside."""

import io
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from rich.console import Console
from small_run import config

from electra.cli import main
from electra.commands.status import StatusConfig, run
from electra.errors import CheckpointError
from electra.folder_lock import acquire
from electra.pretraining.run import pretrain
from electra.pretraining.run_status import read_run_status

CONFIG = 'extends = "electra-tiny"\n[train]\nsteps = 200\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that has come half of its way in 50 seconds, and then vanished."""
    path = tmp_path / "runs" / "one"
    (path / "checkpoints" / "step-00000080").mkdir(parents=True)
    (path / "config.toml").write_text(CONFIG)
    records = [
        {"step": 0, "tokens": 0, "eval/unigram_auc": 0.5},
        {"step": 50, "tokens": 5000, "seconds": 25.0, "loss": 9.0, "tokens_per_second": 200.0},
        {"step": 60, "health": "loss spike", "message": "loss 12 at step 60", "remedy": "go back"},
        {"step": 80, "tokens": 8000, "eval/unigram_auc": 0.61, "eval/masked_lm_accuracy": 0.1},
        {"step": 100, "tokens": 10000, "seconds": 50.0, "loss": 7.5, "tokens_per_second": 210.0},
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + '{"step": 1')
    return path


def shown(*folders: Path) -> str:
    (console := Console(file=io.StringIO(), width=120, record=True)).print(run(StatusConfig(folders)).__rich__())
    return console.export_text()


def test_a_run_that_is_alive_has_time_left(folder: Path) -> None:
    with acquire(folder):
        actual = read_run_status(folder)
        assert (actual.state, actual.step, actual.steps, actual.seconds_left) == ("running", 100, 200, 50.0)
        assert actual.process is not None and actual.process["process"] == os.getpid()
    assert actual.checkpoint == "step-00000080" and actual.loss == 7.5


def test_the_states_of_a_run(folder: Path) -> None:
    assert read_run_status(folder).state == "dead"
    for said in ('{"how": 3}', '{"how": "strangely"}', "[]", ""):
        (folder / "ended.json").write_text(said)
        assert read_run_status(folder).state == "dead"
    (folder / "ended.json").write_text(json.dumps({"how": "stopped"}))
    assert read_run_status(folder).state == "stopped"
    os.utime(folder / "metrics.jsonl", (time.time() - 9000,) * 2)
    with acquire(folder):
        assert read_run_status(folder).state == "silent"
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        (folder / "metrics.jsonl").write_text(lines[0] + "\n")
        assert (read_run_status(folder).state, read_run_status(folder).step) == ("running", 80), (
            "a checkpoint is there"
        )
        shutil.rmtree(folder / "checkpoints")
        assert (read_run_status(folder).state, read_run_status(folder).step) == ("beginning", 0)


def test_a_checkpoint_further_than_the_last_report_counts(folder: Path) -> None:
    (folder / "checkpoints" / "step-00000101").mkdir()
    assert read_run_status(folder).step == 101
    (folder / "metrics.jsonl").write_text("garbled")
    assert (read_run_status(folder).state, read_run_status(folder).step) == ("dead", 101)


def test_why_a_run_failed_is_said(folder: Path) -> None:
    (folder / "ended.json").write_text(json.dumps({"how": "failed", "message": "the disk is full\n  make room"}))
    assert "failed: the disk is full\n  make room" in shown(folder)
    shutil.copytree(folder, folder.parent / "two")
    text = shown(folder.parent)
    assert text.count("the disk is full") == 2 and "make room" not in text


def test_a_run_that_died_in_its_export_is_dead(folder: Path) -> None:
    (folder / "checkpoints" / "step-00000200").mkdir()
    (folder / "export").mkdir()
    assert "dead: trained, but the export is not written; the same command" in shown(folder)
    (folder / "curves.png").touch()
    assert read_run_status(folder).state == "finished"


def test_one_run_is_shown_in_full_and_many_in_a_table(folder: Path) -> None:
    text = shown(folder)
    assert "100/200" in text and "newest checkpoint step-00000080" in text and "at step 60; go back" in text
    shutil.copytree(folder, folder.parent / "two")
    text = shown(folder.parent)
    assert text.count("dead: the same command") == 2 and "go back" not in text and text.count("loss spike") == 2


def test_a_line_of_json_for_each_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(folder), "--json"]) == 0
    actual = json.loads(capsys.readouterr().out)
    assert actual["state"] == "dead" and actual["evaluation"]["eval/unigram_auc"] == 0.61


def test_a_dead_run_says_how_to_resume_it(folder: Path) -> None:
    assert "dead: the same command resumes it" in shown(folder)


def test_a_missing_folder_does_not_hide_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "nowhere", str(folder)]) == 2
    output = capsys.readouterr()
    assert "100/200" in output.out and "nowhere is not a folder" in output.err


def test_the_warm_up_matters_only_while_the_run_lives(folder: Path) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('\n{"step": 100, "health": "still warming up"}\n')
    assert [name for name, _ in read_run_status(folder).health] == ["loss spike"]
    with acquire(folder):
        assert [name for name, _ in read_run_status(folder).health] == ["loss spike", "still warming up"]


def test_the_steps_of_a_run_of_a_plugin_are_known(folder: Path) -> None:
    (folder / "config.toml").write_text('[model]\nkind = "of-a-plugin"\n[train]\nsteps = 200\n')
    assert read_run_status(folder).steps == 200


def test_damaged_metrics_are_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_run_status(folder)
    assert not caplog.records
    (folder / "metrics.jsonl").write_text("garbage\n")
    read_run_status(folder)
    assert "metrics.jsonl: no line of it has metrics; the file is damaged" in caplog.text


def test_a_fine_tuning_is_named(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is a fine-tuning, and electra status is for"):
        run(StatusConfig((tmp_path,)))


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a folder"):
        run(StatusConfig((tmp_path / "nowhere",)))
    with pytest.raises(CheckpointError, match="contains no run"):
        run(StatusConfig((tmp_path,)))
    with pytest.raises(CheckpointError, match="needs the folder of a run"):
        run(StatusConfig(()))


def test_a_run_that_another_process_is_at_is_left_alone(data_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    here = pytest.raises(CheckpointError, match=f"process {os.getpid()} on .* is training this run")
    with acquire(run), here:
        pretrain(config(data_folder, run, "train.steps=40"))
    assert [file.name for file in run.iterdir()] == []


def test_events_and_the_end_of_a_run(data_folder: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    more = ("train.steps=20", f"tracking.on_event=echo $ELECTRA_EVENT $ELECTRA_STEP >> {heard}")
    pretrain(config(data_folder, tmp_path / "run", *more))
    events = heard.read_text().splitlines()
    assert {"started 0", "checkpoint 10", "checkpoint 20", "finished 20"} <= set(events)
    assert json.loads((tmp_path / "run/ended.json").read_text())["how"] == "finished"
    assert not (tmp_path / "run/taken.json").exists()
    (tmp_path / "run/checkpoints/step-00000020/state.json").write_text("{}")
    pretrain(config(data_folder, tmp_path / "run", *more))
    assert "warning 0" in heard.read_text().splitlines(), "a checkpoint was damaged"
