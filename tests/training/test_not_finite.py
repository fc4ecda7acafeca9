"""Steps that are not finite: they are skipped and recorded, and the run rolls back once."""

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from loop import NextId, batch_of, metrics, same, train, weights
from torch import Tensor

from electra.data.collate import Batch
from electra.errors import DivergedError
from electra.objectives.base import Counts, StepOutput
from electra.training.config import CheckpointConfig, EvaluationConfig, TrainConfig


def poisoned(steps: set[int]) -> NextId:
    """An objective whose loss is not a number at some steps (a batch's seed is its step here)."""
    objective = NextId()
    plain = objective.forward

    def forward(batch: Batch, counts: Counts | None = None) -> StepOutput:
        output = plain(batch, counts)
        return replace(output, loss=output.loss * math.nan) if batch.seed in steps else output

    objective.forward = forward  # type: ignore[method-assign]
    return objective


def test_a_step_that_is_not_finite_is_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="electra"):
        trainer, _ = train(tmp_path / "run", TrainConfig(steps=10, report_every=5), objective=poisoned({3, 4, 7}))
    assert trainer.progress.skipped == 3
    assert all(torch.isfinite(value).all() for value in weights(trainer).values())
    records = metrics(tmp_path / "run")
    assert [r["skipped_steps"] for r in records if "skipped_steps" in r] == [2, 3]
    assert all(math.isfinite(r["loss"]) for r in records if "loss" in r)
    assert [r["health"] for r in records if "health" in r] == ["not finite"]
    assert "lower optimizer.learning_rate" in caplog.text


