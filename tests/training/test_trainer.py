"""The loop: exact resume, accumulation, skipped steps, minutes, signals, and what it writes."""

import itertools
import json
import logging
import os
import signal
from pathlib import Path

import pytest
import torch
from loop import LENGTH, NextId, batch_of, healthy, metrics, same, train, weights

from electra.data.collate import Batch
from electra.errors import CheckpointError
from electra.modeling.flops import Networks
from electra.objectives.health import DEADLINE, LATE, TOO_LONG, WARMING_UP
from electra.training import trainer as module
from electra.training.config import CheckpointConfig, EvaluationConfig, TrainConfig
from electra.training.time_budget import Deadline
from electra.training.trainer import Outcome


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, nothing is cleaned up after it."""


@pytest.mark.parametrize("killed_at", [2, 4, 5, 11])
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path: Path, killed_at: int) -> None:
    config = TrainConfig(steps=14, report_every=3)
    whole, _ = train(tmp_path / "whole", config)

    def dies(step: int) -> list[Batch]:
        if step == killed_at:
            raise Killed
        return [batch_of(step, 0, 4)]

    with pytest.raises(Killed):
        train(tmp_path / "killed", config, micro_batches=dies)
    resumed, outcome = train(tmp_path / "killed", config)
    assert outcome == Outcome(14, 14, None, whole.evaluation)
    assert same(weights(whole), weights(resumed))
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "killed")


def test_it_learns(tmp_path: Path) -> None:
    train(tmp_path / "run", TrainConfig(steps=120, report_every=20), objective=NextId(dropout=0.0))
    losses = [record["loss"] for record in metrics(tmp_path / "run") if "loss" in record]
    assert losses[-1] < 0.5 * losses[0]


def test_micro_batches_add_up_to_the_mean_over_all_tokens(tmp_path: Path) -> None:
    def together(step: int) -> list[Batch]:
        parts = [batch_of(step, part, 2) for part in range(3)]
        ids, segments, lengths = (
            torch.cat([getattr(part, name) for part in parts])
            for name in ("input_ids_BL", "segment_ids_BL", "lengths_B")
        )
        return [Batch(ids, segments, lengths, seed=step)]

    config = TrainConfig(steps=6, batch_size=6)
    one, _ = train(tmp_path / "one", config, objective=NextId(dropout=0.0), micro_batches=together)
    three, _ = train(
        tmp_path / "three",
        config,
        objective=NextId(dropout=0.0),
        micro_batches=lambda step: [batch_of(step, part, 2) for part in range(3)],
    )
    for name, value in weights(one).items():
        torch.testing.assert_close(value, weights(three)[name], rtol=1e-5, atol=1e-6)


def test_minutes_become_steps_that_a_resume_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**9))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))  # every look takes a second

    def dies(step: int) -> list[Batch]:
        if step == 30:
            raise Killed
        return [batch_of(step, 0, 4)]

    with pytest.raises(Killed):
        train(tmp_path / "run", TrainConfig(minutes=1.5), micro_batches=dies, warmup_steps=10)
    # 90 s at 1 s a step, of which eleven evaluations take 1 s each
    assert (tmp_path / "run" / "config.toml").read_text() == "steps = 79\n"
    _, outcome = train(tmp_path / "run", TrainConfig(minutes=1.5), warmup_steps=10)
    assert outcome.step == outcome.steps == 79


def test_a_short_run_has_reports_and_evaluations_without_settings(tmp_path: Path) -> None:
    train(tmp_path / "run", TrainConfig(steps=40))
    records = metrics(tmp_path / "run")
    assert [record["step"] for record in records if "loss" in record] == list(range(2, 41, 2))
    assert [record["step"] for record in records if "eval/unigram_auc" in record] == list(range(0, 41, 4))


def test_a_run_that_ends_within_its_warmup_is_reported(tmp_path: Path) -> None:
    for name, warmup_steps in (("short", 5), ("whole", 6)):
        train(tmp_path / name, TrainConfig(steps=6), warmup_steps=warmup_steps)
    found = [
        [r["step"] for r in metrics(tmp_path / name) if r.get("health") == WARMING_UP]
        for name in ("short", "whole")
    ]
    assert found == [[], [0]]


class FakeClock:
    """A clock on which each step of a run takes ten seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def micro_batches(self, step: int) -> list[Batch]:
        self.now += 10
        return [batch_of(step, 0, 4)]


