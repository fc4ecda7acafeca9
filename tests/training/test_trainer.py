"""The loop: exact resume, accumulation, skipped steps, minutes, signals, and what it writes."""

import json
import logging
import math
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.errors import CheckpointError
from electra.modeling.flops import Network, Networks
from electra.objectives.base import Counts, StepOutput
from electra.training import trainer as module
from electra.training.checkpoint import CheckpointConfig
from electra.training.evaluation import EvaluationConfig
from electra.training.optim import OptimizerConfig
from electra.training.precision import Precision
from electra.training.run_folder import RunFolder
from electra.training.tracking import TrackingConfig
from electra.training.train_config import TrainConfig
from electra.training.trainer import Feed, Outcome, Trainer

LENGTH, VOCABULARY = 8, 11


class NextId(nn.Module):
    """Predicts (id + 1) mod V from an id, with dropout, so that hidden randomness would show."""

    def __init__(self, *, dropout: float = 0.2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Embedding(VOCABULARY, 16), nn.Dropout(dropout), nn.Linear(16, VOCABULARY), nn.LayerNorm(VOCABULARY)
        )

    def forward(self, batch: Batch, counts: Counts | None = None) -> StepOutput:
        counts = counts or self.counts(batch)
        targets_BL = (batch.input_ids_BL + 1) % VOCABULARY
        inside_BL = torch.arange(LENGTH) < batch.lengths_B[:, None]
        logits = self.net(batch.input_ids_BL)[inside_BL]
        loss = F.cross_entropy(logits, targets_BL[inside_BL], reduction="sum") / counts["tokens"]
        return StepOutput(loss, {"generator_loss": loss.detach()})

    def begin_step(self, step: int, steps: int | None) -> None:
        pass

    def counts(self, batch: Batch) -> Counts:
        return {"tokens": batch.lengths_B.sum()}

    def networks(self, length: int) -> Networks:
        return {"net": Network(head="replaced-token", hidden_size=5)}

    def evaluate(self, batches: Iterable[tuple[Batch, Batch]]) -> dict[str, float]:
        return {}


def batch_of(step: int, part: int, size: int) -> Batch:
    generator = torch.Generator().manual_seed(1000 * step + part)
    ids_BL = torch.randint(VOCABULARY, (size, LENGTH), generator=generator)
    lengths_B = torch.randint(2, LENGTH + 1, (size,), generator=generator)
    return Batch(ids_BL, torch.zeros_like(ids_BL), lengths_B, seed=step)


def healthy(examples: int) -> dict[str, float]:
    return {
        "eval/discriminator_auc": 0.8, "eval/unigram_auc": 0.8, "eval/masked_lm_accuracy": 0.3,
        "eval/masked_lm_sample_accuracy": 0.2, "eval/masked_lm_loss": 4.0, "eval/generator_entropy": 4.0,
        "eval/discriminator_loss": 0.3, "eval/majority_loss": 0.4,
    }  # fmt: skip


def train(
    path: Path,
    config: TrainConfig,
    *,
    objective: nn.Module | None = None,
    micro_batches: Callable[[int], list[Batch]] = lambda step: [batch_of(step, 0, 4)],
    identity: str = "the data",
    warmup_steps: int = 3,
    checkpoint: CheckpointConfig | None = None,
    evaluation: EvaluationConfig | None = None,
    evaluate: Callable[[int], dict[str, float]] = healthy,
    waits_seldom: bool = False,
) -> tuple[Trainer, Outcome]:
    path.mkdir(exist_ok=True)
    trainer = Trainer(
        objective or NextId(),
        config,
        optimizer=OptimizerConfig(learning_rate=0.05, warmup_steps=warmup_steps),
        feed=Feed(micro_batches, epochs=lambda steps: 1.0, length=LENGTH, identity={"data": identity}),
        evaluation=evaluation or EvaluationConfig(),
        evaluate=evaluate,
        checkpoint=checkpoint or CheckpointConfig(every=4),
        tracking=TrackingConfig(tensorboard=False),
        run=RunFolder(path),
        config_text=lambda steps: f"steps = {steps}\n",
        texts={"tokenizer.json": "{}"},
        precision=Precision("float32", "", 1e9),
        device=torch.device("cpu"),
    )
    if waits_seldom:
        trainer.device = torch.device("cuda")  # the trainer itself puts nothing there
    return trainer, trainer.run()


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.objective.named_parameters()}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def metrics(path: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what a clock says."""
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    records = [record for record in records if record.get("health") != "tokens/s falling"]
    return [{k: v for k, v in r.items() if k not in ("seconds", "tokens_per_second")} for r in records]


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


def test_many_of_them_in_a_row_stop_the_run_and_name_the_last_good_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"5 steps in a row were not finite(.|\n)*step-00000008"):
        train(tmp_path / "run", TrainConfig(steps=40), objective=poisoned(set(range(9, 40))))


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


def test_the_last_evaluation_looks_at_more_examples(tmp_path: Path) -> None:
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


def test_a_damaged_checkpoint_is_passed_over_and_written_again(tmp_path: Path) -> None:
    config = TrainConfig(steps=8)
    whole, _ = train(tmp_path / "run", config)
    damaged = tmp_path / "run" / "checkpoints" / "step-00000008" / "model.safetensors"
    good = damaged.read_bytes()
    damaged.write_bytes(good[: len(good) // 2])
    resumed, _ = train(tmp_path / "run", config)
    assert same(weights(whole), weights(resumed)) and damaged.read_bytes() == good


def test_data_of_another_making_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run", TrainConfig(steps=4))
    with pytest.raises(CheckpointError, match="trained with another data: it has 'the data', given is 'other'"):
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