def test_without_waiting_for_every_step_the_run_is_the_same(tmp_path: Path) -> None:
    evaluation, checkpoint = EvaluationConfig(every=7), CheckpointConfig(every=6)
    for name, waits_seldom in (("each", False), ("seldom", True)):
        path, config = tmp_path / name, TrainConfig(steps=23, report_every=5)
        train(
            path, config, objective=poisoned({3, 4, 7, 22}), evaluation=evaluation, checkpoint=checkpoint,
            waits_seldom=waits_seldom,
        )  # fmt: skip
    assert metrics(tmp_path / "each") == metrics(tmp_path / "seldom")
    files = [sorted((tmp_path / name / "checkpoints").rglob("model.safetensors")) for name in ("each", "seldom")]
    assert len(files[0]) > 1
    for one, two in zip(*files, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_a_skipped_step_changes_no_weight(tmp_path: Path) -> None:
    train(tmp_path, TrainConfig(steps=5), objective=poisoned({4}))
    before, after = (tmp_path / "checkpoints" / f"step-0000000{step}" / "model.safetensors" for step in (4, 5))
    assert before.read_bytes() == after.read_bytes()


def test_many_skipped_steps_in_a_row_end_a_run(tmp_path: Path) -> None:
    with pytest.raises(
        DivergedError, match=r"last at step 8 \(loss nan, .*; 5 in a row(.|\n)*there is no checkpoint yet"
    ):
        train(tmp_path / "run", TrainConfig(steps=40), objective=poisoned(set(range(3, 40))))


@pytest.mark.parametrize("waits_seldom", [False, True])
def test_a_run_rolls_back_once_and_leaves_the_batch_out(
    tmp_path: Path, waits_seldom: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The batches of steps 10 and 18 are poisoned; there is a newer checkpoint between the two."""
    seen: list[int] = []

    def made(step: int) -> list[Batch]:
        seen.append(step)
        return [batch_of(step, 0, 4)]

    with caplog.at_level(logging.WARNING, logger="electra"):
        trainer, outcome = train(
            tmp_path / "run", TrainConfig(steps=24, report_every=6), objective=poisoned({9, 17}),
            micro_batches=made, waits_seldom=waits_seldom, rows=lambda step: [{"row": step, "text": "naïve"}],
        )  # fmt: skip
    assert outcome.step == 24 and trainer.progress.excluded_steps == [9, 17]
    assert seen.count(9) == seen.count(17) == 1 and seen.count(8) == seen.count(16) == 2
    rows = "not-finite/step-00000010.jsonl"
    assert json.loads((tmp_path / "run" / rows).read_text(encoding="utf-8")) == {"row": 9, "text": "naïve"}
    assert f"to step-00000008; continuing without the batch of step 10, whose rows are in {rows}" in caplog.text
    # What is written is that of a run in which the two batches are no more than left out.
    without, _ = train(tmp_path / "without", TrainConfig(steps=24, report_every=6), excluded_steps=[9, 17])
    assert same(weights(trainer), weights(without))
    assert [r for r in metrics(tmp_path / "run") if "health" not in r] == metrics(tmp_path / "without")


def test_a_second_skipped_step_before_a_newer_checkpoint_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(
        DivergedError,
        match=r"last at step 11 (.|\n)*gone back to a checkpoint because of step 10 already(.|\n)*8 in",
    ):
        train(tmp_path / "run", TrainConfig(steps=24), objective=poisoned({9, 10}))
    assert sorted(file.name for file in (tmp_path / "run/not-finite").iterdir()) == [
        "step-00000010.jsonl", "step-00000011.jsonl",
    ]  # fmt: skip


def test_a_checkpoint_right_after_the_batch_that_is_left_out_is_no_newer_one(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="gone back to a checkpoint because of step 10 already"):
        train(
            tmp_path / "run",
            TrainConfig(steps=24),
            objective=poisoned({9, 10}),
            checkpoint=CheckpointConfig(every=5),
        )
    assert (tmp_path / "run/checkpoints/step-00000010").is_dir()


def test_a_rollback_restores_the_weights_of_the_checkpoint(tmp_path: Path) -> None:
    objective, done = NextId(), []

    def poison(step: int) -> list[Batch]:
        if step == 10 and not done:
            done.append(step)
            with torch.no_grad():
                next(objective.parameters()).view(-1)[0] = math.nan
        return [batch_of(step, 0, 4)]

    trainer, outcome = train(tmp_path / "run", TrainConfig(steps=16), objective=objective, micro_batches=poison)
    assert outcome.step == 16 and all(torch.isfinite(value).all() for value in weights(trainer).values())
    assert trainer.progress.excluded_steps == [10] and trainer.progress.rolled_back_from is None


def test_a_gradient_that_is_infinite_is_caught_in_its_step(tmp_path: Path) -> None:
    objective, done = NextId(), []

    def poison(gradient: Tensor) -> Tensor:
        done.append(1)
        return torch.full_like(gradient, math.inf) if len(done) == 11 else gradient

    next(objective.parameters()).register_hook(poison)
    trainer, _ = train(tmp_path / "run", TrainConfig(steps=16), objective=objective)
    assert trainer.progress.excluded_steps == [10] and len(done) == 16 + 2, "steps 9 and 10 were made again"
    assert all(torch.isfinite(value).all() for value in weights(trainer).values())


def leaping(steps: set[int]) -> NextId:
    """An objective whose loss jumps at some steps."""
    objective = NextId()
    plain = objective.forward

    def forward(batch: Batch, counts: Counts | None = None) -> StepOutput:
        output = plain(batch, counts)
        return replace(output, loss=output.loss + 20) if batch.seed in steps else output

    objective.forward = forward  # type: ignore[method-assign]
    return objective


def test_a_run_rolls_back_from_a_spike_if_configured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, objective = TrainConfig(steps=32, report_every=2, on_spike="go-back"), leaping({25})
    with caplog.at_level(logging.WARNING, logger="electra"):
        trainer, _ = train(tmp_path / "run", config, objective=objective)
    assert trainer.progress.excluded_steps == [24, 25]
    (spike,) = [r for r in metrics(tmp_path / "run") if r.get("health") == "loss spike"]
    assert spike["step"] == 26 and spike["remedy"] == "the run goes back to step-00000024"
    said = [message for message in caplog.messages if "spike" in message or "went back" in message]
    assert "go back to the checkpoint before it" not in said[0] and said[0].endswith(spike["remedy"])
    assert said[1:] == ["went back from step 26 to step-00000024; continuing without steps 25 to 26"]
    warned, _ = train(tmp_path / "warned", replace(config, on_spike="warn"), objective=objective)
    assert not warned.progress.excluded_steps


@pytest.mark.parametrize(
    ("leaps", "every", "last"),
    [({25, 29}, 12, "the run went back once already"), ({13}, 20, "there is no checkpoint to go back to")],
)
def test_a_run_that_only_warns_of_a_spike_says_why(tmp_path: Path, leaps: set[int], every: int, last: str) -> None:
    config = TrainConfig(steps=32, report_every=2, on_spike="go-back")
    train(tmp_path / "run", config, objective=leaping(leaps), checkpoint=CheckpointConfig(every=every))
    spikes = [r for r in metrics(tmp_path / "run") if r.get("health") == "loss spike"]
    assert spikes[-1]["remedy"] == f"{last}; this is only a warning"
    assert [r["step"] for r in spikes] == [step + 1 for step in sorted(leaps)]


def test_an_excluded_step_begins_a_stage_all_the_same(tmp_path: Path) -> None:
    """Two-stage training copies weights there (objectives/two_stage.py)."""

    begun = []

    class Noting(NextId):
        def begin_step(self, step: int, steps: int | None) -> None:
            begun.append(step)

    train(tmp_path / "run", TrainConfig(steps=4), objective=Noting(), excluded_steps=[2])
    assert begun == [0, 1, 2, 3]