@pytest.mark.parametrize(
    "length", [TrainConfig(steps=1000, deadline=10.0), TrainConfig(minutes=1e6, deadline=10.0)]
)
def test_a_run_ends_at_its_deadline_with_an_evaluation_and_a_checkpoint(
    tmp_path: Path, length: TrainConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.time, "perf_counter", itertools.count(step=1e-6).__next__)  # too fast to be timed
    clock, examples = FakeClock(), EvaluationConfig(examples=9, interim_examples=3)
    trainer, outcome = train(
        tmp_path / "run", length, micro_batches=clock.micro_batches, evaluation=examples, warmup_steps=500,
        evaluate=lambda count: {**healthy(count), "eval/examples": float(count)},
        deadline=Deadline(10.0, clock=clock),
    )  # fmt: skip
    assert outcome.step == outcome.steps == 57 and outcome.stopped_by is None  # 600 s without 30 s for the export
    assert outcome.evaluation["step"] == 57 and outcome.evaluation["eval/examples"] == 9
    planned = " of 1,000" if length.steps else ""
    reason = "because the deadline of 10 minutes is near; the learning rate was still at 12% of its peak; set"
    assert f"stopped at step 57{planned}, {reason} train.minutes" in caplog.text
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line.get("health") == DEADLINE] == [57]
    caplog.clear()
    with caplog.at_level(logging.INFO):
        again, outcome = train(tmp_path / "run", length, micro_batches=clock.micro_batches)
    assert outcome.step == outcome.steps == 57 and same(weights(trainer), weights(again))
    assert "the run is finished: all 57 steps are done" in caplog.text
    assert WARMING_UP not in caplog.text


def test_a_run_is_planned_to_end_before_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(module.time, "perf_counter", clock)
    deadline = Deadline(10.0, started=-180.0, clock=clock)  # three minutes passed before training
    _, outcome = train(
        tmp_path / "run", TrainConfig(minutes=9.0, deadline=10.0), micro_batches=clock.micro_batches,
        deadline=deadline, warmup_steps=20,
    )  # fmt: skip
    assert outcome.step == outcome.steps == 39, "600 s less 180 s, and less 30 s for the export"
    assert "the deadline" not in caplog.text


def test_the_last_evaluation_is_planned_once_before_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(module.time, "perf_counter", clock)

    def evaluate(examples: int) -> dict[str, float]:
        clock.now += examples
        return healthy(examples)

    _, outcome = train(
        tmp_path / "run", TrainConfig(minutes=1e3, deadline=15.0), micro_batches=clock.micro_batches,
        deadline=Deadline(15.0, clock=clock), warmup_steps=20, evaluate=evaluate,
        evaluation=EvaluationConfig(examples=20, interim_examples=5),
    )  # fmt: skip
    assert outcome.step == outcome.steps == 80, "900 s less 30 for the export, 50 for ten evaluations, and 20"
    assert clock.now <= 900 - 30


def test_an_evaluation_that_does_not_fit_before_the_deadline_is_reported_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(module.time, "perf_counter", clock)

    def evaluate(examples: int) -> dict[str, float]:
        clock.now += 10 * examples
        return healthy(examples)

    for examples, late in ((11, []), (13, [1])):  # a fifth of the ten minutes is reserved: 120 seconds
        out, evaluation = tmp_path / str(examples), EvaluationConfig(examples=examples, interim_examples=9)
        train(
            out, TrainConfig(steps=1000, deadline=10.0), micro_batches=clock.micro_batches, evaluate=evaluate,
            evaluation=evaluation, deadline=Deadline(10.0, clock=clock),
        )  # fmt: skip
        assert [line["step"] for line in metrics(out) if line.get("health") == LATE] == late


def test_the_checkpoint_of_the_last_step_before_a_deadline_says_that_the_run_is_finished(tmp_path: Path) -> None:
    clock, every_step = FakeClock(), CheckpointConfig(every=1)
    config = TrainConfig(steps=1000, deadline=10.0)
    for _ in range(2):
        deadline = Deadline(10.0, clock=clock)
        _, outcome = train(
            tmp_path / "run", config, micro_batches=clock.micro_batches, checkpoint=every_step, deadline=deadline
        )
        assert outcome.step == outcome.steps == 57


def test_a_killed_run_has_its_whole_deadline_again(tmp_path: Path) -> None:
    clock = FakeClock()

    def dies(step: int) -> list[Batch]:
        if step == 40:
            raise Killed
        return clock.micro_batches(step)

    config = TrainConfig(steps=1000, deadline=10.0)
    with pytest.raises(Killed):
        train(tmp_path / "run", config, micro_batches=dies, deadline=Deadline(10.0, clock=clock))
    deadline = Deadline(10.0, clock=clock)
    _, outcome = train(tmp_path / "run", config, micro_batches=clock.micro_batches, deadline=deadline)
    assert outcome.step == outcome.steps == 40 + 57, "40 are in the last checkpoint"


def test_a_run_that_takes_longer_than_asked_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def slows_down(step: int) -> list[Batch]:
        now[0] += 1 if step < 40 else 4
        return [batch_of(step, 0, 4)]

    config = TrainConfig(minutes=2, report_every=5)
    _, outcome = train(tmp_path / "run", config, micro_batches=slows_down, warmup_steps=10)
    findings = [record for record in metrics(tmp_path / "run") if record.get("health") == TOO_LONG]
    assert outcome.step == 120 and len(findings) == 1
    # after 45 steps 60 seconds, so 160 in all; after 50 steps 80 seconds, so 192, more than 1.5 times 120
    assert findings[0]["step"] == 50 and "instead of 2" in findings[0]["message"]


