"""The estimated time and memory of a fine-tuning."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from electra.finetuning import dry_run
from electra.finetuning.config import load_task_config
from electra.finetuning.dry_run import FinetuneEstimate
from electra.finetuning.setup import build_setup


@pytest.mark.parametrize(("seeds", "total"), [(1, "13m 00s"), (3, "33m 00s")])
def test_the_total_time_is_that_of_all_seeds(seeds: int, total: str) -> None:
    config = load_task_config({"model": "RUN", "task": "cola", "data.path": "GLUE", "seeds": seeds})
    estimate = FinetuneEstimate(
        config, parameters=1_000, rows=320, steps=10, preparation=60, seconds=600, predictions=120, memory=2**30
    )
    (console := Console(width=120, record=True)).print(estimate)
    shown = console.export_text()
    assert "10m 00s" in shown.partition("time of each seed, about")[2].partition("\n")[0]
    assert total in shown.partition("total time, including loading")[2].partition("\n")[0]


def test_the_time_of_an_evaluation_is_that_of_all_its_tokens(
    small_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reviews.csv").write_text("text,label\n" + "a splendid day,good\na bad,bad\n" * 50)
    settings = {"model": small_model, "kind": "classification", "data.path": tmp_path / "reviews.csv"}
    setup = build_setup(load_task_config({**settings, "train.precision": "float32", "train.device": "cpu"}))
    model, lengths = setup.build_model(0), setup.rows["dev"].lengths
    batches = [np.arange(4), np.array([4]), np.array([5, 6]), np.array([7])]
    tokens = [len(batch) * int(lengths[batch].max()) for batch in batches]
    monkeypatch.setattr(model, "batches", lambda rows, device: batches)
    monkeypatch.setattr(dry_run, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
    # the first, the third and the last batch are measured, each takes a second
    expected = float(np.median([1 / tokens[number] for number in (0, 2, 3)])) * sum(tokens)
    assert dry_run._evaluation_seconds(setup, model, "dev") == pytest.approx(expected)
