"""A fine-tuning that dies, is stopped or is given again: it resumes, and ends with the same bits."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from table_finetuning import contents, tune

from electra.errors import CheckpointError
from electra.finetuning import run as run_
from electra.finetuning import seed_run
from electra.finetuning.results import FinetuneResult
from electra.finetuning.setup import fingerprint
from electra.tasks.base import Rows, build_rows

Breaks = Callable[[int, Callable[[], None]], None]


def crash() -> None:
    raise RuntimeError("the machine is gone")


@pytest.mark.parametrize(
    "more", [{}, {"evaluation__keep": "best", "evaluation__every": 5}, {"train__micro_batch_size": 4}]
)
def test_a_crashed_run_resumes_bit_for_bit(
    more: dict[str, Any], model: str, easy: Path, tmp_path: Path, breaks: Breaks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seed_run, "MIN_CHECKPOINT_STEPS", 5)
    tune(model, easy, tmp_path / "whole", **more)
    breaks(37, crash)
    with pytest.raises(RuntimeError):
        tune(model, easy, tmp_path / "died", **more)
    assert max(path.name for path in (tmp_path / "died/seed-0/checkpoints").iterdir()) == "step-00000035"
    started: list[int] = []
    breaks(34, lambda: started.append(34))
    tune(model, easy, tmp_path / "died", **more)
    assert not started, "it began again"
    assert contents(tmp_path / "died") == contents(tmp_path / "whole")


def test_a_signal_stops_a_run_and_the_same_command_resumes_it(
    finished: FinetuneResult, model: str, easy: Path, tmp_path: Path, breaks: Breaks,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    breaks(30, lambda: os.kill(os.getpid(), signal.SIGTERM))
    stopped = tune(model, easy, tmp_path / "out", seeds=2)
    assert f"with --out {tmp_path / 'out'}, without --fresh" in caplog.text
    assert stopped.exit_code == 128 + signal.SIGTERM and not (tmp_path / "out/results.json").exists()
    assert "the same command resumes it" in str(stopped.__rich__())
    breaks(-1, crash)
    tune(model, easy, tmp_path / "out", seeds=2)
    assert contents(tmp_path / "out") == contents(finished.out)


def test_a_run_killed_between_two_seeds_resumes(
    finished: FinetuneResult, model: str, easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the checkpoints are removed, and just before the result is written."""
    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(run_, "remove_checkpoints", lambda _: crash())
        tune(model, easy, tmp_path / "out", seeds=2)
    shutil.copytree(tmp_path / "out", tmp_path / "earlier")
    (tmp_path / "earlier/seed-0/result.json").unlink()
    for folder in (tmp_path / "out", tmp_path / "earlier"):
        assert (folder / "seed-0/checkpoints").exists()
        tune(model, easy, folder, seeds=2)
        assert contents(folder) == contents(finished.out)
        assert not list(folder.glob("seed-*/checkpoints")) and not list(folder.glob(".*"))


def test_finished_seeds_are_not_run_again_and_need_the_same_config(
    finished: FinetuneResult, model: str, easy: Path, tmp_path: Path, breaks: Breaks
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished.out, out)
    steps: list[int] = []
    breaks(1, lambda: steps.append(1))
    again = tune(model, easy, out, seeds=2)
    assert again.seeds == finished.seeds and contents(out) == contents(finished.out) and not steps
    more = tune(model, easy, out, seeds=3)
    assert more.seeds[:2] == finished.seeds and len(more.seeds) == 3 and len(steps) == 1
    with pytest.raises(CheckpointError, match=r"optimizer\.learning_rate: the run has 0\.01, asked for 0\.5"):
        tune(model, easy, out, optimizer__learning_rate=0.5)


def test_other_splits_are_predicted_again_only_if_another_seed_is_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More seeds can be run later."""
    predicted: list[list[str]] = []

    class Predictor:
        def __init__(self, model: Path, *, device: str) -> None: ...

        def predict_rows(self, examples: list[str], rows: Rows) -> list[dict[str, str]]:
            predicted.append(examples)
            return []

    monkeypatch.setattr(run_, "Predictor", Predictor)
    (tmp_path / "model").mkdir()
    rows, task = build_rows([([5], None)], (2, 3)), SimpleNamespace(splits={"test": ["a text"]})
    splits = {"test": fingerprint(rows)}
    setup: Any = SimpleNamespace(rows={"test": rows}, other_fingerprints=splits, task=task, device="cpu")
    for best_seed, times in ((0, 1), (0, 1), (1, 2)):
        splits = run_.predict_other_splits(setup, tmp_path, best_seed)
        (tmp_path / "results.json").write_text(json.dumps({"best_seed": best_seed, "predicted": splits}))
        assert predicted == [["a text"]] * times


def test_metrics_of_a_test_file_that_has_changed_are_left_out(
    model: str, easy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The best model predicts the new file, but the models of the seeds that would be evaluated on it are gone."""
    (data := tmp_path / "data").mkdir()
    out, lines = tmp_path / "out", easy.read_text().splitlines(keepends=True)
    (data / "train.csv").write_text("".join(lines))
    (data / "test.csv").write_text("".join(lines[:20]))
    first = tune(model, data, out)
    assert first.seeds[0].others.keys() == {"test"}
    assert tune(model, data, out).seeds == first.seeds and "has changed" not in caplog.text
    (data / "test.csv").write_text("".join(lines[:9]))
    assert tune(model, data, out).seeds[0].others == {}
    assert "test is new or has changed since seed 0 was finished, so it has no metric" in caplog.text
    results = json.loads((out / "results.json").read_text())
    assert results["seeds"][0]["others"] == {} and results["examples"]["test"] == 8
    assert len((out / "test.jsonl").read_text().splitlines()) == 8
    again = tune(model, data, out, seeds=2)
    assert [list(one.others) for one in again.seeds] == [[], ["test"]]
    assert "test:" not in str(again.__rich__()), "a median of one of two seeds says little"
