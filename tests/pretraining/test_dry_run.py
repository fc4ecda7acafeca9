"""`--dry-run`: what a pre-training would be, and whether it would start."""

import shutil
from pathlib import Path

import pytest
from small_run import command, config

from electra.cli import main
from electra.pretraining.dry_run import dry_run
from electra.pretraining.run import PretrainResult, pretrain
from electra.training.cost_estimate import CostEstimate


@pytest.fixture(scope="module")
def finished(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> PretrainResult:
    """A run of 40 steps."""
    return pretrain(config(data_folder, tmp_path_factory.mktemp("runs") / "run", "train.steps=40"))


def test_a_dry_run_of_minutes_plans_no_steps(data_folder: Path, tmp_path: Path) -> None:
    planned = dry_run(config(data_folder, tmp_path / "run", "train.minutes=5"))
    assert planned.cost.steps is None and planned.cost.seconds == 300


def test_a_frozen_generator_is_not_trained(finished: PretrainResult, data_folder: Path, tmp_path: Path) -> None:
    def cost(*settings: str) -> CostEstimate:
        given = "objective.sharing=none", "train.steps=4", *settings
        return dry_run(config(data_folder, tmp_path / "run", *given)).cost

    trained = cost()
    frozen = cost("objective.fakes=frozen", f"init.generator={finished.run / 'export/generator'}")
    without = trained.parameters["discriminator"]
    assert frozen.trained_parameters == without < trained.trained_parameters
    assert trained.memory - frozen.memory == 12 * (trained.trained_parameters - without)


def test_a_dry_run_writes_nothing_and_says_what_it_would_take(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(data_folder, tmp_path / "run", "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    for words in ("[model]", "parameters of the discriminator", "training FLOPs", "memory", "time"):
        assert words in shown


def test_a_dry_run_shows_that_it_would_resume_and_refuses_like_the_run(
    finished: PretrainResult, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = command(data_folder, finished.run, "--dry-run", "--train.steps", "40")
    assert main(there) == 0
    assert "already trained" in (shown := capsys.readouterr().out) and "40 of 40 steps, finished" in shown
    assert main([*there, "--fresh"]) == 0
    assert "already trained" not in capsys.readouterr().out
    assert main([*there, "--optimizer.learning_rate", ".123"]) == 2
    assert "optimizer.learning_rate" in capsys.readouterr().err
    shutil.copytree(finished.run, half := tmp_path / "half")
    stored = (half / "config.toml").read_text()
    (half / "config.toml").write_text(stored.replace("\nsteps = 40\n", "\nsteps = 80\n"))
    assert main(command(data_folder, half, "--dry-run", "--train.steps", "80")) == 0
    assert "40 of 80 steps, would be resumed" in capsys.readouterr().out


def test_a_dry_run_refuses_another_config_before_the_first_checkpoint(
    finished: PretrainResult, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(finished.run / "config.toml", tmp_path / "run")
    there = command(data_folder, tmp_path / "run", "--train.steps", "40", "--dry-run")
    assert main(there) == 0
    assert "already trained" not in capsys.readouterr().out
    assert main([*there, "--optimizer.learning_rate", ".123"]) == 2
    assert "optimizer.learning_rate: the run has 0.001, asked for 0.123" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_dry_run_refuses_a_folder_that_is_not_a_run(
    what: str, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    if what == "folder":
        out.mkdir()
    (out / "notes.txt" if what == "folder" else out).write_text("mine")
    messages = []
    for options in ([], ["--dry-run"]):
        assert main(command(data_folder, out, *options)) == 2
        messages.append(capsys.readouterr().err)
    assert messages[0] == messages[1] and "give another --out" in messages[0]