class SecondHalfTwice(NextId):
    """Its steps are twice as expensive in the second half of the run."""

    late = False

    def begin_step(self, step: int, steps: int | None) -> None:
        self.late = steps is not None and step >= steps / 2

    def networks(self, length: int) -> Networks:
        networks = super().networks(length)
        return {**networks, "again": networks["net"]} if self.late else networks


def test_fewer_steps_fit_into_the_minutes_if_later_ones_are_more_expensive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10**9))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))
    _, outcome = train(tmp_path / "run", TrainConfig(minutes=1.5), objective=SecondHalfTwice(), warmup_steps=10)
    assert outcome.steps == 52, "79 steps of 1 s at the start, and 1.5 times that at the mean"


def test_a_run_killed_just_after_its_length_is_settled_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10**9))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))
    config = TrainConfig(minutes=1.5, report_every=5)  # the length is settled at step 10, which is also reported
    whole, _ = train(tmp_path / "whole", config, warmup_steps=10)

    def dies(step: int) -> list[Batch]:
        if step == 12:
            raise Killed
        return [batch_of(step, 0, 4)]

    with pytest.raises(Killed):
        train(tmp_path / "killed", config, micro_batches=dies, warmup_steps=10)
    resumed, _ = train(tmp_path / "killed", config, warmup_steps=10)
    assert same(weights(whole), weights(resumed))
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "killed")


def test_the_length_is_settled_before_the_warm_up_ends(tmp_path: Path) -> None:
    _, outcome = train(tmp_path / "run", TrainConfig(minutes=0.02), warmup_steps=1)
    assert outcome.steps is not None and outcome.step == outcome.steps


def test_freed_memory_is_released_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[bool] = []
    monkeypatch.setattr(module, "release_freed_memory", lambda: released.append(True))
    monkeypatch.setattr(module, "RELEASE_EVERY", 4)
    train(tmp_path / "run", TrainConfig(steps=10))
    assert len(released) == 2


def test_the_last_evaluation_uses_more_examples(tmp_path: Path) -> None:
    looked: list[int] = []

    def evaluate(examples: int) -> dict[str, float]:
        looked.append(examples)
        return healthy(examples)

    evaluation = EvaluationConfig(every=2, examples=512, interim_examples=64)
    train(tmp_path / "run", TrainConfig(steps=4), evaluation=evaluation, evaluate=evaluate)
    assert looked == [64, 64, 512]


def test_a_signal_saves_and_stops_and_the_same_command_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def asks(step: int) -> list[Batch]:
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return [batch_of(step, 0, 4)]

    config = TrainConfig(steps=9)
    whole, _ = train(tmp_path / "whole", config)
    with caplog.at_level(logging.WARNING, logger="electra"):
        _, outcome = train(tmp_path / "run", config, micro_batches=asks)
    assert outcome.stopped_by == signal.SIGTERM and outcome.step == 6
    assert "SIGTERM" in caplog.text and "saved at step 6" in caplog.text
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    resumed, outcome = train(tmp_path / "run", config)
    assert outcome.stopped_by is None and same(weights(whole), weights(resumed))


def test_a_damaged_checkpoint_is_skipped_and_written_again(tmp_path: Path) -> None:
    config = TrainConfig(steps=8)
    whole, _ = train(tmp_path / "run", config)
    damaged = tmp_path / "run" / "checkpoints" / "step-00000008" / "model.safetensors"
    good = damaged.read_bytes()
    damaged.write_bytes(good[: len(good) // 2])
    resumed, _ = train(tmp_path / "run", config)
    assert same(weights(whole), weights(resumed)) and damaged.read_bytes() == good


def test_other_data_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run", TrainConfig(steps=4))
    with pytest.raises(CheckpointError, match=r"other data \(fingerprint the data before, other now\)"):
        train(tmp_path / "run", TrainConfig(steps=4), identity="other")


def test_reports_have_the_keys_of_the_contract(tmp_path: Path) -> None:
    train(tmp_path / "run", TrainConfig(steps=4, report_every=2))
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    report = next(record for record in records if "loss" in record)
    assert {
        "step", "tokens", "flops", "seconds", "loss", "generator_loss", "learning_rate", "gradient_norm",
        "tokens_per_second",
    } <= report.keys()  # fmt: skip
    assert report["flops"] == 2 * 4 * LENGTH * 3 * 2 * (5 * 5 + 5)
    assert [r["step"] for r in records if "eval/unigram_auc" in r] == [0, 1, 2, 3, 4]
