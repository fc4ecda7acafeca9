"""A function of the user is called with what metrics.jsonl gets."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_run import config

from electra.pretraining.run import pretrain


def test_reports_and_evaluations_are_given_with_the_length_of_the_run(data_folder: Path, tmp_path: Path) -> None:
    seen: list[tuple[Mapping[str, Any], int | None]] = []
    pretrain(
        config(data_folder, tmp_path / "run", "train.steps=20", "train.report_every=5"),
        on_report=lambda metrics, steps: seen.append((dict(metrics), steps)),
    )
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [metrics for metrics, _ in seen] == [line for line in lines if "health" not in line]
    assert {steps for _, steps in seen} == {20}
    assert [metrics["step"] for metrics, _ in seen if "loss" in metrics] == [5, 10, 15, 20]
    assert any("eval/discriminator_auc" in metrics for metrics, _ in seen)


@pytest.mark.parametrize("progress", [None, True])
def test_a_progress_bar_is_shown_if_asked_for(
    progress: bool | None, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(config(data_folder, tmp_path / "run", "train.steps=4", "train.report_every=2"), progress=progress)
    printed = capsys.readouterr()
    assert printed.out == "" and ("pretrain: 100%" in printed.err and "loss=" in printed.err) == bool(progress)
    assert progress or printed.err == ""
