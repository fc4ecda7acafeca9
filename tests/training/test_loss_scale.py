"""Loss scaling: overflows, and exact resuming of a run in float16."""

from pathlib import Path

import pytest
import torch
from loop import batch_of, metrics, same, train, weights

from electra.data.collate import Batch
from electra.training import loss_scale
from electra.training import trainer as trainer_module
from electra.training.config import CheckpointConfig, TrainConfig
from electra.training.loss_scale import GROWTH_INTERVAL, INITIAL_SCALE, LossScale


def test_it_halves_when_a_gradient_overflows_and_doubles_after_long() -> None:
    scale, good, bad = LossScale(torch.device("cpu")), torch.tensor(True), torch.tensor(False)
    scale.update(bad)
    assert scale.value == INITIAL_SCALE / 2
    for _ in range(GROWTH_INTERVAL - 1):
        scale.update(good)
    assert scale.value == INITIAL_SCALE / 2
    scale.update(good)
    assert scale.value == INITIAL_SCALE and scale.steps == 0


def test_overflows_are_skipped_without_a_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "INITIAL_SCALE", 2.0**24)
    config = TrainConfig(steps=24, report_every=1)
    trainer, _ = train(tmp_path / "run", config, precision="float16", checkpoint=CheckpointConfig(every=2))
    skipped = trainer.progress.skipped
    assert 0 < skipped < 20 and trainer.update.loss_scale is not None
    assert trainer.update.loss_scale.value == 2.0 ** (24 - skipped)
    records = metrics(tmp_path / "run")
    assert not [record for record in records if "health" in record] and not trainer.progress.excluded_steps
    assert records[-2]["loss_scale"] == 2.0 ** (24 - skipped)
    train(tmp_path / "plain", config, excluded_steps=range(skipped))
    assert records[-2]["loss"] == pytest.approx(metrics(tmp_path / "plain")[-2]["loss"], rel=0.03)


@pytest.mark.parametrize("more", [0, 1])
def test_too_many_overflows_in_a_row_are_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(loss_scale, "INITIAL_SCALE", 2.0**20)
    config, frequent = TrainConfig(steps=12, report_every=1), CheckpointConfig(every=2)
    train(tmp_path / "usual", config, precision="float16", checkpoint=frequent)
    first_report = next(record for record in metrics(tmp_path / "usual") if "loss" in record)
    in_a_row = first_report["step"] - 1  # skipped steps are not reported
    assert in_a_row > 1
    monkeypatch.setattr(trainer_module, "MAX_OVERFLOWS_IN_A_ROW", in_a_row + more)
    train(tmp_path / "limited", config, precision="float16", checkpoint=frequent)
    handled = [record["step"] for record in metrics(tmp_path / "limited") if "health" in record]
    assert handled == ([] if more else [in_a_row])


def test_a_killed_run_in_float16_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_scale, "GROWTH_INTERVAL", 3)
    config = TrainConfig(steps=14)
    whole, _ = train(tmp_path / "whole", config, precision="float16")

    def dies(step: int) -> list[Batch]:
        if step == 6:
            raise KeyboardInterrupt
        return [batch_of(step, 0, 4)]

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", config, precision="float16", micro_batches=dies)
    resumed, _ = train(tmp_path / "killed", config, precision="float16")
    assert same(weights(whole), weights(resumed))
    assert resumed.update.state_dict().keys() >= {"loss_scale/value", "loss_scale/steps"}
    assert same(whole.update.state_dict(), resumed.update.state_dict())
